// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// joinedNode is a node that joined with revision 1 at epoch, and a plan an hour
// later.
func joinedNode() (*planner, *Node) {
	w := fleet(1)
	w.assigned("n1")
	w.in.Now = epoch.Add(time.Hour)
	n := w.node("n1")
	n.Observation = Observation{Rollout: "workers", Revision: 1, Attempt: 1, Joined: true}

	return newPlanner(w.in, w.nodes), n
}

func TestWhenANodeThatJoinedHasFailed(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(d *planner, n *Node)
		failed   string
		progress bool
	}{
		"its trial does not end":       {func(*planner, *Node) {}, FailedTimeout, true},
		"its trial is new":             {func(d *planner, _ *Node) { d.in.Now = epoch.Add(time.Minute) }, "", true},
		"its trial is inconclusive":    {func(_ *planner, n *Node) { n.OK, n.Reason = "Unknown", v1alpha1.ReasonInconclusive }, "", true},
		"it lost the API":              {func(_ *planner, n *Node) { n.OK, n.Reason = "Unknown", v1alpha1.ReasonLostAPI }, "", true},
		"its agent does not answer":    {func(_ *planner, n *Node) { n.Observed-- }, "", false},
		"its agent has not yet":        {func(d *planner, n *Node) { n.Observed--; d.in.Now = epoch.Add(time.Second) }, "", true},
		"it has proven it":             {func(_ *planner, n *Node) { n.LastKnownGood = n.Active }, "", false},
		"it refuses it":                {func(_ *planner, n *Node) { n.OK, n.Reason, n.Active = "False", v1alpha1.ReasonWouldEvictPods, nil }, "", false},
		"its machine is another one":   {func(_ *planner, n *Node) { n.Created = epoch.Add(time.Second) }, "", false},
		"it crash-looped":              {func(_ *planner, n *Node) { n.OK, n.Reason = "False", v1alpha1.ReasonCrashLooped }, v1alpha1.ReasonCrashLooped, true},
		"it may have crash-looped":     {func(_ *planner, n *Node) { n.OK, n.Reason, n.Provisional = "False", v1alpha1.ReasonCrashLooped, true }, FailedTimeout, true},
		"it was NotReady for too long": {func(_ *planner, n *Node) { n.Ready, n.WentNotReady = false, epoch.Add(time.Second) }, FailedNotReady, true},
		"it is NotReady since now":     {func(d *planner, n *Node) { n.Ready, n.WentNotReady = false, d.in.Now }, "", true},
	} {
		d, n := joinedNode()
		c.change(d, n)
		assert.Equal(t, d.joinFailed(n), c.failed, name, "failed")
		assert.Equal(t, d.joinInProgress(n), c.progress, name, "in progress")
	}
}

func TestMaintenanceCountsOnlyFromWhenItWasSeen(t *testing.T) {
	seen := epoch.Add(10 * time.Minute)
	for name, c := range map[string]struct {
		change    func(n *Node)
		since     time.Time
		announced bool
	}{
		"it began":                           {func(*Node) {}, seen, false},
		"there is none":                      {func(n *Node) { n.Maintenance = "" }, time.Time{}, false},
		"it was not seen to begin":           {func(n *Node) { n.MaintenanceSince = time.Time{} }, time.Time{}, false},
		"it began before the node fell over": {func(n *Node) { n.Ready, n.WentNotReady = false, seen.Add(time.Second) }, seen, true},
		"it began after that":                {func(n *Node) { n.Ready, n.WentNotReady = false, seen.Add(-time.Second) }, time.Time{}, false},
		"none, and the node fell over":       {func(n *Node) { n.Maintenance, n.Ready, n.WentNotReady = "", false, seen.Add(time.Second) }, time.Time{}, false},
		"not seen, and the node fell over":   {func(n *Node) { n.MaintenanceSince, n.Ready, n.WentNotReady = time.Time{}, false, seen.Add(time.Second) }, time.Time{}, false},
		"it began before the assignment":     {func(n *Node) { n.Source.By().AssignedAt.Time = seen.Add(time.Minute) }, seen.Add(time.Minute), false},
		"an earlier one is recorded, and goes on": {func(n *Node) {
			n.Observation.Maintenance, n.MaintenanceSince = Maintenance{Since: epoch.Add(time.Minute)}, seen
		}, epoch.Add(time.Minute), false},
	} {
		d, n := joinedNode()
		n.Maintenance, n.MaintenanceSince = Cordoned, seen
		c.change(n)
		assert.That(t, d.maintenance(n).Since.Equal(c.since), "%s: since %s, want %s", name, d.maintenance(n).Since, c.since)
		assert.Equal(t, !n.Ready && d.announcedNotReady(n), c.announced, name, "announced")
	}
}

func TestANewLeaderRestartsAnUnrecordedSoak(t *testing.T) {
	for name, change := range map[string]func(*Observation){
		"nothing":             func(m *Observation) { *m = Observation{} },
		"of another rollout":  func(m *Observation) { m.Rollout = "others" },
		"of another revision": func(m *Observation) { m.Revision++ },
		"of another attempt":  func(m *Observation) { m.Attempt++ },
		"from the future":     func(m *Observation) { m.HealthySince = m.HealthySince.Add(time.Hour) },
	} {
		w := fleet(1)
		w.in.soak(10 * time.Minute)
		w.runFor(80 * time.Second)
		change(&w.nodes[0].Observation)
		w.now = w.now.Add(10 * time.Minute)
		w.in.Outages = seenSince(w.now)
		w.plan()
		assert.Must(t, w.last.States[0] == Soaking && w.nodes[0].Observation.HealthySince.Equal(w.now),
			"%s: the node is %s, its mark %+v at %s", name, w.last.States[0], w.nodes[0].Observation, w.now)
		w.now = w.now.Add(10 * time.Minute)
		w.plan()
		assert.Equal(t, w.last.States[0], Updated, name, "after the whole soak the node")
	}
}

func TestALongTrialDoesNotDelayTheRollback(t *testing.T) {
	w := fleet(3)
	w.in.Spec.Rollback.MaxUnavailable = number(1)
	w.runFor(2 * time.Minute)
	assert.Must(t, w.last.Next.Phase == v1alpha1.RolloutComplete, "it is %s", w.last.Next.Phase)
	w.in.Spec.Abort = &v1alpha1.RolloutAbort{Revision: 1, Rollback: true}
	first := w.plan()
	assert.Must(t, len(first.Moves) == 1, "%d nodes go back at first", len(first.Moves))
	n := &w.nodes[first.Moves[0].Node]
	n.Observed, n.InTrial, n.TrialLength = n.Generation, true, 168*time.Hour
	w.now = w.now.Add(seconds(w.in.Spec.NodeTimeoutSeconds) + maxRollbackTrial - time.Second)
	r := w.plan()
	assert.That(t, len(r.Moves) == 0, "%d more nodes go back too early", len(r.Moves))
	w.now = w.now.Add(time.Second)
	r = w.plan()
	assert.That(t, len(r.Moves) == 1, "%d more nodes go back after %s", len(r.Moves), seconds(w.in.Spec.NodeTimeoutSeconds)+maxRollbackTrial)
}
