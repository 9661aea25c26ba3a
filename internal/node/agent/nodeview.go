// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/podguard"
	"github.com/evenkeel/evenkeel/internal/node/source"
)

// node is what is known about the Node and its pods.
type node struct {
	view     view
	counts   *podCounts // when the pods were counted last; nil: never
	recount  time.Time  // when to count them again
	watching bool
}

// view is the last known state of the node: from the watch or, while it does
// not watch or has not seen everything, from a single request.
type view struct {
	mu   sync.Mutex
	once source.NodeState
	at   time.Time // of that request
}

// snapshotLifetime is how long the result of a single request is used. A trial
// that begins later, because a kubelet exited, must not fail because of what
// happened to pods in between.
const snapshotLifetime = 2 * time.Minute

func (v *view) set(s source.NodeState) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.once, v.at = s, time.Now()
}

func (v *view) now(nodes Nodes) source.NodeState {
	s := nodes.Current()
	if s.Complete || s.Cause != "" {
		return s
	}

	v.mu.Lock()
	defer v.mu.Unlock()
	if time.Since(v.at) > snapshotLifetime {
		return source.NodeState{Cause: "the last count is too old"}
	}

	return v.once
}

// countTimeout limits how long an unresponsive API delays a verdict, if the
// sync timeout is shorter.
const countTimeout = 2 * time.Second

// countPods requests the state of the node while a configuration is validated,
// for the guards and the baseline of a trial.
func (a *Agent) countPods(ctx context.Context) *task[source.NodeState] {
	if a.p.Nodes == nil {
		return finished(source.NodeState{})
	}

	a.node.view.set(source.NodeState{Cause: "the count is in progress"}) // an old state must not be used

	return a.readNode(ctx)
}

// readNode requests the state of the node beside the loop.
func (a *Agent) readNode(ctx context.Context) *task[source.NodeState] {
	return begin(ctx, a.quiet, func(ctx context.Context) source.NodeState {
		ctx, cancel := context.WithTimeout(ctx, max(a.o.SyncTimeout, countTimeout))
		defer cancel()
		s := a.p.Nodes.Snapshot(ctx)
		a.node.view.set(s)

		return s
	})
}

// leaseGrace is the time after which the Lease is taken as the base, if the API
// was not reachable at the start.
const leaseGrace = 5 * time.Second

// leaseObserver remembers the renew time of the node's Lease at the start of a
// kubelet. A different time later means that this kubelet renewed the Lease;
// clocks are not compared.
type leaseObserver struct {
	since     time.Time // of the start
	rewatched bool      // the watch was restarted because of an overdue Lease

	mu   sync.Mutex
	seen bool
	time string
}

// readBase must run after the old kubelet's last renewal and before the new
// one's first. It returns the state that it has read.
func (l *leaseObserver) readBase(ctx context.Context, nodes Nodes) source.NodeState {
	s := nodes.Snapshot(ctx)
	if s.Reachable {
		l.set(s.LeaseRenewed)
	}

	return s
}

func (l *leaseObserver) set(renewed string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.seen {
		l.seen, l.time = true, renewed
	}
}

// overdue reports, once, that the Lease is overdue. It may have been renewed
// before its base was read, so that only the next renewal counts.
func (l *leaseObserver) overdue() bool {
	if l.rewatched || time.Since(l.since) <= leaseGrace {
		return false
	}

	l.rewatched = true

	return true
}

// update takes the Lease as it is, if it could not be read at the start.
func (l *leaseObserver) update(s source.NodeState) {
	if s.Reachable && time.Since(l.since) > leaseGrace {
		l.set(s.LeaseRenewed)
	}
}

// renewed reports whether the Lease was renewed since the start.
func (l *leaseObserver) renewed(s source.NodeState) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen && s.Reachable && s.LeaseRenewed != l.time
}

// podCounts are numbers of active pods for the status.
type podCounts struct {
	workload             int64 // neither static nor of a DaemonSet
	probed, probedStatic int64 // Ready and with a readiness or startup probe: all, and the static ones
}

// probeTime is how long after a start of the kubelet pods can be unready
// because of it, if their probes have usual periods. Until then the number of
// Ready pods with probes does not decrease.
const probeTime = 2 * time.Minute

func countPodsForStatus(pods []source.Pod) *podCounts {
	c := &podCounts{}
	for _, p := range pods {
		if !isActive(p) {
			continue
		}
		if !p.Static && p.OwnerKind != "DaemonSet" {
			c.workload++
		}

		if p.Probed && p.Ready && !p.Deleting {
			c.probed++
			if p.Static {
				c.probedStatic++
			}
		}
	}

	return c
}

// unreadyOnRestart returns the number of pods that a start of the kubelet makes
// unready until their next probe.
func (c *podCounts) unreadyOnRestart(config component.Effective, minor int) int64 {
	if podguard.ResetsReadiness(config, minor) {
		return c.probed
	}

	return c.probedStatic
}

// recountInterval is the time between two counts of pods while nothing else
// counts them.
const recountInterval = time.Hour

// recountPods counts the pods from time to time where a restart makes more pods
// unready than the static ones: on an idle node the last count may be from the
// start of the machine, when no pods ran.
func (a *Agent) recountPods(ctx context.Context) {
	if a.p.Nodes == nil || time.Now().Before(a.node.recount) {
		return
	}

	first := a.node.recount.IsZero()
	a.node.recount = time.Now().Add(wait.Jitter(recountInterval, 0.2))
	if first || a.node.watching || a.kubelet.process == nil || !podguard.ResetsReadiness(a.kubelet.verdict.Effective, a.nextMinor(ctx)) {
		return
	}

	a.readNode(ctx)
}
