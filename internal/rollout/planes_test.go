// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// settlePlanes notes which control planes the controller sees settle.
func (w *world) settlePlanes() {
	for i := range w.nodes {
		n := &w.nodes[i]
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
		for i := range nodes {
			n := &nodes[i]
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

// TestOneControlPlaneIsAwayOverAllRollouts lets two rollouts and their
// operators do what they like. No plan begins on a control plane while another
// one of either rollout is away.
func TestOneControlPlaneIsAwayOverAllRollouts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := randomWorld(t), randomWorld(t)
		b.in.Name, b.in.DrainID = "others", "id-of-others"
		worlds := []*world{a, b}
		for range rapid.IntRange(5, 40).Draw(t, "passes") {
			for k, w := range worlds {
				for range rapid.IntRange(0, 2).Draw(t, "happenings") {
					w.happen(t)
				}

				w.act()
				w.in.ControlPlanes = nil
				other := worlds[1-k]
				other.settlePlanes()
				for _, n := range other.nodes {
					if n.Name = "other-" + n.Name; n.ControlPlane {
						w.in.ControlPlanes = append(w.in.ControlPlanes, n)
					}
				}

				before := w.away()
				r := w.plan()
				assert.Must(t, w.away() <= max(1, before), "rollout %s: %d control planes may be away, %d before: moves %+v", w.in.Name, w.away(), before, r.Moves)
			}

			step := time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second
			a.now = a.now.Add(step)
			b.now = a.now
		}
	})
}

// TestAControlPlaneWaitsForEveryOther lists why no other control plane begins.
func TestAControlPlaneWaitsForEveryOther(t *testing.T) {
	assigned := func(n *Node) {
		n.Source = given("other", revision(7, "other-x", "uid-x", "x"), epoch.Add(-time.Hour))
	}
	for name, tt := range map[string]struct {
		change func(*Node)
		in     func(*Input)
		want   string // empty: it does not wait
	}{
		"settled":         {func(*Node) {}, nil, ""},
		"NotReady":        {func(n *Node) { n.Ready = false }, nil, "waits for control plane cp, which is not Ready"},
		"on trial":        {func(n *Node) { n.InTrial = true }, nil, "waits for control plane cp, which is on trial"},
		"another's trial": {func(n *Node) { n.InTrial, n.OtherSource = true, "ConfigMap" }, nil, "waits for control plane cp, which is on trial"},
		"drained":         {func(n *Node) { n.Drain.Rollout = "id" }, nil, "waits for control plane cp, which is being drained"},
		"unanswered":      {func(n *Node) { assigned(n); n.Generation++ }, nil, "waits for control plane cp, whose agent has not answered its assignment"},
		"taken back":      {func(n *Node) { n.Generation++ }, nil, "waits for control plane cp, whose agent has not answered its assignment"},
		"not adopted": {func(n *Node) { assigned(n); n.OK, n.Reason = "False", "WouldEvictPods" }, nil,
			"waits for control plane cp, which has not adopted its assignment (WouldEvictPods)"},
		"by hand, not adopted": {func(n *Node) {
			n.Source, n.OK, n.Reason = &v1alpha1.NodeConfigSource{ConfigMapRef: &v1alpha1.ConfigMapReference{SHA256: "x"}}, "Unknown", "CouldNotValidate"
		}, nil, "waits for control plane cp, which has not adopted its assignment (CouldNotValidate)"},
		"rejected":         {func(n *Node) { assigned(n); n.OK, n.Reason = "False", "CrashLooped" }, nil, ""},
		"of a past leader": {func(n *Node) { assigned(n); n.OK, n.Reason = "Unknown", "StaleAssignment" }, func(in *Input) { in.Term = 2 }, ""},
		"stopped":          {func(n *Node) { assigned(n); n.OK, n.Reason = "Unknown", "StaleAssignment" }, nil, "waits for control plane cp, which has not adopted its assignment (StaleAssignment)"},
		"another source":   {func(n *Node) { assigned(n); n.Generation++; n.OtherSource = "ConfigMap" }, nil, ""},
		"ended":            {func(n *Node) { assigned(n); n.OK, n.Reason = "True", v1alpha1.ReasonAssignmentEnded }, nil, ""},
		"lost for a moment": {func(*Node) {}, func(in *Input) {
			in.Outages = append(seenSince(epoch.Add(-time.Hour)), Outage{From: epoch.Add(-time.Minute), To: epoch})
		}, ""},
		"a past leader's, NotReady": {func(n *Node) { assigned(n); n.OK, n.Reason, n.Ready = "Unknown", "StaleAssignment", false }, func(in *Input) { in.Term = 2 }, "waits for control plane cp, which is not Ready"},
		"a past leader's, on trial": {func(n *Node) { assigned(n); n.OK, n.Reason, n.InTrial = "Unknown", "StaleAssignment", true }, func(in *Input) { in.Term = 2 }, "waits for control plane cp, which is on trial"},
		"without an agent":          {func(n *Node) { assigned(n); n.Reported, n.Observed = false, 0 }, nil, ""},
		"a moment ago":              {func(n *Node) { n.SettledAt = epoch.Add(-29 * time.Second) }, nil, "waits for control plane cp, which may have been in flight a moment ago"},
		"before that":               {func(n *Node) { n.SettledAt = epoch.Add(-30 * time.Second) }, nil, ""},
		"a new leader":              {func(*Node) {}, func(in *Input) { in.Outages = seenSince(epoch.Add(-29 * time.Second)) }, "waits for control plane cp, which may have been in flight a moment ago"},
	} {
		w := newWorld()
		w.add(1, 1)
		w.nodes[0].ControlPlane = true
		other := w.nodes[0]
		other.Name = "cp"
		tt.change(&other)
		w.in.ControlPlanes = []Node{other}
		if tt.in != nil {
			tt.in(&w.in)
		}

		w.target("good")
		r := w.plan()
		assert.Equal(t, fmt.Sprint(len(r.Moves)), map[bool]string{true: "1", false: "0"}[tt.want == ""], name)
		if tt.want != "" {
			assert.Equal(t, r.Next.Message, "revision 1: 0 of 1 node updated; "+tt.want, name)
		}
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

// TestAControlPlaneThatMayBeAwayAnywayBegins beside another one that is
// NotReady.
func TestAControlPlaneThatMayBeAwayAnywayBegins(t *testing.T) {
	assigned := func(n *Node, term int64) {
		n.Source = given("other", revision(7, "other-x", "uid-x", "x"), epoch.Add(-time.Hour))
		n.Source.RolloutRef.Term = term
	}
	for name, tt := range map[string]struct {
		change func(*Node)
		want   bool
	}{
		"settled":                     {func(*Node) {}, false},
		"no control plane":            {func(n *Node) { n.ControlPlane = false }, true},
		"NotReady":                    {func(n *Node) { n.Ready = false }, true},
		"on trial":                    {func(n *Node) { n.InTrial = true }, true},
		"drained":                     {func(n *Node) { n.Drain.Rollout = "id" }, false},
		"unanswered":                  {func(n *Node) { assigned(n, 2); n.Generation++ }, true},
		"rejected before":             {func(n *Node) { assigned(n, 2); n.Generation++; n.OK, n.Reason = "False", "CrashLooped" }, true},
		"refuses":                     {func(n *Node) { assigned(n, 2); n.OK, n.Reason = "False", "WouldEvictPods" }, true},
		"rejected":                    {func(n *Node) { assigned(n, 2); n.OK, n.Reason = "False", "CrashLooped" }, false},
		"rejected just now":           {func(n *Node) { assigned(n, 2); n.OK, n.Reason, n.SettledAt = "False", "CrashLooped", epoch }, false},
		"returned":                    {func(n *Node) { assigned(n, 2); n.OK, n.Reason = "True", v1alpha1.ReasonAssignmentEnded }, false},
		"taken back":                  {func(n *Node) { n.Generation++ }, false},
		"stopped":                     {func(n *Node) { assigned(n, 2); n.OK, n.Reason = "Unknown", "StaleAssignment" }, true},
		"of another leader":           {func(n *Node) { assigned(n, 1); n.OK, n.Reason = "Unknown", "StaleAssignment" }, false},
		"of another leader, on trial": {func(n *Node) { assigned(n, 1); n.OK, n.Reason, n.InTrial = "Unknown", "StaleAssignment", true }, true},
		"of another leader, NotReady": {func(n *Node) { assigned(n, 1); n.OK, n.Reason, n.Ready = "Unknown", "StaleAssignment", false }, true},
	} {
		w := newWorld()
		w.add(1, 1)
		w.in.Now, w.in.Term = epoch, 2
		w.nodes[0].ControlPlane = true
		w.in.ControlPlanes = []Node{{Name: "cp", ControlPlane: true}}
		tt.change(&w.nodes[0])
		assert.Equal(t, newPlanner(w.in, w.nodes).mayBegin(0), tt.want, name)
	}
}
