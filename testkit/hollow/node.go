// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/source"
)

// node is a hollow node: a simulated kubelet and, while it runs, an agent.
type node struct {
	fleet     *Fleet
	name      string
	dir       string // of the agent's state
	kubelet   *kubelet
	heartbeat *heartbeat

	runMu  sync.Mutex // serializes start and stop
	cancel context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex
	silent   bool
	boots    int  // how often the node was rebooted
	reported bool // status is set
	status   v1alpha1.NodeConfigStatus
	agentErr error // why the agent ended without stop
}

func newHollowNode(f *Fleet, name string) *node {
	h := &heartbeat{fleet: f, name: name, period: f.o.LeasePeriod}
	return &node{fleet: f, name: name, dir: filepath.Join(f.dir, name), heartbeat: h, kubelet: &kubelet{heartbeat: h}}
}

// setFaults replaces the node's own faults, and reports whether one of its
// faults is Silent.
func (n *node) setFaults(own []Fault) (silent bool) {
	var hit []Fault
	for _, f := range append(own, n.fleet.o.Faults...) {
		if f.matchesNode(n.name) {
			hit = append(hit, f)
			silent = silent || f.Kind == Silent
		}
	}

	n.kubelet.setFaults(hit)

	return silent
}

// start starts the agent with its old state, and returns its reporter, nil if
// the agent already runs. ended is closed when the agent has ended.
func (n *node) start() (reporter *source.Reporter, ended <-chan struct{}, err error) {
	n.runMu.Lock()
	defer n.runMu.Unlock()
	if n.cancel != nil {
		return nil, nil, nil
	}

	client, err := source.NewClientFor(n.fleet.api.config, n.fleet.api.clientFor(n.name))
	if err != nil {
		return nil, nil, err
	}

	log := n.fleet.o.AgentLog.With("node", n.name)
	reporter = source.NewReporter(client, n.name, "evenkeel-agent", log)
	records := &agent.SavedConfigs{}
	intended := source.NewNodeConfigSource(client, n.name, records, log)
	intended.ShowTo(reporter)
	a := agent.New(n.options(log), agent.Parts{
		Kubelet: n.kubelet, Source: intended, Preflights: intended, Nodes: nodeView{source.NewNodeWatch(client, n.name), n.heartbeat},
		Reporter: recordingReporter{reporter, n}, SavedConfigs: records,
	})
	ctx, cancel := context.WithCancel(n.fleet.ctx)
	done := make(chan struct{})
	n.cancel, n.done = cancel, done
	n.mu.Lock()
	n.silent, n.reported, n.agentErr = false, false, nil
	n.mu.Unlock()
	go func() {
		defer close(done)
		var all sync.WaitGroup
		defer all.Wait()
		background, stop := context.WithCancel(context.WithoutCancel(ctx))
		defer stop()
		all.Go(func() { reporter.Run(background) })
		all.Go(func() { intended.Run(background) })
		if err := a.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			n.fleet.o.Log.Error("agent ended", "node", n.name, "err", err)
			n.mu.Lock()
			n.agentErr = err
			n.mu.Unlock()
		}
	}()

	return reporter, done, nil
}

// stop stops the agent and its kubelet, and returns when they have ended.
func (n *node) stop() {
	n.runMu.Lock()
	defer n.runMu.Unlock()
	if n.cancel == nil {
		return
	}

	n.cancel()
	<-n.done
	n.cancel = nil
}

// silence stops the agent, if it runs, and shows the node as silent.
func (n *node) silence() {
	n.mu.Lock()
	n.silent = true
	n.mu.Unlock()
	n.stop()
}

// syncTimeout is long because all agents ask a small API server at the same
// time.
const syncTimeout = 15 * time.Second

func (n *node) options(log *slog.Logger) agent.Options {
	o := n.fleet.o
	return agent.Options{
		Limits: o.Limits, APILoss: "off", SyncTimeout: syncTimeout, UnansweredLimit: o.UnansweredLimit, StopGrace: time.Second,
		AgentVersion: o.Version,
		Remote:       v1alpha1.RemoteConfigNodeConfig, RunMode: v1alpha1.RunModeHost, BootID: n.bootID(), Log: log, Metrics: o.Metrics(n.name),
		Init:      NoInit{},
		Protected: n.fleet.protected, StartupTaint: v1alpha1.TaintUnconfigured,
		OpenStore: func(version string) (agent.Store, error) {
			return checkpoint.Open(atomicfile.OS{}, n.dir, version, log)
		},
	}
}

// bootID changes with each reboot.
func (n *node) bootID() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return fmt.Sprintf("hollow-%d", n.boots)
}

// recordingReporter is the agent's reporter; it also stores the status in its
// node.
type recordingReporter struct {
	*source.Reporter
	node *node
}

// Report implements agent.Reporter.
func (w recordingReporter) Report(r source.Report) {
	w.node.mu.Lock()
	w.node.status, w.node.reported = r.Status, true
	w.node.mu.Unlock()
	w.Reporter.Report(r)
}

// States of a node, beside the reasons of its condition ConfigOK.
const (
	stateStarting = "starting"
	stateInTrial  = "in trial"
	stateSilent   = "silent"
	stateEnded    = "ended"
	stateUnknown  = "unknown"
)

// state returns one of the states above, or the reason of the node's condition
// ConfigOK.
func (n *node) state() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.silent:
		return stateSilent
	case n.agentErr != nil:
		return stateEnded
	case !n.reported:
		return stateStarting
	case n.status.Trial != nil:
		return stateInTrial
	}

	if c := meta.FindStatusCondition(n.status.Conditions, v1alpha1.ConditionConfigOK); c != nil {
		return c.Reason
	}

	return stateUnknown
}
