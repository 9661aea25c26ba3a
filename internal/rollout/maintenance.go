// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// Cordoned is the Maintenance of a node that a person or a tool has cordoned.
const Cordoned = "cordoned"

// Maintenance is what a plan remembers about maintenance of a node, for the
// node's current assignment. A node cannot change it.
type Maintenance struct {
	Since time.Time     `json:"since,omitzero"`  // when maintenance began while the node was Ready; zero: there is none now
	Ended time.Time     `json:"ended,omitzero"`  // when the last one ended
	Total time.Duration `json:"total,omitempty"` // of those that have ended
}

// maintenance returns what is remembered about maintenance of a node's
// assignment, as of now. Maintenance that begins while the node is NotReady
// does not count: whoever cordoned the node may have done so because of the
// configuration.
func (d *planner) maintenance(n *Node) Maintenance {
	var m Maintenance
	now, assigned := d.in.Now, n.Source.By().AssignedAt.Time
	if d.observationApplies(n) {
		m = n.Observation.Maintenance
	}
	if m.Ended.Before(assigned) { // the node had the same revision before, and was assigned it again
		m.Ended, m.Total = time.Time{}, 0
	}
	if m.Since.IsZero() && n.Maintenance != "" && !n.MaintenanceSince.IsZero() && (n.Ready || n.MaintenanceSince.Before(d.wentNotReady(n))) {
		m.Since = n.MaintenanceSince.Truncate(time.Second) // as Policy.Now
	}
	if !m.Since.IsZero() && m.Since.Before(assigned) {
		m.Since = assigned
	}
	if n.Maintenance == "" && !m.Since.IsZero() {
		return Maintenance{Ended: now, Total: m.Total + now.Sub(m.Since)}
	}

	return m
}

// timeout returns when a timeout of a node's assignment ends, and whether it
// has ended. It does not run during maintenance. A node is excused if only the
// maintenance keeps the timeout from having ended.
func (d *planner) timeout(n *Node, length time.Duration) (end time.Time, over, excused bool) {
	m := d.maintenance(n)
	end = d.deadline(n.Source.By().AssignedAt.Time, length+m.Total)
	over = !d.before(end)
	excused = over && !m.Since.IsZero() && m.Since.Before(end)

	return end, over && !excused, excused
}

// judgedNotReadySince returns since when a NotReady node is judged for being
// NotReady. It returns false while the node is under maintenance that began
// before.
func (d *planner) judgedNotReadySince(n *Node) (time.Time, bool) {
	m := d.maintenance(n)
	return Latest(d.wentNotReady(n), m.Ended), m.Since.IsZero()
}

// announcedNotReady reports whether maintenance of a NotReady node was seen
// before the node became NotReady.
func (d *planner) announcedNotReady(n *Node) bool {
	return n.Maintenance != "" && !n.MaintenanceSince.IsZero() && n.MaintenanceSince.Before(d.wentNotReady(n))
}

// recordsMaintenance reports whether later plans need to know about maintenance
// of a node: it was assigned the target, or joined with an earlier revision,
// and has not proven that.
func (d *planner) recordsMaintenance(n *Node, s State) bool {
	switch {
	case n.outside(s), d.returning(n):
		return false
	case d.hasTarget(n):
		return !d.succeeded || !d.proven(n)
	}

	return n.joined() && n.Source.By().Name == d.in.Name && n.LastKnownGood.Digest() != n.Source.Content().SHA256
}

// withMaintenance adds what is to be remembered about maintenance of a node's
// assignment to the node's next observation.
func (d *planner) withMaintenance(n *Node, want Observation) Observation {
	m := d.maintenance(n)
	switch {
	case m == want.Maintenance:
		return want
	case want.Rollout != d.in.Name || want.Revision != n.Source.By().Revision ||
		want.Attempt != n.Source.By().Attempt && want.Blocked.IsZero():
		want = Observation{Rollout: d.in.Name, Revision: n.Source.By().Revision}
	}

	want.Attempt, want.Maintenance = n.Source.By().Attempt, m
	if want == (Observation{Rollout: want.Rollout, Revision: want.Revision, Attempt: want.Attempt}) {
		return Observation{} // nothing is left to remember
	}

	return want
}

// isBeingEmptied reports whether a person has cordoned a node that was blocked
// because it must be drained.
func (d *planner) isBeingEmptied(n *Node) bool {
	return n.Maintenance == Cordoned && d.wasBlocked(n) &&
		slices.Contains([]string{v1alpha1.ReasonNeedsDrain, drainTimedOut, drainRefused, drainIgnoredPods}, n.Observation.Reason)
}

// nextOfferWhenEmptied returns when a node that a person drains is offered the
// target: at once when it is cordoned, and then after pauses as long as the
// drain has taken so far.
func nextOfferWhenEmptied(n *Node) time.Time {
	began, refused := n.MaintenanceSince, n.Observation.Blocked
	if began.After(refused) {
		return began
	}

	return refused.Add(min(longestOffer, max(shortestOffer, refused.Sub(began))))
}
