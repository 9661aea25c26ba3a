// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// StaticPods are the static pods of a control plane, as the caller read them.
type StaticPods struct {
	Time     time.Time
	Error    string   // why they could not be read; empty: they were
	NotReady []string // names
}

// controlPlanes are the control planes of the cluster in one call of Plan.
// Whatever the budgets are, none begins while another one may be away: the
// restart of a second one could cost a quorum.
type controlPlanes struct {
	looked, lookedAtPods bool
	busy                 []busyPlane // for which the others wait
	waits                tally       // candidates that wait
	blocked              bool        // one of busy refuses the target
}

type busyPlane struct {
	name, why string
	pods      []string // nil: why is not about static pods; else those, without the name of their node
}

// Unsettled says why no other control plane may begin while this one is like
// this; empty: another one may.
func (n *Node) Unsettled() string {
	switch {
	case !n.Ready:
		return "which is not Ready"
	case n.InTrial:
		return "which is on trial"
	case n.Drain.Rollout != "":
		return "which is being drained"
	case n.OtherSource != "" || !n.Reported:
		return ""
	case n.Observed != n.Generation:
		return "whose agent has not answered its assignment"
	case n.runsAnother() && !n.judged() && n.Reason != v1alpha1.ReasonAssignmentEnded:
		return "which has not adopted its assignment (" + n.Reason + ")"
	}

	return ""
}

// unsettled is Unsettled, but a node that rejects an earlier leader's
// assignment is settled, because it never adopts it. A node that was unsettled
// a moment ago is not: neither the Node nor its pods may show a restart yet.
func (d *planner) unsettled(n *Node) string {
	if n.stale() && n.Ready && !n.InTrial && n.Source.By().Term != d.in.Term {
		return ""
	}
	if why := n.Unsettled(); why != "" {
		return why
	}

	at := n.SettledAt
	if at.IsZero() && len(d.in.Outages) > 0 {
		at = d.in.Outages[0].To
	}
	if !at.IsZero() && d.before(at.Add(showsInBudgets)) {
		return "which may have been in flight a moment ago"
	}

	return ""
}

// eachControlPlane calls visit for the control planes of the cluster. i is the
// index into the nodes of the plan; -1: it has none.
func (d *planner) eachControlPlane(visit func(i int, n *Node)) {
	for i := range d.nodes {
		if d.nodes[i].ControlPlane {
			visit(i, &d.nodes[i])
		}
	}

	for i := range d.in.ControlPlanes {
		visit(-1, &d.in.ControlPlanes[i])
	}
}

// mayBeAway reports whether a node is unsettled because it is away, or may be
// at any moment.
func (d *planner) mayBeAway(n *Node) bool {
	adopts := n.runsAnother() && (n.Observed != n.Generation || !n.judged())
	return (!n.Ready || n.InTrial || adopts) && d.unsettled(n) != ""
}

// mayBegin reports whether a node may begin with another configuration as far
// as control planes are concerned. A node that may be away anyway may begin:
// the number of those does not grow.
func (d *planner) mayBegin(i int) bool {
	n, p := &d.nodes[i], &d.planes
	if !n.ControlPlane || d.mayBeAway(n) {
		return true
	}

	if !p.looked {
		p.looked = true
		d.eachControlPlane(func(i int, n *Node) {
			if why := d.unsettled(n); why != "" {
				p.busy = append(p.busy, busyPlane{n.Name, why, nil})
				p.blocked = p.blocked || i >= 0 && d.States[i] == Blocked && d.hasTarget(n)
			}
		})
	}

	first := d.busyBeside(n)
	if first == nil && d.in.ReadsPods {
		d.lookAtStaticPods()
		first = d.busyBeside(n)
	}

	switch {
	case first == nil && len(d.ReadStatic) > 0:
		p.waits.add("the static pods of control planes are being read")
		return false
	case first == nil, d.in.Spec.Strategy.ParallelControlPlanes != nil:
		return true
	}

	p.waits.add("waits for control plane " + first.name + ", " + first.why)

	return false
}

// busyBeside returns the first other control plane for which a node waits; nil:
// there is none. It does not wait for static pods that are not Ready on itself
// either: its restart costs no more of them. Otherwise, after a revision broke
// several control planes, each would wait for the other ones before it goes
// back.
func (d *planner) busyBeside(n *Node) *busyPlane {
	var own []string
	for _, b := range d.planes.busy {
		if b.name == n.Name {
			own = append(own, b.pods...)
		}
	}

	lacks := func(pod string) bool { return !slices.Contains(own, pod) }
	for k := range d.planes.busy {
		if b := &d.planes.busy[k]; b.name != n.Name && (b.pods == nil || slices.ContainsFunc(b.pods, lacks)) {
			return b
		}
	}

	return nil
}

// lookAtStaticPods adds the control planes whose static pods are not Ready
// again since an assignment, and asks for those to be read.
func (d *planner) lookAtStaticPods() {
	p := &d.planes
	if p.lookedAtPods {
		return
	}

	p.lookedAtPods = true
	d.eachControlPlane(func(_ int, n *Node) {
		s := n.StaticPods
		if s == nil || d.age(s.Time) >= budgetsValid {
			if len(d.ReadStatic) < maxInspected {
				d.ReadStatic = append(d.ReadStatic, n.Name)
			}

			return
		}

		b := busyPlane{n.Name, "whose static pods cannot be read: " + s.Error, nil}
		if missing := n.notReadyAgain(); s.Error == "" {
			if len(missing) == 0 {
				return
			}

			b.why = "which is not Ready again (not Ready: " + printable.First(missing, 3, ", ") + ")"
			for _, pod := range missing {
				b.pods = append(b.pods, strings.TrimSuffix(pod, "-"+n.Name))
			}
		}

		d.requeueAt(s.Time.Add(budgetsValid))
		p.busy = append(p.busy, b)
	})
}

// notReadyAgain returns the static pods of a node that are not Ready, although
// they were when it was assigned a source.
func (n *Node) notReadyAgain() []string {
	if n.Source == nil {
		return nil
	}

	before := strings.Split(n.Observation.NotReadyBefore, ",")

	return slices.DeleteFunc(slices.Clone(n.StaticPods.NotReady), func(pod string) bool { return slices.Contains(before, pod) })
}

// planeBegins lets the other control planes wait for a node that begins now.
func (d *planner) planeBegins(i int) {
	n, parallel := &d.nodes[i], d.in.Spec.Strategy.ParallelControlPlanes
	if !n.ControlPlane {
		return
	}

	if other := d.busyBeside(n); other != nil && parallel != nil && !d.mayBeAway(n) {
		d.event(true, "ControlPlanesParallel", "control plane %s does not wait for %s, %s: spec.strategy.parallelControlPlanes: %s", n.Name,
			other.name, other.why, parallel.Reason)
	}

	d.planes.busy = append(d.planes.busy, busyPlane{n.Name, "which begins now", nil})
}

// recordNotReady records which static pods of a control plane are not Ready
// before an assignment of the target: nobody waits for them after it. Pods that
// an earlier assignment may have broken are not recorded.
func (d *planner) recordNotReady(i int) {
	n := &d.nodes[i]
	before := n.Observation.NotReadyBefore
	if n.StaticPods != nil && n.Source == nil {
		before = strings.Join(n.StaticPods.NotReady, ",")
	}
	if before == "" && n.Observation.NotReadyBefore == "" {
		return
	}

	o := d.observationOf(i)
	if key := (Observation{Rollout: d.in.Name, Revision: d.in.Target.Number, Attempt: d.Next.Attempt}); o.Rollout != key.Rollout ||
		o.Revision != key.Revision || o.Attempt != key.Attempt {
		o = key
	}

	o.NotReadyBefore = before
	d.observe(i, o)
}

// planesNote says in the status why control planes wait, or why they do not.
func (d *planner) planesNote() string {
	if d.planes.waits.why != "" {
		return "; " + d.planes.waits.why
	}

	parallel := d.in.Spec.Strategy.ParallelControlPlanes
	if parallel == nil || !slices.ContainsFunc(d.nodes, func(n Node) bool { return n.ControlPlane }) {
		return ""
	}

	return "; spec.strategy.parallelControlPlanes: several control planes may be in flight: " + parallel.Reason
}
