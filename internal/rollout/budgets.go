// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/printable"
)

// Disruptions is what a restart of a node's kubelet disrupts, as the caller
// read it.
type Disruptions struct {
	Time  time.Time
	Error string         // why it could not be read; empty: it was
	Pods  map[string]int // that the restart makes unready, by namespace/name of their PodDisruptionBudgets
}

// Budgets are the disruptions that the PodDisruptionBudgets allow, as the
// caller read them.
type Budgets struct {
	Time    time.Time
	Error   string         // why they could not be read; empty: they were
	Allowed map[string]int // by namespace/name
}

const (
	// budgetsValid is how long a node is assigned the target on the grounds of
	// what was read.
	budgetsValid = 5 * time.Second
	// showsInBudgets is the time after which a restart of a kubelet shows in
	// the numbers of the budgets.
	showsInBudgets = 30 * time.Second
	// podsKept is how long a node is passed over because of the pods that were
	// read there.
	podsKept = 10 * time.Minute
	// maxInspected limits how many nodes one plan asks about.
	maxInspected = 20
)

// disruption is the state of the PodDisruptionBudgets in one call of Plan.
type disruption struct {
	most     int            // length of Inspect
	nodes    map[int]bool   // in flight, or assigned by this plan
	disrupts map[string]int // their pods, by budget
	unread   bool           // the pods of nodes in flight are not known
	waits    tally          // candidates that wait
}

// respects reports whether a restart of a node's kubelet is a disruption that
// the PodDisruptionBudgets must allow.
func (d *planner) respects(n *Node) bool { return d.in.RespectBudgets && n.Disrupts }

// countDisruptions counts the pods of nodes in flight as disrupted, even if
// they are Ready: each of these nodes may restart its kubelet at any moment,
// also to roll back. So does a node that may have restarted just now, without a
// trial because it has proven the target before. most limits how many nodes the
// plan asks about.
func (d *planner) countDisruptions(most int) {
	d.disruption = disruption{most: min(most, maxInspected), nodes: map[int]bool{}, disrupts: map[string]int{}}
	if !d.in.RespectBudgets {
		return
	}

	for i := range d.nodes {
		n, s := &d.nodes[i], d.States[i]
		switch f := n.Disruptions; {
		case !n.Disrupts || !d.moved[i] && !d.mayBeDown(n, s):
		case f == nil || f.Error != "":
			d.disruption.unread = true
			if f == nil || !d.before(f.Time.Add(budgetsValid)) {
				d.readPods(i)
			}
		default:
			d.disrupt(i)
		}
	}
}

// mayBeDown reports whether pods of a node may be unready because of the
// target, and not yet in the numbers of the budgets.
func (d *planner) mayBeDown(n *Node, s State) bool {
	shown := n.Source.By().AssignedAt.Time.Add(d.in.Controller.AgentTimeout.Duration + showsInBudgets)
	return d.assignedTarget(n) && s != Conflicted && s != Manual && d.before(shown) || s != Soaking && d.countsInFlight(n, s)
}

// disrupt counts the pods of a node as disrupted.
func (d *planner) disrupt(i int) {
	n := &d.nodes[i]
	if !d.respects(n) || d.disruption.nodes[i] {
		return
	}

	d.disruption.nodes[i] = true
	for budget, pods := range n.Disruptions.Pods {
		d.disruption.disrupts[budget] += pods
	}
}

// age returns the time since something was read.
func (d *planner) age(t time.Time) time.Duration { return d.in.Now.Sub(t) }

// mayDisrupt reports whether the PodDisruptionBudgets allow a restart of a
// candidate's kubelet. If that is not known, the caller is to read them, and
// the plan assigns no other node, to keep the order.
func (d *planner) mayDisrupt(i int) bool {
	n := &d.nodes[i]
	if !d.respects(n) {
		return !d.ReadBudgets
	}

	f, valid := n.Disruptions, d.in.Budgets.Error == "" && d.age(d.in.Budgets.Time) < budgetsValid
	switch {
	case d.unreadable():
		d.disruption.waits.add("cannot read the PodDisruptionBudgets: " + d.in.Budgets.Error)
	case d.disruption.unread:
		d.disruption.waits.add("the pods of nodes in flight are not known yet")
	case f != nil && f.Error != "" && d.before(f.Time.Add(budgetsValid)):
		d.disruption.waits.add(fmt.Sprintf("cannot read the pods of %s: %s", n.Name, f.Error))
	case f == nil || f.Error != "" || d.age(f.Time) >= podsKept:
		d.readPods(i)
		d.disruption.waits.add("the PodDisruptionBudgets are being read")
	case !valid:
		d.ReadBudgets = true
		d.disruption.waits.add("the PodDisruptionBudgets are being read")
	case d.exceeded(i) != "":
		d.requeueAt(d.in.Budgets.Time.Add(budgetsValid))
		d.disruption.waits.add(d.exceeded(i))
	case d.age(f.Time) >= budgetsValid:
		d.readPods(i)
		d.disruption.waits.add("the PodDisruptionBudgets are being read")
	default:
		return !d.ReadBudgets
	}

	return false
}

// exceeded says which PodDisruptionBudget does not allow a restart of a node's
// kubelet; empty if all do.
func (d *planner) exceeded(i int) string {
	n := &d.nodes[i]
	for _, budget := range slices.Sorted(maps.Keys(n.Disruptions.Pods)) {
		pods, taken := n.Disruptions.Pods[budget], d.disruption.disrupts[budget]
		allowed, exists := d.in.Budgets.Allowed[budget]
		if d.disruption.nodes[i] {
			taken -= pods // its own, in flight for an earlier revision
		}
		if !exists || pods <= allowed-taken {
			continue
		}

		flying := ""
		if taken > 0 {
			flying = fmt.Sprintf(" (%d taken by nodes in flight)", taken)
		}

		return fmt.Sprintf("PodDisruptionBudget %s allows %s%s, and a restart of the kubelet on %s disrupts %s: wait, add replicas, or set "+
			"spec.strategy.respectDisruptionBudgets: false",
			budget, printable.Count(allowed, "disruption"), flying, n.Name, printable.Count(pods, "pod"))
	}

	return ""
}

// unreadable reports whether the budgets could not be read a moment ago. They
// are read again later.
func (d *planner) unreadable() bool {
	return d.in.Budgets.Error != "" && d.before(d.in.Budgets.Time.Add(budgetsValid))
}

// readPods asks the caller to read the budgets and the pods of a node.
func (d *planner) readPods(i int) {
	if d.unreadable() {
		return
	}

	d.ReadBudgets = true
	if len(d.Inspect) < d.disruption.most {
		d.Inspect = append(d.Inspect, i)
	}
}
