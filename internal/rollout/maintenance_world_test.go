// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"time"

	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// pauseRecord is the maintenance of a node since it was assigned something: the
// test keeps it.
type pauseRecord struct {
	of           attempt
	since, ended time.Time // since is zero without maintenance that counts
	total        time.Duration
}

// watchMaintenance sees on which nodes others work, in another way than the
// planner does.
func (w *world) watchMaintenance() {
	for i := range w.nodes {
		n := &w.nodes[i]
		of := attempt{n.Source.By().Revision, n.Source.By().Attempt}
		is := w.pauses[n.Name]
		if is.of != of {
			is = pauseRecord{of: of}
		}

		switch {
		case n.Maintenance == "" && !is.since.IsZero():
			is.total, is.ended, is.since = is.total+w.now.Sub(is.since), w.now, time.Time{}
		case n.Maintenance != "" && is.since.IsZero() && (n.Ready || n.MaintenanceSince.Before(n.WentNotReady)):
			is.since = Latest(n.MaintenanceSince, n.Source.By().AssignedAt.Time)
		}

		w.pauses[n.Name] = is
	}
}

// refereeMaintenance holds the states of nodes under maintenance, and the steps
// that are done, against the rules. It runs before the moves are written.
func (w *world) refereeMaintenance(t *rapid.T, r Result) {
	p := &w.in
	members, good, failed := 0, 0, 0
	for i := range w.nodes {
		n, s := &w.nodes[i], r.States[i]
		if foreign(n) {
			continue
		}

		members++
		has := w.hasTarget(n)
		fresh := has && n.Source.By().Revision == p.Target.Number && !n.Created.After(n.Source.By().AssignedAt.Time)
		verdict := n.Observed == n.Generation && n.OK == "False" && n.Reason != "WouldEvictPods" && !n.Provisional
		pause, ownDrain := w.pauses[n.Name], n.Drain.Rollout == p.DrainID
		passed := has && w.provenTarget(n) && n.OK != "False"
		over := passed && r.Succeeded() // it is Updated now, whatever it was before
		down := !n.Ready && w.now.Sub(Latest(n.WentNotReady, n.Source.By().AssignedAt.Time, pause.ended)) >= p.Controller.NotReadyGrace.Duration
		switch {
		case has && verdict:
			failed++
			assert.Must(t, s == Failed || s == Draining,
				"%s has failed by its own verdict (%s) and is %s under maintenance %q", n.Name, n.Reason, s, n.Maintenance)
		case passed && n.Ready && w.soaked(n):
			good++
		case hasSucceeded(&w.in.Status) && passed: // what happens later is not the rollout's
		case fresh && !n.Ready && !pause.since.IsZero() && !over && s != Skipped && s != Draining && s != Blocked:
			t.Fatalf("%s went NotReady in maintenance that began before (%+v), and is %s: %+v", n.Name, pause, s, r.NodeState(i))
		case fresh && down && pause.since.IsZero() && !ownDrain:
			failed++
			assert.Must(t, s == Failed || n.refuses() || over, "%s has been NotReady since %s, maintenance %q excuses it since %s, and it is %s",
				n.Name, n.WentNotReady, n.Maintenance, n.MaintenanceSince, s)
		case s == Failed:
			failed++ // by a timeout
		}
	}

	was, now := &w.in.Status, &r.Next
	if a := p.Spec.Approval; numberOf(was) != p.Target.Number || hasSucceeded(was) || a != nil && a.Revision == p.Target.Number && a.Step >= was.Step {
		return
	}

	least := good // the most that the steps that are done now demand
	for i := was.Step; i < min(now.Step, int32(len(p.Spec.Strategy.Steps))); i++ {
		least = max(least, int(RoundUp(p.Spec.Strategy.Steps[i].Nodes, int32(members))))
	}
	if hasSucceeded(now) {
		least = members
	}

	missing := members - good - failed
	assert.Must(t, least <= good || good > 0 && missing <= max(1, members/10),
		"step %d of %d is done with %d good, %d failed and %d missing of %d nodes; it demands %d",
		now.Step, len(p.Spec.Strategy.Steps), good, failed, missing, members, least)
}
