// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// holdByGate adds a gate that fails, and stops nothing yet.
func (w *world) holdByGate() {
	g := gate("errors", "< 1", time.Minute)
	g.Every, g.Failures = v1alpha1.GateAlways, 5
	w.in.Spec.Strategy.Gates = []v1alpha1.RolloutGate{g}
	w.in.Status.Gates = []v1alpha1.GateStatus{{Name: "errors", State: v1alpha1.GateFailing, Value: "2", Time: apiTime(epoch), Failures: 1}}
}

// drains has a node be drained for revision 1 since the beginning, and its pods
// be gone.
func (w *world) drains(name string, attempt int64) {
	n := w.node(name)
	n.Drain, n.DrainReport = Drain{Rollout: w.in.DrainID, Revision: 1, Attempt: attempt, Since: epoch}, &DrainReport{Time: epoch}
}

func TestWhichMeasurementsCount(t *testing.T) {
	for name, c := range map[string]struct {
		always bool
		since  time.Duration // when the step was done; 0: it is not
		at     time.Duration
		change func(m *Measurement)
		want   bool
	}{
		"always":                      {true, 0, time.Minute, nil, true},
		"always, not later":           {true, 0, 10 * time.Second, nil, false},
		"always, before the attempt":  {true, 0, -time.Second, nil, false},
		"before the step is done":     {false, 0, time.Minute, nil, false},
		"when the step was done":      {false, time.Minute, time.Minute, nil, true},
		"just before that":            {false, time.Minute, time.Minute - time.Second, nil, false},
		"of another gate":             {true, 0, time.Minute, func(m *Measurement) { m.Gate = "alerts" }, false},
		"of another server":           {true, 0, time.Minute, func(m *Measurement) { m.Server = "other" }, false},
		"of the query before an edit": {true, 0, time.Minute, func(m *Measurement) { m.Query = "other" }, false},
	} {
		g := gate("errors", "< 1", time.Minute)
		if c.always {
			g.Every = v1alpha1.GateAlways
		}

		is := v1alpha1.GateStatus{Name: "errors", Time: apiTime(epoch.Add(10 * time.Second))}
		d := newPlanner(Input{Status: v1alpha1.NodeConfigRolloutStatus{AttemptTime: apiTime(epoch)}}, nil)
		if c.since > 0 {
			d.GatesSince = epoch.Add(c.since)
		}

		m := Measurement{Gate: "errors", Server: "main", Query: "errors", Time: epoch.Add(c.at)}
		if c.change != nil {
			c.change(&m)
		}

		assert.Equal(t, d.applies(&g, &is, &m), c.want, name)
	}
}

// Nodes that joined with another rollout, or do not use their NodeConfig any
// more, take no place of those that join with this one.
func TestOnlyNodesOfTheRolloutUseUpMaxJoining(t *testing.T) {
	for name, c := range map[string]struct {
		change func(n *Node)
		want   int
	}{
		"it joins with this rollout":      {func(*Node) {}, 1},
		"another rollout has it":          {func(n *Node) { n.Owner = "zone" }, 2},
		"it has its own ConfigMap":        {func(n *Node) { n.OtherSource = "ConfigMap" }, 2},
		"another rollout assigned it":     {func(n *Node) { n.Source.By().Name, n.Observation.Rollout = "zone", "zone" }, 2},
		"it went back to local":           {func(n *Node) { n.Source.ConfigMapRef, n.Source.Local = nil, &v1alpha1.LocalSource{} }, 2},
		"it did not join":                 {func(n *Node) { n.Observation.Joined = false }, 2},
		"it has proven the configuration": {func(n *Node) { n.LastKnownGood = n.Active; n.InTrial = false }, 2},
	} {
		w := newcomers(4)
		for i := range w.nodes {
			w.nodes[i].Idle = false
		}

		w.assigned("n2")
		n := w.node("n2")
		w.succeed()
		n.Source.By().AssignedAt.Time = w.now
		n.Observation = Observation{Rollout: "workers", Revision: 1, Attempt: 1, Joined: true}
		c.change(n)
		joins := slices.DeleteFunc(w.plan().Moves, func(m Move) bool { return m.Kind != Join })
		assert.Equal(t, len(joins), c.want, name, "nodes join")
	}
}

func TestTheRolloutWithPrecedenceHasTheNode(t *testing.T) {
	old, young := epoch, epoch.Add(time.Hour)
	flying := Node{Source: given("b", v1alpha1.RolloutRevision{}, time.Time{}), Generation: 2, Observed: 1}
	settled := flying
	settled.Observed = 2
	for _, tt := range []struct {
		name   string
		claims []Claim
		node   Node
		want   string
	}{
		{"nobody selects it", nil, Node{}, ""},
		{"the higher priority", []Claim{{"a", 0, old}, {"b", 1, young}}, Node{}, "b"},
		{"then the older", []Claim{{"a", 1, young}, {"b", 1, old}}, Node{}, "b"},
		{"then by name", []Claim{{"b", 1, old}, {"a", 1, old}}, Node{}, "a"},
		{"a node in flight is not taken away", []Claim{{"a", 9, old}, {"b", 0, young}}, flying, "b"},
		{"one that has landed is", []Claim{{"a", 9, old}, {"b", 0, young}}, settled, "a"},
		{"one in flight for who does not select it any more is", []Claim{{"a", 9, old}, {"c", 0, young}}, flying, "a"},
	} {
		assert.Equal(t, Holder(tt.claims, &tt.node), tt.want, tt.name)
	}
}

func TestANodeRejectsItsAssignmentOnlyInAnAnswerToIt(t *testing.T) {
	for name, c := range map[string]struct {
		change func(n *Node)
		want   bool
	}{
		"it rejects it":                {func(*Node) {}, true},
		"it has not answered yet":      {func(n *Node) { n.Observed-- }, false},
		"for another reason":           {func(n *Node) { n.Reason = v1alpha1.ReasonInconclusive }, false},
		"it accepts it":                {func(n *Node) { n.OK = "True" }, false},
		"no rollout assigned it":       {func(n *Node) { n.Source = &v1alpha1.NodeConfigSource{ConfigMapRef: n.Source.ConfigMapRef} }, false},
		"an older answer was the same": {func(n *Node) { n.Observed, n.OK = 1, "Unknown" }, false},
	} {
		w := fleet(1)
		w.assigned("n1")
		n := w.node("n1")
		n.OK, n.Reason, n.InTrial = "Unknown", v1alpha1.ReasonStaleAssignment, false
		c.change(n)
		assert.Equal(t, n.stale(), c.want, name)
		got := n.inFlight()
		assert.That(t, got == (n.Source.By().Name != "" && (c.want || n.Observed != n.Generation)), "%s: in flight: %t", name, got)
	}
}

func TestARetryWaitsForAFailedNodeThatIsDownOrOnTrialIfTheBudgetIsUsedUp(t *testing.T) {
	for what, change := range map[string]func(w *world, n *Node){
		"NotReady": func(w *world, n *Node) { w.setNotReady(n, true) },
		"on trial": func(w *world, n *Node) { n.InTrial = true },
		"silent":   func(_ *world, n *Node) { n.Generation++ },
	} {
		w := fleet(3)
		w.assigned("n1", "n2", "n3")
		w.judge("False", v1alpha1.ReasonCrashLooped, "n1", "n2", "n3")
		w.in.Spec.FailurePolicy.MaxFailures, w.in.Spec.Strategy.MaxUnavailable = number(100), number(1)
		w.in.Spec.Retry = &v1alpha1.RolloutRetry{Revision: 1, Attempt: 2}
		change(w, w.node("n1"))
		r := w.plan()
		for _, m := range r.Moves {
			assert.That(t, w.nodes[m.Node].Name == "n1",
				"n1 is %s and uses up the budget, and %s is assigned the target again", what, w.nodes[m.Node].Name)
		}
	}
}

// crowdedFleet is a fleet of five nodes, of which two may be unavailable. Three
// refuse revision 1 because of their pods, and revision 2, the target, has
// failed on some of the others.
func crowdedFleet(failed int) *world {
	w := fleet(5)
	w.assigned("n1", "n2", "n3", "n4", "n5")
	w.in.Spec.FailurePolicy.MaxFailures, w.in.Spec.Strategy.MaxUnavailable = number(100), number(2)
	w.target("r2")
	w.in.Status.UpdateRevision = new(w.in.Target)
	w.judge("False", v1alpha1.ReasonWouldEvictPods, "n1", "n2", "n3", "n4", "n5")
	for i, n := range each(w.nodes) {
		if i >= 3 {
			n.OK, n.Reason, n.Active = "True", v1alpha1.ReasonAllChecksPassed, ref("uid-r1", "r1")
			n.LastKnownGood = n.Active
		}

		if i >= 5-failed {
			n.OK, n.Reason = "False", v1alpha1.ReasonCrashLooped
			n.Source.Content().UID, n.Source.Content().SHA256, n.Source.By().Revision = "uid-r2", "r2", 2
		}
	}

	return w
}

func TestTheTargetBeginsOnNoMoreNodesThanTheBudgetAllows(t *testing.T) {
	for _, drain := range []v1alpha1.DrainMode{v1alpha1.DrainNever, v1alpha1.DrainAlways} {
		for failed, want := range []int{2, 1, 0} {
			w := crowdedFleet(failed)
			w.in.Spec.Strategy.Drain = drain
			r := w.plan()
			for range 3 {
				r.Moves = append(r.Moves, w.plan().Moves...)
			}

			begun := 0
			for i := range w.nodes {
				if n := &w.nodes[i]; n.Drain.Rollout != "" || n.Source.Content().SHA256 == "r2" {
					begun++
				}
			}

			assert.Equal(t, begun-failed, want, "drain", drain, "the target begins after", failed, "have failed, with the moves", r.Moves)
		}
	}
}

func TestARejectedAssignmentOfTheTargetDoesNotWaitForNodesThatRefuseAnEarlierRevision(t *testing.T) {
	w := crowdedFleet(0)
	w.in.Term, w.in.Spec.Strategy.MaxUnavailable = 2, number(1)
	n := w.node("n5")
	n.OK, n.Reason, n.Source.Content().UID, n.Source.Content().SHA256, n.Source.By().Revision, n.Source.By().Term = "Unknown", v1alpha1.ReasonStaleAssignment, "uid-r2", "r2", 2, 1
	n.Active, n.LastKnownGood = nil, nil
	moves := w.plan().Moves
	assert.That(t, len(moves) == 1, "moves %+v, want one", moves)
}

func TestOnlyAFewStartProbesRunAtATime(t *testing.T) {
	w := fleet(2*maxProbes + 1)
	w.in.Controller.StartProbe, w.in.Spec.Strategy.StartProbe = new(true), v1alpha1.StartProbeAll
	most := 0
	for range 30 {
		w.act()
		w.plan()
		most = max(most, len(w.last.Probe))
		w.now = w.now.Add(10 * time.Second)
	}

	assert.Equal(t, most, maxProbes, "start probes at a time")
	assert.Equal(t, w.last.Counts.Updated, 2*maxProbes+1, "nodes that passed")
}
