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

func TestAClosedWindowTakesRefusedAssignmentsBackFromCordonedNodes(t *testing.T) {
	for name, c := range map[string]struct {
		maintenance string
		opens       time.Duration
		want        []string
	}{
		"cordoned, closed":     {Cordoned, 12 * time.Hour, []string{"TakeBack n1"}},
		"not cordoned, closed": {"", 12 * time.Hour, []string{"TakeBack n1"}},
		"cordoned, open":       {Cordoned, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := fleet(1)
			w.assigned("n1")
			w.judge("False", v1alpha1.ReasonWouldEvictPods, "n1")
			w.target("r2")
			w.setMaintenance(w.node("n1"), c.maintenance)
			w.in.Windows = []Window{{daily{c.opens}, time.Hour, false}}
			w.wantMoves(t, c.want...)
		})
	}
}

// The node got the content as revision 1, which became the target again as
// revision 2.
func TestADrainThatIsGivenUpEndsForContentOfAnEarlierRevision(t *testing.T) {
	w := fleet(1)
	w.assigned("n1")
	w.judge("False", v1alpha1.ReasonCrashLooped, "n1")
	w.in.Spec.Strategy.Drain, w.in.Target.Number = v1alpha1.DrainAlways, 2
	w.in.Status.UpdateRevision, w.in.Status.Attempt, w.in.Spec.Retry = new(w.in.Target), 2, &v1alpha1.RolloutRetry{Revision: 2, Attempt: 2}
	w.drains("n1", 2)
	n := w.node("n1")
	n.Drain.Revision = 2
	n.DrainReport.Refused = "pod default/db must not be evicted"
	w.now = epoch.Add(time.Minute)
	r := w.plan()
	assert.That(t, len(r.Moves) == 1 && r.Moves[0].Kind == TakeBack && r.Moves[0].Source == nil,
		"moves are %+v, want the assignment to be taken back", r.Moves)
	assert.That(t, len(r.Taints) == 1 && r.Taints[0].Drain == (Drain{}), "taints are %+v, want the node to be released", r.Taints)
	w.now = w.now.Add(time.Second)
	if r := w.plan(); len(r.Taints) > 0 {
		t.Errorf("another drain begins: %+v", r.Taints)
	}
}

// The preflight was turned on while n1 was on trial.
func TestAGateStopsTheRevisionDuringItsPreflight(t *testing.T) {
	w := fleet(2)
	w.assigned("n1")
	w.holdByGate()
	w.in.Spec.Strategy.Gates[0].Failures = 2
	w.in.Spec.Strategy.Preflight = v1alpha1.PreflightRequire
	w.in.Status.Preflight = &v1alpha1.PreflightResult{StartTime: metav1.NewTime(epoch)}
	w.now = epoch.Add(time.Minute)
	if r := w.plan(); len(r.Ask) == 0 || !slices.Equal(r.Measure, []string{"errors"}) {
		t.Fatalf("asked are nodes %v, and gates %q are evaluated", r.Ask, r.Measure)
	}

	w.in.Measurements = []Measurement{{Gate: "errors", Server: "main", Query: "errors", Time: w.now, Value: 2}}
	w.now = w.now.Add(time.Second)
	if h := w.plan().Next.Halt; h == nil || h.Reason != v1alpha1.HaltGateFailed || h.Message != "gate errors failed 2 times in a row: value 2, must be < 1; query: errors" {
		t.Errorf("the stop is %+v", h)
	}
}

func TestAGateDoesNotHoldNodesThatAreDrained(t *testing.T) {
	w := fleet(2)
	w.assigned() // none
	w.in.Spec.Strategy.Drain = v1alpha1.DrainAlways
	w.drains("n1", 1)
	w.holdByGate()
	w.wantMoves(t, "Assign n1")
}

func TestNoDrainBeginsWhileAGateHoldsTheRollout(t *testing.T) {
	for name, held := range map[string]bool{"the gate fails": true, "no gate": false} {
		t.Run(name, func(t *testing.T) {
			w := fleet(1)
			w.assigned("n1")
			w.judge("False", v1alpha1.ReasonWouldEvictPods, "n1")
			w.in.Spec.Strategy.Drain = v1alpha1.DrainWhenBlocked
			if held {
				w.holdByGate()
			}

			r := w.plan()
			assert.That(t, (len(r.Taints) > 0) != held, "taints are %+v", r.Taints)
		})
	}
}

// n1 was assigned the content as revision 1, before that became the target
// again as revision 2, and never accepted it. It must not use up the budget for
// ever.
func TestContentThatBecomesTheTargetAgainDoesNotUseUpTheBudget(t *testing.T) {
	for name, c := range map[string]struct {
		drain  v1alpha1.DrainMode
		happen func(w *world, n *Node)
		moves  []string
		taints int
	}{
		"it refuses the content":              {v1alpha1.DrainNever, func(w *world, _ *Node) { w.judge("False", v1alpha1.ReasonWouldEvictPods, "n1") }, []string{"TakeBack n1"}, 0},
		"it refuses the content, with drains": {v1alpha1.DrainWhenBlocked, func(w *world, _ *Node) { w.judge("False", v1alpha1.ReasonWouldEvictPods, "n1") }, nil, 1},
		"its agent is silent":                 {v1alpha1.DrainNever, func(_ *world, n *Node) { n.Observed, n.Active, n.InTrial = 1, nil, false }, []string{"TakeBack n1"}, 0},
		"its agent is silent, but it runs it": {v1alpha1.DrainNever, func(_ *world, n *Node) { n.Observed = 1 }, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := fleet(2)
			w.assigned("n1")
			w.in.Spec.Strategy.MaxUnavailable, w.in.Spec.Strategy.Drain, w.in.Target.Number = number(1), c.drain, 2
			c.happen(w, w.node("n1"))
			w.now = epoch.Add(10 * time.Minute)
			w.wantMoves(t, c.moves...)
			taints := 0
			for i := range w.nodes {
				if w.nodes[i].Drain.Rollout != "" {
					taints++
				}
			}

			assert.That(t, taints == c.taints, "%d nodes are drained, want %d", taints, c.taints)
		})
	}
}

// The step was approved in advance, so that its gate is evaluated, and there is
// room for more nodes.
func TestOnlyGatesThatAlwaysHoldKeepNodesFromBeingAssigned(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(g *v1alpha1.RolloutGate, is *v1alpha1.GateStatus)
		want []string
	}{
		"it fails": {func(*v1alpha1.RolloutGate, *v1alpha1.GateStatus) {}, nil},
		"it passed before the step was done": {func(_ *v1alpha1.RolloutGate, is *v1alpha1.GateStatus) {
			is.State, is.Failures = v1alpha1.GatePassing, 0
		}, []string{"Assign n1", "Assign n2"}},
		"it fails, after steps only": {func(g *v1alpha1.RolloutGate, _ *v1alpha1.GateStatus) { g.Every = v1alpha1.GateEveryStep }, []string{"Assign n1", "Assign n2"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := fleet(2)
			w.assigned() // none
			w.in.Spec.Approval = &v1alpha1.RolloutApproval{Revision: 1, Step: 9}
			w.holdByGate()
			c.set(&w.in.Spec.Strategy.Gates[0], &w.in.Status.Gates[0])
			w.wantMoves(t, c.want...)
		})
	}
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
		joins := 0
		for _, m := range w.plan().Moves {
			if m.Kind == Join {
				joins++
			}
		}

		assert.That(t, joins == c.want, "%s: %d nodes join, want %d", name, joins, c.want)
	}
}
