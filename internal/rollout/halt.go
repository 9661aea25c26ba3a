// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// checkStop stops a revision that a person aborted, or that failed on too many
// nodes.
func (d *planner) checkStop() {
	if d.in.Target.Number == 0 {
		return
	}

	h := d.Next.Halt
	if a := d.in.Spec.Abort; a != nil && a.Revision == d.in.Target.Number {
		switch {
		case h == nil:
			d.halt(v1alpha1.HaltAborted, "stopped by a person"+clause(": ", a.Reason), a.Rollback)
		case a.Rollback && !h.Rollback:
			stop := *h
			stop.Rollback, stop.Time = true, metav1.NewTime(d.in.Now)
			d.Next.Halt = &stop
			d.event(true, "RolloutRollback", "revision %d is rolled back as requested", d.in.Target.Number)
		}

		return
	}

	limit := d.limit()
	switch again := d.failedAgain(); {
	case h != nil:
		return
	case again != "":
		d.halt(d.failureReason(), "it failed again on "+again, d.rollsBack())
		return
	case d.failures < limit:
		return
	}

	excused, where := d.outageFailures()
	if d.failures-excused < limit {
		d.halt(v1alpha1.HaltInconclusive, fmt.Sprintf("%s went NotReady, but so did nodes without the revision in %s: the revision is not the "+
			"cause", printable.Count(excused, "node"), where), false)
		return
	}

	d.halt(d.failureReason(), fmt.Sprintf("%s failed (limit %d): %s", printable.Count(d.failures, "node"), limit, d.examples(true)),
		d.rollsBack())
}

// failureReason is the reason of a stop because of failed nodes.
func (d *planner) failureReason() string {
	for i, s := range d.States {
		if n := &d.nodes[i]; s == Failed && d.counted(n) && d.nodeState(n).Reason != FailedTimeout {
			return v1alpha1.HaltTooManyFailures
		}
	}

	return v1alpha1.HaltTimeouts
}

// remedies say what a person can do about a stop, by its reason.
var remedies = map[string]string{
	v1alpha1.HaltTooManyFailures:  "push a fixed configuration",
	v1alpha1.HaltTimeouts:         "find out what delays the nodes with: kubectl evenkeel nodes --rollout NAME --failed",
	v1alpha1.HaltInconclusive:     "when the outage is over: kubectl evenkeel rollout retry NAME",
	v1alpha1.HaltAborted:          "push a fixed configuration",
	v1alpha1.HaltPreflightRefused: "push a fixed configuration, or correct the nodes, then: kubectl evenkeel rollout retry NAME --force",
	v1alpha1.HaltGateFailed: "push a fixed configuration, or correct what the gate measures, then: kubectl evenkeel rollout retry " +
		"NAME --force",
}

// Remedies returns what a person can do about a stop of a rollout with this
// reason. It failed on the node, if one is named. undo reports whether an
// earlier revision can be the target again.
func Remedies(name, reason, node string, undo bool) string {
	words := remedies[reason]
	if node != "" && !strings.Contains(words, " retry ") { // other nodes wait for this one
		words += ", or: kubectl evenkeel rollout retry NAME " + node
	}
	if undo {
		words += ", or: kubectl evenkeel rollout undo NAME"
	}

	return strings.ReplaceAll(words, "NAME", name)
}

// failedAgain returns a node that a retry names and on which the target failed
// again; empty if there is none.
func (d *planner) failedAgain() string {
	for i, s := range d.States {
		if n := &d.nodes[i]; s == Failed && d.namedByRetry(n) && n.Source.By().Attempt == d.Next.Attempt && d.counted(n) {
			return n.Name
		}
	}

	return ""
}

// limit is the number of failures that stop a revision.
func (d *planner) limit() int32 {
	return max(1, RoundUp(d.in.Spec.FailurePolicy.MaxFailures, d.Counts.Members))
}

func (d *planner) halt(reason, message string, rollback bool) {
	d.Next.Halt = &v1alpha1.RolloutHalt{
		Attempt: d.Next.Attempt, Reason: reason, Message: printable.Cut(message,
			v1alpha1.MaxRolloutMessage), Time: metav1.NewTime(d.in.Now), Rollback: rollback,
	}
	d.event(true, "RolloutHalted", "revision %d is stopped (%s): %s", d.in.Target.Number, reason, message)
}

// examples names a few failed nodes: of all, or only of those that count
// towards the stop.
func (d *planner) examples(counted bool) string {
	var out []string
	for i, s := range d.States {
		if n := &d.nodes[i]; s == Failed && (!counted || d.counted(n)) {
			out = append(out, n.Name+" "+d.nodeState(n).Reason)
		}
	}

	return printable.First(out, 3, ", ")
}

// outageWindow is the longest time between two nodes that go NotReady for the
// same cause.
const outageWindow = 5 * time.Minute

// outage counts the nodes of one domain, to find out whether the revision made
// them NotReady.
type outage struct {
	assigned, untouched, alsoNotReady int
	failed                            []time.Time // when those that failed were seen to go NotReady
}

// near reports whether a failed node went NotReady within outageWindow of a
// time.
func (o *outage) near(t time.Time) bool {
	return slices.ContainsFunc(o.failed, func(f time.Time) bool { return f.Sub(t).Abs() <= outageWindow })
}

// outageFailures counts failed nodes that an outage explains, and returns the
// first of their domains. Such nodes went NotReady, and nodes of the same
// domain without the revision did so at about the same time and at least at
// half the rate. A node that was already NotReady when the fleet was first
// observed counts as NotReady from then on.
func (d *planner) outageFailures() (n int32, where string) {
	all := map[string]*outage{}
	for i := range d.nodes {
		node := &d.nodes[i]
		if !d.notReadyFailure(node, d.States[i]) {
			continue
		}

		o := all[node.Domain]
		if o == nil {
			o = &outage{}
			all[node.Domain] = o
		}

		o.failed = append(o.failed, d.wentNotReady(node))
	}

	for i := range d.nodes {
		node, o := &d.nodes[i], all[d.nodes[i].Domain]
		switch {
		case o == nil:
		case d.hasTarget(node):
			o.assigned++
		case !node.Ready && d.announcedNotReady(node): // says nothing about an outage
		default:
			o.untouched++
			if !node.Ready && o.near(d.wentNotReady(node)) {
				o.alsoNotReady++
			}
		}
	}

	for name, o := range all {
		if failed := len(o.failed); o.alsoNotReady > 0 && 2*o.alsoNotReady*o.assigned >= failed*o.untouched {
			n += int32(failed)
			if name = cmp.Or(name, "the same domain"); where == "" || name < where {
				where = name
			}
		}
	}

	return n, where
}

// notReadyFailure reports whether a node failed by being NotReady, which an
// outage can cause as well.
func (d *planner) notReadyFailure(n *Node, s State) bool {
	if s != Failed {
		return false
	}

	reason := d.nodeState(n).Reason

	return d.counted(n) && (reason == FailedNotReady || reason == v1alpha1.ReasonNotReady)
}
