// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// ProbeResult is the result of a start probe.
type ProbeResult string

// The results of a start probe. Empty: there is none yet.
const (
	ProbePassed  ProbeResult = "Passed"  // the pod became Ready, and stopped
	ProbeFailed  ProbeResult = "Failed"  // the kubelet or the runtime cannot start or stop the pod
	ProbeUnknown ProbeResult = "Unknown" // something else than the configuration prevents a result

	ProbeNotNeeded ProbeResult = "NotNeeded" // the node had proven the target before start probes were possible
)

// ProbeReport is the result of a pass over a node's start probe.
type ProbeReport struct {
	Key      string    // Policy.ProbeKey of the assignment
	Began    time.Time // when the probe began to start the pod, or to stop it
	Stopping bool      // the pod was Ready, and was deleted
	Result   ProbeResult
	Message  string // what the probe waits for, or why it has this result
}

const (
	probeInterval = 2 * time.Second // between two plans while start probes have no result
	maxProbes     = 50              // of a rollout at a time
)

// ProbeKey identifies the assignment of a node that a start probe is about.
func (in *Input) ProbeKey(n *Node) string {
	return fmt.Sprintf("%s/%d/%d", in.UID, n.Source.By().Revision, n.Source.By().Attempt)
}

// hasProbe reports whether a node must pass a start probe before it counts as
// updated.
func (d *planner) hasProbe(n *Node) bool {
	strategy := &d.in.Spec.Strategy
	return isTrue(d.in.Controller.StartProbe) && strategy.StartProbe != v1alpha1.StartProbeNever && !d.succeeded && d.assignedTarget(n) &&
		!d.in.PassPauses && // an undo is an emergency
		(strategy.StartProbe == v1alpha1.StartProbeAll || d.inFirstStep())
}

func isTrue(b *bool) bool { return b != nil && *b }

// inFirstStep reports whether no step with nodes is done.
func (d *planner) inFirstStep() bool {
	for _, s := range d.in.Spec.Strategy.Steps[:min(d.Next.Step, d.lastStep())] {
		if s.Nodes != nil {
			return false
		}
	}

	return true
}

// probed returns the result of a node's start probe, and why it has this
// result; without a result, what the probe waits for.
func (d *planner) probed(n *Node) (ProbeResult, string) {
	o, r, before := &n.Observation, n.ProbeReport, d.in.Status.Controller
	known := r != nil && r.Key == d.in.ProbeKey(n)
	switch {
	case o.Probe != "" && d.assignedTarget(n) && d.observationApplies(n):
		return o.Probe, o.ProbeMessage
	case !d.hasProbe(n):
		return "", ""
	case before != nil && !isTrue(before.StartProbe) && d.proven(n): // probes are possible since this plan
		return ProbeNotNeeded, ""
	case known && r.Result != "":
		return r.Result, r.Message
	case d.Next.Halt != nil: // it never begins
		return "", ""
	case d.stopped():
		return "", "it begins when the rollout continues"
	case known:
		return "", r.Message
	}

	return "", "its pod is about to be created"
}

// afterProbe is the state of a node without a failure, with what its start
// probe says: result and message are those of probed.
func (d *planner) afterProbe(n *Node, s NodeState, result ProbeResult, message string) NodeState {
	switch {
	case result == ProbeUnknown && (s.State == Updated || s.State == Soaking):
		s.Message = strings.TrimPrefix(s.Message+"; no result of its start probe: "+message, "; ")
	case result != "" || message == "":
	case s.State == Updated:
		return NodeState{State: Soaking, Message: "waits for its start probe: " + message}
	case s.State == Soaking || d.probeCanRun(n):
		s.Message = strings.TrimPrefix(s.Message+"; waits for its start probe: "+message, "; ")
	}

	return s
}

// probeCanRun reports whether a node's kubelet runs the target healthily, so
// that a pod that is created now shows what it can do.
func (d *planner) probeCanRun(n *Node) bool {
	inTrial := n.InTrial && n.TrialHealthy && n.Observed == n.Generation && d.runsTarget(n)
	return n.Ready && n.OK != "False" && (inTrial || d.proven(n)) && n.Drain.Rollout == ""
}

// withProbe adds the result of a node's start probe to the node's next
// observation.
func (d *planner) withProbe(n *Node, want Observation) Observation {
	result, message := d.probed(n)
	if result == "" || d.returning(n) || !want.Blocked.IsZero() {
		return want
	}
	if fresh := d.newObservation(n); want.Rollout != fresh.Rollout || want.Revision != fresh.Revision || want.Attempt != fresh.Attempt {
		want = fresh
	}

	want.Probe, want.ProbeMessage = result, printable.Cut(message, maxBlockedMessage)

	return want
}

// startProbes asks for passes over the start probes that have no result yet,
// and counts those that ended without one.
func (d *planner) startProbes() {
	var begins []int
	for i := range d.nodes {
		n := &d.nodes[i]
		result, message := d.probed(n)
		if result == ProbeUnknown {
			d.probes.add(n.Name + ": " + message)
		}

		r, wanted := n.ProbeReport, result == "" && d.hasProbe(n) && !d.stopped()
		current := r != nil && r.Key == d.in.ProbeKey(n)
		switch due := wanted && d.probeCanRun(n) && !d.moved[i]; {
		case due && current:
			d.Probe = append(d.Probe, i)
		case d.Next.Halt != nil: // the agents still look at the pods
		case r != nil && r.Result == "" && strings.HasPrefix(r.Key, string(d.in.UID)+"/") && !(current && wanted):
			d.DropProbe = append(d.DropProbe, i)
		case due:
			begins = append(begins, i)
		}
	}

	d.Probe = append(d.Probe, begins[:min(len(begins), max(0, maxProbes-len(d.Probe)))]...)
	if len(d.Probe)+len(d.DropProbe) > 0 {
		d.requeueAt(d.in.Now.Add(probeInterval))
	}
}
