// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
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

	ProbeNotNeeded ProbeResult = "NotNeeded" // the node had proven the target before start probes were possible
)

// Probing is what a plan remembers about a start probe without a result.
type Probing struct {
	Since time.Time     `json:"since,omitzero"`  // when it could begin, or continue; zero: it cannot now
	Total time.Duration `json:"total,omitempty"` // of the times before
}

// probeLimit is how long a start probe may take to start the pod, and to stop it. The pass itself gives up a little earlier, and says
// more about it.
const probeLimit = 3*time.Minute + 30*time.Second

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
		!d.in.PassPauses && // an undo is an emergency
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
	case d.probesBegin() && d.proven(n):
		return ProbeNotNeeded, ""
	case known && r.Result != "":
		return r.Result, r.Message
	case d.next.Halt != nil: // it never begins
		return "", ""
	case d.stopped():
		return "", "it begins when the rollout continues"
	}
	message := "its pod is about to be created"
	if known {
		message = r.Message
	}
	if p := d.probeTime(n); !p.Since.IsZero() {
		end := d.probeEnds(n, p)
		if d.requeueAt(end); !d.in.Now.Before(end) {
			return ProbeUnknown, "given up at " + end.UTC().Format(time.RFC3339) + ": " + message
		}
	}
	return "", message
}

// probesBegin reports whether start probes are possible since this plan.
func (d *planner) probesBegin() bool {
	was := d.in.Status.Controller
	return was != nil && (was.StartProbe == nil || !*was.StartProbe)
}

// probeTime returns what is remembered about a node's start probe, as of now. Time in which the rollout is stopped or the node is under
// maintenance does not count.
func (d *planner) probeTime(n *Node) Probing {
	var p Probing
	if d.observationApplies(n) {
		p = n.Observation.Probing
	}
	switch rests := d.stopped() || n.Maintenance != ""; {
	case rests && !p.Since.IsZero():
		left := d.probeEnds(n, p).Sub(d.in.Now)
		return Probing{Total: max(p.Total, d.probeLength(n)-left)}
	case !rests && p.Since.IsZero() && (d.probeCanRun(n) || d.proven(n)):
		p.Since = d.in.Now.Truncate(time.Second)
	}
	return p
}

// probeEnds returns when a start probe is given up. Outages do not count.
func (d *planner) probeEnds(n *Node, p Probing) time.Time {
	return d.ends(p.Since, d.probeLength(n)-p.Total)
}

// probeLength returns how long a node's start probe may take.
func (d *planner) probeLength(n *Node) time.Duration {
	if r := n.ProbeReport; r != nil && r.Key == d.in.ProbeKey(n) && r.Stopping {
		return 2 * probeLimit
	}
	return probeLimit
}

// afterProbe is the state of a node without a failure, with what its start probe says.
func (d *planner) afterProbe(n *Node, s NodeState) NodeState {
	result, message := d.probed(n)
	switch {
	case result == ProbeUnknown && (s.State == Updated || s.State == Soaking):
		s.Message = join(s.Message, "no result of its start probe: "+message)
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
	p := Probing{}
	if result == "" && d.hasProbe(n) {
		p = d.probeTime(n)
	}
	if result == "" && p == want.Probing || d.returning(n) || !want.Blocked.IsZero() {
		return want
	}
	if want.Rollout != d.in.Name || want.Revision != n.Source.By().Revision || want.Attempt != n.Source.By().Attempt {
		want = d.newObservation(n)
	}
	want.Probing = p
	want.Probe, want.ProbeMessage = result, printable.Cut(message, maxBlockedMessage)
	if result == ProbePassed {
		want.ProbeMessage = ""
	}
	if result == ProbeUnknown && n.Observation.Probe != result {
		d.probes.ended = append(d.probes.ended, n.Name)
		d.probes.endedWhy = cmp.Or(d.probes.endedWhy, message)
	}
	return want
}

// startProbes asks for passes over the start probes that have no result, and counts those that ended without one.
func (d *planner) startProbes() {
	switch names := d.probes.ended; len(names) {
	case 0:
	case 1:
		d.event(true, "StartProbeInconclusive", "the start probe of node %s has no result: %s", names[0], d.probes.endedWhy)
	default:
		d.event(true, "StartProbeInconclusive", "the start probes of %d nodes have no result: %s; %s: %s", len(names), JoinNames(names),
			names[0], d.probes.endedWhy)
	}
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
	pass     []int    // nodes over whose probes a pass is due
	unknown  int      // nodes whose probe has no result
	why      string   // of the first of these
	ended    []string // withProbe: those since this plan
	endedWhy string   // of the first of these
}

// note says of how many nodes the start probe has no result; empty: of none.
func (p *startProbing) note() string {
	if p.unknown == 0 {
		return ""
	}
	return fmt.Sprintf("; no result of the start probe of %s: %s", printable.Count(p.unknown, "node"), p.why)
}
