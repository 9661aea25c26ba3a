// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"context"
	"strconv"
	"time"

	"github.com/evenkeel/evenkeel/internal/node/source"
)

// nodeView is an agent's view of its Node. On a busy machine a heartbeat can
// reach the API server and the agent later than a trial allows. While the agent
// may not have seen the latest heartbeat, the API server counts as unreachable,
// and no time counts against the configuration.
type nodeView struct {
	*source.NodeWatch
	heartbeat *heartbeat
}

// Current implements agent.Nodes.
func (v nodeView) Current() source.NodeState { return v.heartbeat.correct(v.NodeWatch.Current()) }

// Snapshot implements agent.Nodes.
func (v nodeView) Snapshot(ctx context.Context) source.NodeState {
	v.heartbeat.countSnapshots(1)
	defer v.heartbeat.countSnapshots(-1)
	s := v.NodeWatch.Snapshot(ctx)
	s.LeaseRenewed = v.heartbeat.leaseRenewed()

	return s
}

// shown is what the agent has seen of a heartbeat.
type shown struct {
	up         bool   // a kubelet runs and was healthy
	kubelets   int    // how many were
	renewed    bool   // since then, it has renewed the Lease
	renewals   int    // a number for the agent, instead of the time of the renewal
	podStarted string // when the pod of the present kubelet was started
	snapshots  int    // in progress
	based      bool   // no snapshot that began before the renewal is in progress any more
	unseen     bool   // the condition Ready changes, and the agent has not seen that yet
}

// correct returns what the agent shall see of a state.
func (h *heartbeat) correct(s source.NodeState) source.NodeState {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.LeaseRenewed = h.renewal()
	if h.renewed { // each kubelet starts a pod: after its own start, also in the same second
		h.podStarted = time.Now().Add(time.Second).UTC().Format("2006-01-02T15:04:05.000000000Z")
	}
	if s.Complete {
		s.Pods = append(s.Pods, source.Pod{UID: "hollow", Namespace: "kube-system", Name: "hollow", Static: true, Started: h.podStarted})
	}
	if h.watched && h.up && h.observe(s) {
		s.Reachable, s.Cause = false, "this machine is busy: the agent of the hollow node may not have seen the latest heartbeat"
	}

	return s
}

// observe notes what the agent sees, and reports whether that may not be the
// latest heartbeat. The caller holds mu.
func (h *heartbeat) observe(s source.NodeState) bool {
	if !h.renewed || !h.based && h.snapshots > 0 {
		return true
	}

	h.based = true
	if s.Complete && s.Ready == h.desiredReady() {
		h.unseen = false
	}

	return h.unseen
}

// leaseRenewed is renewal for a snapshot.
func (h *heartbeat) leaseRenewed() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.renewal()
}

// renewal returns what the agent compares to find out whether this kubelet has
// renewed the Lease: from the renewal on, each call returns another value. An
// agent that reads the Lease only after that renewal would wait for the next
// one. The caller holds mu.
func (h *heartbeat) renewal() string {
	if h.renewed {
		h.renewals++
	}

	return strconv.Itoa(h.renewals)
}

func (h *heartbeat) countSnapshots(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.snapshots += n
}
