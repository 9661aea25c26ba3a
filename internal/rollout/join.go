// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// An agent does not write its status when only the number of workload pods has
// changed, so that number is used only for a short time after the Node was
// created. One plan moves a limited number of nodes without workload pods:
// their results may be a reason to stop.
const (
	idleAge      = 10 * time.Minute
	maxIdleJoins = 100
)

// idle reports whether a node has no workload pods, as far as that can be
// known.
func (d *planner) idle(n *Node) bool { return n.Idle && d.in.Now.Before(n.Created.Add(idleAge)) }

// join assigns a revision to nodes that were created after the rollout and have
// no source. They do not wait for their step, but at most maxJoining of them
// are in progress, and none gets a revision after too many failures. A node
// without workload pods has nothing to lose: it does not wait for the others,
// unless the revision is in doubt.
func (d *planner) join() {
	if d.in.Spec.Frozen || d.in.Target.Number == 0 {
		return
	}

	to := d.lastGood()
	if d.in.Spec.NewNodes == v1alpha1.NewNodesTarget && !d.stopped() || d.succeeded && d.Next.Halt == nil {
		to = d.in.Target
	}
	if to.Number == 0 || to.Number == d.in.LastSucceeded.Number && d.in.LastSucceededGone {
		return
	}

	d.joins.possible = true
	flying, doubt := d.joiners(to)
	s := &d.in.Spec.Strategy
	budget, exempt, waiting := roundDown(cmp.Or(s.MaxJoining, s.MaxUnavailable), d.Counts.Members), 0, []string(nil)
	d.joins.newcomers = map[int]bool{}
	for i := range d.nodes {
		n := &d.nodes[i]
		if d.States[i] != Pending || n.Observed != n.Generation || n.Source != nil || !n.Created.After(d.in.Created) {
			continue
		}

		free := !doubt && d.idle(n)
		d.joins.newcomers[i] = to.Number == d.in.Target.Number
		switch {
		case !d.joins.stopped && !d.mayBegin(i):
			continue
		case d.joins.stopped, !free && flying >= budget:
			waiting = append(waiting, n.Name)
			continue
		case free && exempt == maxIdleJoins:
			d.requeueAt(d.in.Now.Add(time.Millisecond))
			continue
		case free:
			exempt++
		default:
			flying++
		}

		delete(d.joins.newcomers, i)
		d.assignRevision(i, Join, to)
		m := d.Moves[len(d.Moves)-1].Source.By()
		d.observe(i, Observation{Rollout: m.Name, Revision: m.Revision, Attempt: m.Attempt, Joined: true})
		d.countMove(i) // it needs no room in other budgets, but takes it
		if to.Number == d.in.Target.Number {
			d.assigned++
		}
	}

	if len(waiting) == 0 {
		return
	}

	words := fmt.Sprintf("%s to join (%s)", printable.Count(len(waiting), "node"), joinNames(waiting))
	if len(waiting) > maxNames {
		words += ", listed by kubectl evenkeel nodes --rollout " + d.in.Name
	}
	if !d.joins.stopped {
		words += fmt.Sprintf(": maxJoining is used up: %d of %d", flying, budget)
	}

	d.joins.message = strings.TrimPrefix(d.joins.message+"; "+words, "; ")
}

// joined reports whether a node got its source as a new node.
func (n *Node) joined() bool { return n.Observation.Joined && n.isObserved() }

// isObserved reports whether a node's observation is about its current source,
// whichever rollout assigned that.
func (n *Node) isObserved() bool {
	o, by := &n.Observation, n.Source.By()
	return o.Rollout == by.Name && o.Revision == by.Revision && o.Attempt == by.Attempt
}

// joiners counts the new nodes in progress that have workload pods. It stops
// joining when too many new nodes have failed that got the revision since it
// became the target or was retried. The revision is in doubt while any of the
// new nodes has failed, or a node that got it after a retry has not proven it:
// then new nodes without workload pods count like the others.
func (d *planner) joiners(to v1alpha1.RolloutRevision) (flying int32, doubt bool) {
	idle, names := int32(0), []string(nil)
	for i := range d.nodes {
		n := &d.nodes[i]
		if n.Owner != "" || n.OtherSource != "" || n.Source.By().Name != d.in.Name || !isConfigMap(n.Source) {
			continue
		}

		same := n.Source.Content().SHA256 == to.ConfigMapRef.SHA256
		doubt = doubt || same && n.Source.By().Attempt > 1 && n.LastKnownGood.Digest() != to.ConfigMapRef.SHA256 &&
			!n.Created.After(n.Source.By().AssignedAt.Time)
		if !n.joined() {
			continue
		}

		reason := d.joinFailed(n)
		doubt = doubt || same && reason != ""
		switch {
		case reason == "" && !d.joinInProgress(n):
		case reason == "" && d.idle(n):
			idle++
		case reason == "":
			flying++
		case same && !n.Source.By().AssignedAt.Time.Before(TimeOf(d.Next.AttemptTime).Truncate(time.Second)):
			names = append(names, n.Name+" "+reason)
		}
	}

	if doubt {
		flying += idle
	}
	if len(names) < int(d.limit()) {
		return flying, doubt
	}

	d.joins.stopped = true
	d.joins.message = fmt.Sprintf("joining is stopped: revision %d failed on %s that joined (limit %d): %s; repair or remove them, or let "+
		"others join: kubectl evenkeel rollout retry %s",
		to.Number, printable.Count(len(names), "node"), d.limit(), printable.First(names, 3, ", "), d.in.Name)

	return flying, doubt
}

// joinFailed returns the reason for which the revision failed on a new node;
// empty if it did not. Failures after the trial do not count: the revision did
// not cause them.
func (d *planner) joinFailed(n *Node) string {
	answered := n.Observed == n.Generation
	switch {
	case n.LastKnownGood.Digest() == n.Source.Content().SHA256, n.refuses(), n.Created.After(n.Source.By().AssignedAt.Time):
		return ""
	case answered && n.OK == "False" && !n.Provisional:
		return n.Reason
	case !n.Ready:
		judged, is := d.judgedNotReadySince(n)
		if !is {
			return ""
		}
		if !d.before(d.deadline(judged, d.in.Controller.NotReadyGrace.Duration)) {
			return FailedNotReady
		}
	case answered && n.Reason != v1alpha1.ReasonInconclusive && n.Reason != v1alpha1.ReasonLostAPI:
		if _, over, _ := d.timeout(n, seconds(d.in.Spec.NodeTimeoutSeconds)+n.TrialLength); over {
			return FailedTimeout
		}
	}

	return ""
}

// joinInProgress reports whether a new node that has not failed is in progress.
func (d *planner) joinInProgress(n *Node) bool {
	if n.LastKnownGood.Digest() == n.Source.Content().SHA256 || n.refuses() || n.Created.After(n.Source.By().AssignedAt.Time) {
		return false
	}

	return n.Observed == n.Generation || d.before(d.answerDue(n))
}
