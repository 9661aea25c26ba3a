// Package hollow runs many nodes in one process, against any API server: the agents are the real ones, with a simulated
// kubelet below each. It is to rehearse rollouts with.
//
// It must not know rollouts or the controller, nor decide anything that an agent decides. A Node that it has not made
// itself is not touched.
package rehearsal

import (
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

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// Options say what a fleet is like.
type Options struct {
	// Config is of a user who may create, patch and delete Nodes and the Leases of kube-node-lease, delete NodeConfigs, and
	// impersonate nodes.
	Config *rest.Config
	Nodes  int    // how many there are at first
	Prefix string // of their names; empty: "hollow-"
	Zones  int    // zone-0, zone-1, ...; 0: the nodes have no zone
	Labels map[string]string
	Faults []Fault
	// Dir is where the agents keep their state; one that is kept lets them go on. Empty: a temporary one, removed by Stop.
	Dir string
	// Limits are those of the agents. What is zero in them has a short default, but for the crash loop threshold.
	Limits trial.Limits
	// LeasePeriod is how often Leases are renewed; 0: at each start of a kubelet, and every 10s during a trial. A cluster
	// that has a controller-manager needs 10s.
	LeasePeriod time.Duration
	// ClockSkew is how far the nodes' clocks are off: every other node's is so much ahead, the others are behind. It shows in
	// all times that they report, but for those that a kubelet and its agent compare with each other.
	ClockSkew time.Duration
	Version   string // of the agents
	Log       *slog.Logger
	AgentLog  *slog.Logger // of the agents; nil: discarded
	// Metrics returns those of a node's agent; nil: all agents have the same ones, and nobody looks at them.
	Metrics func(node string) *agent.Metrics
}

// Fleet is a running fleet. Its methods may be called concurrently.
type Fleet struct {
	o       Options
	api     *api
	dir     string
	ownsDir bool // dir is
	ctx     context.Context
	cancel  context.CancelFunc
	tasks   sync.WaitGroup // of what is done in the background

	// Of all agents: thousands of it would be large.
	protected payload.Protection

	mu      sync.Mutex
	next    int
	nodes   map[string]*node
	created map[string]bool // all that there ever were
	stopped bool
}

// Start registers the nodes and starts their agents, and returns when each agent has said how it is. The error says what
// to do; nothing is left behind then. The fleet ends with ctx, or by Stop.
func Start(ctx context.Context, o Options) (*Fleet, error) {
	if o.Config == nil || o.Nodes < 0 || o.Zones < 0 {
		return nil, errors.New("a fleet needs the configuration of an API server, and numbers of nodes and zones that are not negative")
	}
	for _, f := range o.Faults {
		if err := f.check(); err != nil {
			return nil, fmt.Errorf("fault %s: %w", f.Kind, err)
		}
	}
	o = o.withDefaults()
	f := &Fleet{o: o, protected: payload.DefaultProtection(), nodes: map[string]*node{}, created: map[string]bool{}}
	var err error
	if f.api, err = newAPI(o.Config); err != nil {
		return nil, err
	}
	if err := f.api.checkAccess(ctx, o.Prefix+"0"); err != nil {
		return nil, err
	}
	if f.dir, f.ownsDir, err = stateDir(o.Dir, o.Nodes); err != nil {
		return nil, err
	}
	f.ctx, f.cancel = context.WithCancel(ctx)
	if _, err := f.Add(ctx, o.Nodes); err != nil {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		return nil, errors.Join(err, f.Stop(), f.Cleanup(cleanup))
	}
	return f, nil
}

func (o Options) withDefaults() Options {
	if o.Prefix == "" {
		o.Prefix = "hollow-"
	}
	if o.Version == "" {
		o.Version = "hollow"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.AgentLog == nil {
		o.AgentLog = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		shared := agent.NewMetrics("", o.Version, "") // thousands of them would be large
		o.Metrics = func(string) *agent.Metrics { return shared }
	}
	for _, d := range []*time.Duration{&o.Limits.TrialDuration, &o.Limits.HealthTimeout, &o.Limits.ReadyTimeout} {
		if *d == 0 {
			*d = 5 * time.Second
		}
	}
	return o
}

// stateDir is the directory of a fleet's state, and whether it is to be removed. Memory serves well where there is some: a
// rehearsal outlives no machine.
func stateDir(dir string, nodes int) (path string, ours bool, err error) {
	if dir != "" {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", false, fmt.Errorf("make the directory of the agents' state: %w", err)
		}
		return dir, false, nil
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
	if err != nil {
		return "", false, fmt.Errorf("make the directory of the agents' state: %w", err)
	}
	return path, true, nil
}

// background runs fn, which ends when its context does, unless the fleet has stopped.
func (f *Fleet) background(fn func(context.Context)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.stopped {
		f.tasks.Go(func() { fn(f.ctx) })
	}
}

// Add makes nodes join, and returns their names when each agent has said how it is.
func (f *Fleet) Add(ctx context.Context, n int) ([]string, error) {
	existing, err := f.api.listNodes(ctx)
	if err != nil {
		return nil, err
	}
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
		case there && f.ownsDir: // without the state that its agent had
			return nil, fmt.Errorf("node %s exists: another evenkeel-hollow may run it; choose another name prefix, or delete what one has left behind: kubectl delete nodes -l %s=true", names[i], Label)
		}
	}
	done := 0
	begin := time.Now()
	said := begin
	err = forEachParallel(ctx, names, func(ctx context.Context, i int, name string) error {
		if err := f.join(ctx, name, first+i); err != nil {
			return err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if done++; time.Since(said) > 5*time.Second {
			said = time.Now()
			f.o.Log.Info("nodes are joining", "joined", done, "of", n)
		}
		return nil
	})
	f.o.Log.Info("nodes have joined", "nodes", done, "took", time.Since(begin).Round(time.Millisecond))
	return names, err
}

// forEachParallel calls fn for every name, some at a time, until one fails. It returns the errors.
func forEachParallel(ctx context.Context, names []string, fn func(ctx context.Context, i int, name string) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var errs []error
	var all sync.WaitGroup
	work := make(chan int)
	for range min(maxParallel, len(names)) {
		all.Go(func() {
			for i := range work {
				if err := fn(ctx, i, names[i]); err != nil {
					mu.Lock()
					if len(errs) == 0 || !errors.Is(err, context.Canceled) {
						errs = append(errs, err)
					}
					mu.Unlock()
					cancel()
				}
			}
		})
	}
	for i := range names {
		select {
		case work <- i:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(work)
	all.Wait()
	if len(errs) == 0 && ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(errs...)
}

// join registers a node and starts its agent.
func (f *Fleet) join(ctx context.Context, name string, index int) error {
	zone := ""
	if f.o.Zones > 0 {
		zone = "zone-" + strconv.Itoa(index%f.o.Zones)
	}
	adopted, err := f.api.register(ctx, newNode(name, zone, f.o.Labels))
	if err != nil {
		return err
	}
	n := newHollowNode(f, name)
	n.heartbeat.readyKnown, n.heartbeat.ready = !adopted, !adopted
	f.mu.Lock()
	f.nodes[name], f.created[name] = n, true
	f.mu.Unlock()
	if n.setFaults(nil) {
		n.mu.Lock()
		n.silent = true
		n.mu.Unlock()
		return nil
	}
	return n.startAndWait(ctx)
}

// startWait is how long an agent is waited for at most: those after it wait for their turn.
const startWait = 10 * time.Second

// startAndWait starts the agent, and waits until it has said how it is.
func (n *node) startAndWait(ctx context.Context) error {
	reporter, err := n.start()
	if err != nil || reporter == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for n.state() == stateStarting {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
	reporter.Flush(ctx)
	return nil
}

func (f *Fleet) node(name string) (*node, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.nodes[name]
	if n == nil {
		return nil, fmt.Errorf("there is no hollow node %s in this fleet", name)
	}
	return n, nil
}

// Remove makes nodes leave: their agents end, and their Nodes and Leases are deleted. NodeConfigs stay, as they do when a
// real node leaves.
func (f *Fleet) Remove(ctx context.Context, names ...string) error {
	return forEachParallel(ctx, names, func(ctx context.Context, _ int, name string) error {
		n, err := f.node(name)
		if err != nil {
			return err
		}
		n.heartbeat.stop()
		n.stop()
		if err := f.api.deregister(ctx, name); err != nil {
			return err
		}
		f.mu.Lock()
		delete(f.nodes, name)
		f.mu.Unlock()
		return n.remove()
	})
}

// Names are those of the nodes that there are, sorted.
func (f *Fleet) Names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.nodes))
}

// Status is what a node's agent reported last, whether or not that is written; false if it has not reported yet.
func (f *Fleet) Status(name string) (v1alpha1.NodeConfigStatus, bool) {
	n, err := f.node(name)
	if err != nil {
		return v1alpha1.NodeConfigStatus{}, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.status, n.reported
}

// States counts the nodes by how they are: silent, ended, starting, in trial, or the reason of ConfigOK.
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

// SetFault gives a node a fault instead of those it was given before, besides those of the fleet. What runs behaves so from
// now on.
func (f *Fleet) SetFault(name string, fault Fault) error {
	if err := fault.check(); err != nil {
		return fmt.Errorf("fault %s: %w", fault.Kind, err)
	}
	n, err := f.node(name)
	if err != nil {
		return err
	}
	if fault.Kind == Silent {
		return f.Silence(name)
	}
	n.setFaults([]Fault{fault})
	return nil
}

// ClearFault takes back what SetFault gave a node.
func (f *Fleet) ClearFault(name string) error {
	n, err := f.node(name)
	if err != nil {
		return err
	}
	n.setFaults(nil)
	return nil
}

// SetReady keeps a Node from being Ready, or does so no more. It is written soon.
func (f *Fleet) SetReady(name string, ready bool) error {
	n, err := f.node(name)
	if err != nil {
		return err
	}
	n.heartbeat.holdNotReady(!ready)
	return nil
}

// Silence ends a node's agent. Its Node stays as it is, so that it takes nothing up and says nothing.
func (f *Fleet) Silence(name string) error {
	n, err := f.node(name)
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.silent = true
	n.mu.Unlock()
	n.stop()
	return nil
}

// Unsilence starts a node's agent again, with the state that it has, and returns when it has said how it is.
func (f *Fleet) Unsilence(ctx context.Context, name string) error {
	n, err := f.node(name)
	if err != nil {
		return err
	}
	return n.startAndWait(ctx)
}

// Stop ends all agents, and returns when they have ended. What is in the API stays.
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

// Cleanup deletes the Nodes, Leases and NodeConfigs of all nodes that this fleet ever had. Call it after Stop.
func (f *Fleet) Cleanup(ctx context.Context) error {
	f.mu.Lock()
	names := slices.Sorted(maps.Keys(f.created))
	f.mu.Unlock()
	return forEachParallel(ctx, names, func(ctx context.Context, _ int, name string) error {
		if err := f.api.deregister(ctx, name); err != nil {
			return err
		}
		return f.api.deleteNodeConfig(ctx, name)
	})
}
