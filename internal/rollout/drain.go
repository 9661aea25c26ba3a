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

// Drain is what a Node itself records about a drain: the taint that keeps new
// pods away, and its value. Zero: there is none.
type Drain struct {
	Rollout           string // Policy.ID of the rollout that drains the node
	Revision, Attempt int64
	Since             time.Time
	HandedOver        bool // the leader that ran on this node has handed over for it
}

// DrainReport is the result of an eviction pass over a node.
type DrainReport struct {
	Time    time.Time
	Left    int      // pods that have still to go
	Pods    []string // the first few of them, as namespace/name
	Ignored []string // the first few pods that are left alone because of their labels
	Refused string   // why the node cannot be drained, with the name of the pod; empty: it can
	Waiting string   // why pods are still there: the answer of the API server; empty: they are ending
}

// Taint is the record of a drain that a Node is to have. Zero: its record is to
// be removed.
type Taint struct {
	Node  int // index into the nodes of the plan
	Drain Drain
}

// Reasons for which a drain is given up. The node is Blocked.
const (
	drainTimedOut    = "DrainTimeout"     // it took too long
	drainRefused     = "DrainRefused"     // a pod must not be evicted
	drainIgnoredPods = "DrainIgnoredPods" // the node must be empty, and a pod is left alone because of its labels
	windowClosed     = "WindowClosed"     // the trial cannot end within the windows any more
)

// evictionInterval is the time between two eviction passes over a node.
const evictionInterval = 5 * time.Second

// Drains reports whether a rollout drains nodes.
func Drains(s *v1alpha1.NodeConfigRolloutSpec) bool {
	return s.Strategy.Drain == v1alpha1.DrainWhenBlocked || s.Strategy.Drain == v1alpha1.DrainAlways
}

func (d *planner) drainsNodes() bool { return Drains(&d.in.Spec) }

// drainingFor reports whether a node carries the record of a drain for the
// current attempt of the target. A record in the future, or from before the
// Node was created, is not the controller's.
func (d *planner) drainingFor(n *Node) bool {
	r := n.Drain
	return r.Rollout != "" && r.Rollout == d.in.DrainID && r.Revision == d.in.Target.Number && r.Attempt == d.Next.Attempt &&
		!r.Since.After(d.in.Now) && !r.Since.Before(n.Created)
}

// isDraining reports whether a node that does not run the target is being
// drained for it.
func (d *planner) isDraining(n *Node) bool {
	givenUp := d.wasBlocked(n) && !n.Observation.Blocked.Before(n.Drain.Since)
	return d.drainsNodes() && d.drainingFor(n) && !givenUp && !d.stopped() && (n.refuses() || d.toAssign(n))
}

// toAssign reports whether a node that is being drained has yet to be assigned
// the target, for the first time or again.
func (d *planner) toAssign(n *Node) bool {
	return !d.hasTarget(n) || !n.refuses() && !d.proven(n) && n.Source.By().Attempt < d.Next.Attempt
}

// draining derives the state of a node that is being drained.
func (d *planner) draining(n *Node) NodeState {
	d.requeueAt(d.drainEnds(n))
	return NodeState{State: Draining, Message: "being drained since " + n.Drain.Since.UTC().Format(time.RFC3339) + ": " + drainWaits(n)}
}

// drainWaits says what a drain waits for.
func drainWaits(n *Node) string {
	switch r := n.DrainReport; {
	case r == nil:
		return "its pods are about to be evicted"
	case r.Refused != "":
		return r.Refused
	case r.Left == 0 && n.refuses():
		return "its pods are gone, and its agent has not adopted the revision yet: " + n.Error
	case r.Left == 0 && r.Waiting != "":
		return r.Waiting
	case r.Left == 0:
		return "its pods are gone"
	case r.Waiting != "":
		return fmt.Sprintf("%s to evict (%s): %s", printable.Count(r.Left, "pod"), strings.Join(r.Pods, ", "), r.Waiting)
	default:
		return fmt.Sprintf("%s to end: %s", printable.Count(r.Left, "pod"), strings.Join(r.Pods, ", "))
	}
}

// drained reports whether a node's pods are gone, as far as an eviction pass
// since the drain began has seen.
func (n *Node) drained() bool {
	r := n.DrainReport
	return r != nil && !r.Time.Before(n.Drain.Since) && r.Left == 0 && r.Refused == "" && r.Waiting == ""
}

// canGiveUp reports whether the target can be taken back from a node. Otherwise
// a drain that is given up would begin again at once.
func (d *planner) canGiveUp(n *Node) bool {
	return !d.hasTarget(n) || d.previousSource(n).Content().SHA256 != d.in.Target.ConfigMapRef.SHA256
}

// beginDrain records that a node is to be drained.
func (d *planner) beginDrain(i int) {
	d.Taints = append(d.Taints, Taint{i,
		Drain{Rollout: d.in.DrainID, Revision: d.in.Target.Number, Attempt: d.Next.Attempt, Since: d.in.Now}})
	d.drains.begun = append(d.drains.begun, d.nodes[i].Name)
	d.planeBegins(i)
}

// drainRefusing begins to drain nodes that refuse the target because of their
// pods. They keep their places in the step.
func (d *planner) drainRefusing() {
	if !d.drainsNodes() || d.stopped() || d.gates.held || d.closed() {
		return
	}

	for i := range d.nodes {
		n := &d.nodes[i]
		if d.hasTarget(n) && d.States[i] == Blocked && n.Drain.Rollout == "" && !d.moved[i] && d.canGiveUp(n) {
			d.beginDrain(i)
			d.refusing--
		}
	}
}

// drain continues drains, and ends those that are done, or for which there is
// no reason any more.
func (d *planner) drain() {
	for i := range d.nodes {
		n, s := &d.nodes[i], d.States[i]
		begun := d.drainingFor(n)
		switch {
		case s == Draining && !d.stopped():
			if reason, message := d.drainFails(i); reason != "" {
				d.giveUp(i, reason, message)
				continue
			}

			d.continueDrain(i)
		case n.Drain.Rollout == d.in.DrainID && n.Drain.Rollout != "" && !(begun && d.holdsTaint(n, s)):
			d.Taints = append(d.Taints, Taint{Node: i})
		}
	}

	if len(d.drains.done) > 0 {
		d.Events = append(d.Events, d.in.NodesAssigned(d.Next.Step, d.drains.done))
	}

	if names := d.drains.begun; len(names) > 0 {
		d.event(false, "DrainStarted", "%s %s being drained for revision %d: %s", printable.Count(len(names), "node"),
			printable.Verb(len(names), "is", "are"), d.in.Target.Number, joinNames(names))
	}
}

// continueDrain does the next step of a drain: hand over, evict, or assign the
// target to the drained node.
func (d *planner) continueDrain(i int) {
	n := &d.nodes[i]
	switch {
	case n.Last && !n.Drain.HandedOver && d.in.Term != 0:
		r := n.Drain
		r.HandedOver = true
		d.Taints = append(d.Taints, Taint{i, r})
		d.HandOver = n.Name

		return
	case !d.toAssign(n): // its agent adopts the target when its pods are gone
	case n.drained() && n.Ready && n.Observed == n.Generation && !d.moved[i] && d.mayBegin(i):
		d.assignRevision(i, Assign, d.in.Target)
		d.drains.done = append(d.drains.done, n.Name)
		return
	}

	if r := n.DrainReport; r != nil && d.before(r.Time.Add(evictionInterval)) {
		return
	}

	d.Evict = append(d.Evict, i)
	d.requeueAt(d.in.Now.Add(evictionInterval))
}

// drainEnds returns when the drain of a node is given up.
func (d *planner) drainEnds(n *Node) time.Time {
	return d.ends(n.Drain.Since, seconds(d.in.Spec.Strategy.DrainOptions.TimeoutSeconds))
}

// drainFails returns why a drain is given up; empty: it continues.
func (d *planner) drainFails(i int) (reason, message string) {
	n := &d.nodes[i]
	r := n.DrainReport
	if r != nil && r.Time.Before(n.Drain.Since) {
		r = nil // of an earlier drain
	}

	switch {
	case d.closed() && d.in.within():
		return windowClosed, "the drain was given up: a trial cannot end within the maintenance windows any more"
	case r != nil && r.Refused != "":
		return drainRefused, "the node cannot be drained: " + r.Refused
	case n.refuses() && n.Reason == v1alpha1.ReasonNeedsDrain && n.drained() && len(r.Ignored) > 0:
		return drainIgnoredPods, fmt.Sprintf("the revision needs an empty node, and drainOptions.ignoredPods leaves %s alone: %s",
			strings.Join(r.Ignored, ", "), n.Error)
	case n.drained() && n.Ready && d.toAssign(n) && d.mayBegin(i): // it is assigned the target now
	case !d.in.Now.Before(d.drainEnds(n)):
		why := drainWaits(n)
		if n.ControlPlane && d.planes.waits.why != "" {
			why += "; it " + d.planes.waits.why
		}

		return drainTimedOut, fmt.Sprintf("the drain was given up after %s: %s", seconds(d.in.Spec.Strategy.DrainOptions.TimeoutSeconds), why)
	}

	return "", ""
}

// giveUp ends a drain that cannot succeed: the node is Blocked, and keeps what
// it runs.
func (d *planner) giveUp(i int, reason, message string) {
	n := &d.nodes[i]
	d.event(true, "DrainGivenUp", "node %s: %s: %s", n.Name, reason, message)
	d.Taints = append(d.Taints, Taint{Node: i})
	if d.hasTarget(n) && d.canGiveUp(n) {
		d.takeBackBlocked(i, reason, message)
		return
	}

	d.observeBlocked(i, reason, message)
}

// holdsTaint reports whether a node that has accepted the target, or is to
// accept it, is not yet open to new pods.
func (d *planner) holdsTaint(n *Node, s State) bool {
	switch {
	case !d.hasTarget(n) || !d.drainsNodes():
		return false
	case s == Assigned:
		return !n.stale() || d.Next.Halt == nil
	case s == Trial:
		return !(n.Observed == n.Generation && d.runsTarget(n) && n.healthy())
	}

	return false
}
