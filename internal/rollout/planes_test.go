// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// settlePlanes notes which control planes the controller sees settle.
func (w *world) settlePlanes() {
	for _, n := range each(w.nodes) {
		if !n.ControlPlane {
			continue
		}

		a, was := w.agents[n.Name], w.agents[n.Name].away
		if a.away = n.Unsettled() != ""; was && !a.away {
			n.SettledAt = w.now
		}
	}
}

// readStatic reads the static pods of control planes.
func (w *world) readStatic(names []string) {
	for _, nodes := range [][]Node{w.nodes, w.in.ControlPlanes} {
		for _, n := range each(nodes) {
			if !slices.Contains(names, n.Name) {
				continue
			}

			n.StaticPods = &StaticPods{Time: w.now}
			if a := w.agents[n.Name]; a != nil {
				n.StaticPods.NotReady = a.broken
			}
			if w.forbidden {
				n.StaticPods.Error = "forbidden"
			}
		}
	}
}

// away counts the control planes that are away, or may restart at any moment,
// in another way than the planner does.
func (w *world) away() (count int) {
	for _, nodes := range [][]Node{w.nodes, w.in.ControlPlanes} {
		for i := range nodes {
			if n := &nodes[i]; n.ControlPlane && isAway(n, w.in.Term) {
				count++
			}
		}
	}

	return count
}

func isAway(n *Node, term int64) bool {
	if !n.Ready || n.InTrial || n.Drain.Rollout != "" {
		return true
	}
	if n.Source == nil || n.OtherSource != "" || !n.Reported || n.Active.Digest() == n.Source.Content().SHA256 {
		return false
	}

	gaveUp := n.OK == "False" && slices.Contains([]string{"ValidationFailed", "CrashLooped", "Revoked"}, n.Reason)
	former := n.Reason == "StaleAssignment" && n.Source.By().Term != term

	return n.Observed != n.Generation || !gaveUp && !former
}

// controlPlanes returns the control planes as another rollout sees them.
func (w *world) controlPlanes() (all []Node) {
	w.settlePlanes()
	for _, n := range w.nodes {
		if n.Name = "other-" + n.Name; n.ControlPlane {
			all = append(all, n)
		}
	}

	return all
}

// TestAControlPlaneWaitsForAnotherOrMayBeAwayAnyway lists the states of a
// control plane: why others wait for it, and whether it begins itself beside
// one that is NotReady, because it may be away anyway.
func TestAControlPlaneWaitsForAnotherOrMayBeAwayAnyway(t *testing.T) {
	reports := func(n *Node, term int64, ok metav1.ConditionStatus, reason string) {
		n.Source = given("other", revision(7, "other-x", "uid-x", "x"), epoch.Add(-time.Hour))
		n.Source.RolloutRef.Term, n.OK, n.Reason = term, ok, reason
	}
	const (
		unanswered = "whose agent has not answered its assignment"
		moment     = "which may have been in flight a moment ago"
	)
	seen := seenSince(epoch.Add(-time.Hour))
	for name, tt := range map[string]struct {
		change  func(*Node)
		outages Outages
		waits   string // empty: others do not wait for it
		begins  bool
	}{
		"settled":          {func(*Node) {}, nil, "", false},
		"no control plane": {func(n *Node) { n.ControlPlane = false }, nil, "", true},
		"NotReady":         {func(n *Node) { n.Ready = false }, nil, "which is not Ready", true},
		"on trial":         {func(n *Node) { n.InTrial = true }, nil, "which is on trial", true},
		"another's trial":  {func(n *Node) { n.InTrial, n.OtherSource = true, "ConfigMap" }, nil, "which is on trial", true},
		"drained":          {func(n *Node) { n.Drain.Rollout = "id" }, nil, "which is being drained", false},
		"unanswered":       {func(n *Node) { reports(n, 2, "True", ""); n.Generation++ }, nil, unanswered, true},
		"rejected before":  {func(n *Node) { reports(n, 2, "False", "CrashLooped"); n.Generation++ }, nil, unanswered, true},
		"taken back":       {func(n *Node) { n.Generation++ }, nil, unanswered, false},
		"refuses":          {func(n *Node) { reports(n, 2, "False", "WouldEvictPods") }, nil, "which has not adopted its assignment (WouldEvictPods)", true},
		"by hand, not adopted": {func(n *Node) {
			n.Source, n.OK, n.Reason = &v1alpha1.NodeConfigSource{ConfigMapRef: &v1alpha1.ConfigMapReference{SHA256: "x"}}, "Unknown", "CouldNotValidate"
		}, nil, "which has not adopted its assignment (CouldNotValidate)", true},
		"rejected":              {func(n *Node) { reports(n, 2, "False", "CrashLooped") }, nil, "", false},
		"rejected just now":     {func(n *Node) { reports(n, 2, "False", "CrashLooped"); n.SettledAt = epoch }, nil, moment, false},
		"a past leader's":       {func(n *Node) { reports(n, 1, "Unknown", "StaleAssignment") }, nil, "", false},
		"that, NotReady":        {func(n *Node) { reports(n, 1, "Unknown", "StaleAssignment"); n.Ready = false }, nil, "which is not Ready", true},
		"that, on trial":        {func(n *Node) { reports(n, 1, "Unknown", "StaleAssignment"); n.InTrial = true }, nil, "which is on trial", true},
		"stopped":               {func(n *Node) { reports(n, 2, "Unknown", "StaleAssignment") }, nil, "which has not adopted its assignment (StaleAssignment)", true},
		"another source":        {func(n *Node) { reports(n, 2, "True", ""); n.Generation++; n.OtherSource = "ConfigMap" }, nil, "", false},
		"ended":                 {func(n *Node) { reports(n, 2, "True", v1alpha1.ReasonAssignmentEnded) }, nil, "", false},
		"without an agent":      {func(n *Node) { reports(n, 2, "True", ""); n.Reported, n.Observed = false, 0 }, nil, "", false},
		"a moment ago":          {func(n *Node) { n.SettledAt = epoch.Add(-29 * time.Second) }, nil, moment, false},
		"before that":           {func(n *Node) { n.SettledAt = epoch.Add(-30 * time.Second) }, nil, "", false},
		"to a new leader":       {func(*Node) {}, seenSince(epoch.Add(-29 * time.Second)), moment, false},
		"not seen for a moment": {func(*Node) {}, append(seen, Outage{From: epoch.Add(-time.Minute), To: epoch}), "", false},
	} {
		w := newWorld()
		w.add(1, 1)
		w.in.Term, w.in.Outages = 2, tt.outages
		w.nodes[0].ControlPlane = true
		n := w.nodes[0]
		n.Name = "cp"
		tt.change(&n)
		w.in.ControlPlanes = []Node{n}
		w.target("good")
		r := w.plan()
		assert.Equal(t, len(r.Moves) == 0, tt.waits != "", name, "another one waits")
		if tt.waits != "" {
			assert.Equal(t, r.Next.Message, "revision 1: 0 of 1 node updated; waits for control plane cp, "+tt.waits, name)
		}

		w.in.ControlPlanes = []Node{{Name: "away", ControlPlane: true}}
		assert.Equal(t, newPlanner(w.in, []Node{n}).mayBegin(0), tt.begins, name, "it begins")
	}
}

func TestStaticPodsThatCannotBeReadAreReadAgain(t *testing.T) {
	w := fleet(2)
	w.assigned() // none
	w.in.ReadsPods, w.forbidden = true, true
	for i := range w.nodes {
		w.nodes[i].ControlPlane = true
	}

	r := w.plan()
	assert.That(t, len(r.Moves) == 0 && r.RequeueAfter > 0 && r.RequeueAfter <= budgetsValid,
		"%s: moves %+v, planned again after %s", r.Next.Message, r.Moves, r.RequeueAfter)
}

// runFor lets agents and the rollout act for some time.
func (w *world) runFor(span time.Duration) {
	for end := w.now.Add(span); w.now.Before(end); w.now = w.now.Add(10 * time.Second) {
		w.act()
		w.plan()
	}
}
