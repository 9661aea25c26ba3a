// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hollow simulates a fleet of hollow nodes in one process, to rehearse
// rollouts against any API server: each node has a real agent on top of a
// simulated kubelet, with faults on demand.
//
// The package must not know rollouts or the controller, nor decide anything
// that an agent decides. It never changes a Node that it has not created.
package hollow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// Options configure a fleet.
type Options struct {
	// Config is for a user who may create, patch and delete Nodes and the
	// Leases of kube-node-lease, delete NodeConfigs, and impersonate nodes.
	Config *rest.Config
	Nodes  int                // the initial number
	Prefix string             // of node names; empty means "hollow-"
	Zones  int                // zone-0, zone-1, ...; 0 means no zones
	Sizes  []payload.Capacity // of the nodes, in turn; empty means 4 CPUs and 16 GiB of memory
	Labels map[string]string
	Faults []Fault
	// Dir holds the state of the agents, which continue with what it has. Empty
	// means a temporary directory, which Stop removes.
	Dir string
	// Limits apply to the agents. Durations that are zero get a short default,
	// and RestInterval that of a minute.
	Limits trial.Limits
	// UnansweredLimit is that of the agents; 0 means their default.
	UnansweredLimit time.Duration
	// LeasePeriod is how often Leases are renewed; 0 means at each start of a
	// kubelet, and every 10s during a trial. A cluster with a
	// controller-manager needs 10s.
	LeasePeriod time.Duration
	Version     string // of the agents
	Log         *slog.Logger
	AgentLog    *slog.Logger // of the agents; nil discards their logs
	// Metrics returns the metrics of a node's agent; nil means that all agents
	// share unexported ones.
	Metrics func(node string) *agent.Metrics
}

// Fleet is a running fleet. Its methods are safe for concurrent use.
type Fleet struct {
	o       Options
	api     *api
	dir     string
	ownsDir bool // Stop removes dir
	ctx     context.Context
	cancel  context.CancelFunc
	tasks   sync.WaitGroup // running in the background

	// Shared by all agents, because thousands of copies would be large.
	protected payload.Protection

	mu      sync.Mutex
	next    int
	nodes   map[string]*node
	created map[string]bool // all nodes ever created
	stopped bool
}

// Start registers the nodes, starts their agents, and returns when each agent
// has reported its status. If it fails, it removes what it created, and the
// error says what to do. The fleet runs until ctx ends or Stop is called.
func Start(ctx context.Context, o Options) (_ *Fleet, err error) {
	defer must.Catch(&err)

	for _, f := range o.Faults {
		must.About("fault "+string(f.Kind), func() { must.OK(f.check()) })
	}

	o = o.withDefaults()
	f := &Fleet{o: o, protected: payload.DefaultProtection(), nodes: map[string]*node{}, created: map[string]bool{}}
	must.About("connect to the API server", func() { f.api = must.Get(newAPI(o.Config)) })
	must.OK(f.api.checkAccess(ctx, o.Prefix+"0"))
	must.About("make the directory of the agents' state", func() { f.dir, f.ownsDir = must.Get2(stateDir(o.Dir, o.Nodes)) })
	f.ctx, f.cancel = context.WithCancel(ctx)
	if _, err := f.Add(ctx, o.Nodes); err != nil {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		return nil, errors.Join(err, f.Stop(), f.Cleanup(cleanup))
	}

	return f, nil
}

func (o Options) withDefaults() Options {
	discard := slog.New(slog.DiscardHandler)
	o.Prefix, o.Version = cmp.Or(o.Prefix, "hollow-"), cmp.Or(o.Version, "hollow")
	o.Log, o.AgentLog = cmp.Or(o.Log, discard), cmp.Or(o.AgentLog, discard)
	if o.Metrics == nil {
		shared := agent.NewMetrics("", o.Version, "") // because thousands of copies would be large
		o.Metrics = func(string) *agent.Metrics { return shared }
	}

	for _, d := range []*time.Duration{&o.Limits.TrialDuration, &o.Limits.HealthTimeout, &o.Limits.ReadyTimeout} {
		*d = cmp.Or(*d, 5*time.Second)
	}

	// On machines of their own, agents decide more often. Here, thousands of
	// nodes that rest would take the processors from those that work.
	o.Limits.RestInterval = cmp.Or(o.Limits.RestInterval, time.Minute)

	return o
}

// stateDir returns the directory of a fleet's state, and whether Stop removes
// it. The temporary directory is in memory if there is enough, because a
// rehearsal does not outlive the machine.
func stateDir(dir string, nodes int) (path string, ours bool, err error) {
	if dir != "" {
		return dir, false, os.MkdirAll(dir, 0o700)
	}

	const each, memory = 256 << 10, "/dev/shm"
	parent := ""
	var fs unix.Statfs_t
	if err := unix.Statfs(memory, &fs); err == nil && fs.Bavail*uint64(fs.Bsize) > uint64(max(nodes, 100))*each {
		parent = memory
	}
	if path, err = os.MkdirTemp(parent, "evenkeel-hollow-"); err != nil && parent != "" {
		path, err = os.MkdirTemp("", "evenkeel-hollow-")
	}

	return path, true, err
}

// background runs fn, which must return when its context ends, unless the fleet
// has stopped.
func (f *Fleet) background(fn func(context.Context)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.stopped {
		f.tasks.Go(func() { fn(f.ctx) })
	}
}

// Add adds nodes, and returns their names when each agent has reported its
// status.
func (f *Fleet) Add(ctx context.Context, n int) (_ []string, err error) {
	defer must.Catch(&err)

	existing := must.Get(f.api.listNodes(ctx))
	f.mu.Lock()
	first := f.next
	f.next += n
	f.mu.Unlock()
	names := make([]string, n)
	for i := range names {
		names[i] = f.o.Prefix + strconv.Itoa(first+i)
		switch hollow, there := existing[names[i]]; {
		case there && !hollow:
			return nil, errNotHollow(names[i])
		case there && f.ownsDir: // the state of its agent is not available
			return nil, fmt.Errorf("node %s exists, possibly from another evenkeel-hollow: choose another name prefix, or delete leftover nodes "+
				"with: kubectl delete nodes -l %s=true", names[i], Label)
		}
	}

	done := 0
	begin := time.Now()
	said := begin
	err = forEachParallel(ctx, names, func(ctx context.Context, i int, name string) {
		must.OK(f.join(ctx, name, first+i))
		f.mu.Lock()
		defer f.mu.Unlock()
		if done++; time.Since(said) > 5*time.Second {
			said = time.Now()
			f.o.Log.Info("nodes are joining", "joined", done, "of", n)
		}
	})
	f.o.Log.Info("nodes have joined", "nodes", done, "took", time.Since(begin).Round(time.Millisecond))

	return names, err
}

// forEachParallel calls do for every name, maxParallel at a time, until one
// call ends at an error, with package must, and returns that.
func forEachParallel(ctx context.Context, names []string, do func(ctx context.Context, i int, name string)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	workqueue.ParallelizeUntil(ctx, maxParallel, len(names), func(i int) {
		if err := must.Try(func() { do(ctx, i, names[i]) }); err != nil {
			cancel(err)
		}
	})

	return context.Cause(ctx)
}

// join registers a node and starts its agent.
func (f *Fleet) join(ctx context.Context, name string, index int) error {
	zone := ""
	if f.o.Zones > 0 {
		zone = "zone-" + strconv.Itoa(index%f.o.Zones)
	}

	size := payload.Capacity{CPU: 4000, Memory: 16 << 30}
	if sizes := f.o.Sizes; len(sizes) > 0 {
		size = sizes[index%len(sizes)]
	}

	adopted, err := f.api.register(ctx, newNode(name, zone, size, f.o.Labels))
	if err != nil {
		return err
	}

	n := newHollowNode(f, name)
	n.kubelet.size = size
	n.heartbeat.readyKnown, n.heartbeat.ready = !adopted, !adopted
	f.mu.Lock()
	f.nodes[name], f.created[name] = n, true
	f.mu.Unlock()
	if n.setFaults(nil) {
		n.silence()
		return nil
	}

	return n.startAndWait(ctx)
}

// startAndWait starts the agent, and waits until it has reported its status, or
// has ended. An agent that cannot reach the API server reports to the fleet
// alone.
func (n *node) startAndWait(ctx context.Context) error {
	reporter, ended, err := n.start()
	if err != nil || reporter == nil {
		return err
	}

	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for n.state() == stateStarting {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ended:
			return nil
		case <-tick.C:
		}
	}

	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	reporter.Flush(ctx)

	return nil
}

func (f *Fleet) node(name string) (*node, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.nodes[name]
	if n == nil {
		return nil, fmt.Errorf("hollow node %s not found in this fleet", name)
	}

	return n, nil
}

// Remove stops the agents of nodes and deletes their Nodes and Leases.
// NodeConfigs stay, as with real nodes.
func (f *Fleet) Remove(ctx context.Context, names ...string) error {
	return forEachParallel(ctx, names, func(ctx context.Context, _ int, name string) {
		n := must.Get(f.node(name))
		n.heartbeat.stop()
		n.stop()
		f.api.deregister(ctx, name)
		f.mu.Lock()
		delete(f.nodes, name)
		f.mu.Unlock()
		must.OK(os.RemoveAll(n.dir))
	})
}

// Names returns the names of the current nodes, sorted.
func (f *Fleet) Names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.nodes))
}

// Status returns the last status that a node's agent reported, even if it is
// not written yet; false if it has not reported.
func (f *Fleet) Status(name string) (v1alpha1.NodeConfigStatus, bool) {
	n, err := f.node(name)
	if err != nil {
		return v1alpha1.NodeConfigStatus{}, false
	}

	n.mu.Lock()
	defer n.mu.Unlock()

	return n.status, n.reported
}

// States returns the number of nodes in each state: silent, ended, starting, in
// trial, or the reason of ConfigOK.
func (f *Fleet) States() map[string]int {
	f.mu.Lock()
	nodes := slices.Collect(maps.Values(f.nodes))
	f.mu.Unlock()
	states := map[string]int{}
	for _, n := range nodes {
		states[n.state()]++
	}

	return states
}

// SetFault replaces the node's own faults; the fleet's faults stay. The running
// kubelet has the fault from now on.
func (f *Fleet) SetFault(name string, fault Fault) (err error) {
	defer must.Catch(&err)

	must.About("fault "+string(fault.Kind), func() { must.OK(fault.check()) })
	n := must.Get(f.node(name))
	if fault.Kind == Silent {
		return f.Silence(name)
	}

	n.setFaults([]Fault{fault})

	return nil
}

// Silence stops a node's agent, which then neither applies configuration nor
// reports. The Node object stays unchanged.
func (f *Fleet) Silence(name string) error {
	n, err := f.node(name)
	if err != nil {
		return err
	}

	n.silence()

	return nil
}

// Stop stops all agents, and returns when they have ended. API objects stay.
func (f *Fleet) Stop() error {
	f.mu.Lock()
	f.stopped = true
	nodes := slices.Collect(maps.Values(f.nodes))
	f.mu.Unlock()
	f.cancel()
	for _, n := range nodes {
		n.heartbeat.stop()
		n.stop()
	}

	f.tasks.Wait()
	if !f.ownsDir {
		return nil
	}
	if err := os.RemoveAll(f.dir); err != nil {
		return fmt.Errorf("remove the agents' state: %w", err)
	}

	return nil
}

// Cleanup deletes the Nodes, Leases and NodeConfigs of all nodes that this
// fleet ever had. Call it after Stop.
func (f *Fleet) Cleanup(ctx context.Context) error {
	f.mu.Lock()
	names := slices.Sorted(maps.Keys(f.created))
	f.mu.Unlock()
	return forEachParallel(ctx, names, func(ctx context.Context, _ int, name string) {
		f.api.deregister(ctx, name)
		f.api.deleteNodeConfig(ctx, name)
	})
}
