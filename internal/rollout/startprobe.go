// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
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
)

// ProbeReport is the result of a pass over a node's start probe.
type ProbeReport struct {
	Key      string // Policy.ProbeKey of the assignment
	Stopping bool   // the pod was Ready, and was deleted
	Result   ProbeResult
	Message  string // what the probe waits for, or why it has this result
}

// probeInterval is the time between two passes over a start probe.
const probeInterval = 2 * time.Second

// ProbeKey identifies the assignment of a node that a start probe is about.
func (in *Input) ProbeKey(n *Node) string {
	return fmt.Sprintf("%s/%d/%d", in.UID, n.Source.By().Revision, n.Source.By().Attempt)
}

// hasProbe reports whether a node must pass a start probe before it counts as updated.
func (d *planner) hasProbe(n *Node) bool {
	on, strategy := d.in.Controller.StartProbe, &d.in.Spec.Strategy
	return on != nil && *on && strategy.StartProbe != v1alpha1.StartProbeNever && !d.succeeded && d.assignedTarget(n) &&
		(strategy.StartProbe == v1alpha1.StartProbeAll || d.inFirstStep())
}

// inFirstStep reports whether no step with nodes is done.
func (d *planner) inFirstStep() bool {
	for _, s := range d.in.Spec.Strategy.Steps[:min(d.next.Step, d.lastStep())] {
		if s.Nodes != nil {
			return false
		}
	}
	return true
}

// probed returns the result of a node's start probe, and why it has this result; without a result, what the probe waits for.
func (d *planner) probed(n *Node) (ProbeResult, string) {
	o, r := &n.Observation, n.ProbeReport
	known := r != nil && r.Key == d.in.ProbeKey(n)
	switch {
	case d.assignedTarget(n) && d.observationApplies(n) && o.Probe != "":
		return o.Probe, o.ProbeMessage
	case !d.hasProbe(n):
		return "", ""
	case known && r.Result != "":
		return r.Result, r.Message
	case d.stopped():
		return "", "it begins when the rollout continues"
	}
	message := "its pod is about to be created"
	if known {
		message = r.Message
	}
	if end, over, _ := d.timeout(n, seconds(d.in.Spec.NodeTimeoutSeconds)+d.trialOf(n)); over {
		return ProbeUnknown, "no result by " + end.UTC().Format(time.RFC3339) + ": " + message
	}
	return "", message
}

// trialOf returns how long the trial of the target takes on a node.
func (d *planner) trialOf(n *Node) time.Duration {
	return max(n.TrialLength, n.DefaultTrial, d.in.Trial)
}

// afterProbe is the state of a node without a failure, with what its start probe says.
func (d *planner) afterProbe(n *Node, s NodeState) NodeState {
	result, message := d.probed(n)
	switch {
	case result == ProbeUnknown && (s.State == Updated || s.State == Soaking):
		s.Message = join(s.Message, "without a start probe: "+message)
	case result != "" || message == "":
	case s.State == Updated:
		return NodeState{State: Soaking, Message: "waits for its start probe: " + message}
	case s.State == Soaking || d.probeCanRun(n):
		s.Message = join(s.Message, "waits for its start probe: "+message)
	}
	return s
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

// probeCanRun reports whether a node's kubelet runs the target healthily, so that a pod that is created now shows what it can do.
func (d *planner) probeCanRun(n *Node) bool {
	return n.Ready && n.OK != "False" && n.Observed == n.Generation && n.Active.Digest() == d.in.Target.ConfigMapRef.SHA256 &&
		(n.InTrial && n.TrialHealthy || d.proven(n)) && n.Drain.Rollout == ""
}

// withProbe adds the result of a node's start probe to the node's next observation.
func (d *planner) withProbe(n *Node, want Observation) Observation {
	result, message := d.probed(n)
	if result == "" || d.returning(n) || !want.Blocked.IsZero() {
		return want
	}
	if want.Rollout != d.in.Name || want.Revision != n.Source.By().Revision || want.Attempt != n.Source.By().Attempt {
		want = Observation{Rollout: d.in.Name, Revision: n.Source.By().Revision, Attempt: n.Source.By().Attempt, Joined: n.joined()}
	}
	want.Probe, want.ProbeMessage = result, printable.Cut(message, maxBlockedMessage)
	if result == ProbePassed {
		want.ProbeMessage = ""
	}
	if result == ProbeUnknown && n.Observation.Probe != result {
		d.event(true, "StartProbeInconclusive", "node %s is updated without a start probe: %s", n.Name, message)
	}
	return want
}

// startProbes asks for passes over the start probes that have no result, and counts nodes that were updated without one.
func (d *planner) startProbes() {
	for i := range d.nodes {
		n := &d.nodes[i]
		result, message := d.probed(n)
		if result == ProbeUnknown {
			if d.probes.unknown++; d.probes.unknown == 1 {
				d.probes.why = n.Name + ": " + message
			}
		}
		if result == "" && d.hasProbe(n) && !d.stopped() && d.probeCanRun(n) && !d.moved[i] {
			d.probes.pass = append(d.probes.pass, i)
			d.requeueAt(d.in.Now.Add(probeInterval))
		}
	}
}

// startProbing is what happens to start probes.
type startProbing struct {
	pass    []int  // nodes over whose probes a pass is due
	unknown int    // nodes that were updated without one
	why     string // of the first of these
}

// note says which nodes were updated without a start probe; empty: none.
func (p *startProbing) note() string {
	if p.unknown == 0 {
		return ""
	}
	return fmt.Sprintf("; %s updated without a start probe: %s", printable.Count(p.unknown, "node"), p.why)
}
