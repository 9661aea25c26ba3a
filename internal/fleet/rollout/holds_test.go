package rollout

import (
	"slices"
	"testing"
	"time"
)

// refuse has a node refuse its assignment because of its pods, while it runs its local configuration.
func (w *world) refuse(name string) {
	n := w.node(name)
	n.Active, n.InTrial, n.OK, n.Reason = Ref{}, false, "False", agentEvicts
}

// holdByGate adds a gate that fails, and stops nothing yet.
func (w *world) holdByGate() {
	w.policy.Gates = []Gate{{Name: "errors", Server: "main", Query: "errors", Passes: Comparison{"<", 1}, Interval: time.Minute, Always: true, Failures: 5}}
	w.progress.Gates = []GateProgress{{Name: "errors", State: GateFailing, Value: "2", Time: epoch, Failures: 1}}
}

// drains has a node be drained for revision 1 since the beginning, and its pods be gone.
func (w *world) drains(name string, attempt int64) {
	n := w.node(name)
	n.Drain, n.DrainReport = Drain{Rollout: w.policy.DrainID, Revision: 1, Attempt: attempt, Since: epoch}, &DrainReport{Time: epoch}
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
			w.refuse("n1")
			w.target("r2")
			w.setMaintenance(w.node("n1"), c.maintenance)
			w.policy.Windows = []Window{{daily{c.opens}, time.Hour, false}}
			w.wantMoves(t, c.want...)
		})
	}
}

// The node got the content as revision 1, which became the target again as revision 2.
func TestADrainThatIsGivenUpEndsForContentOfAnEarlierRevision(t *testing.T) {
	w := fleet(1)
	w.assigned("n1")
	n := w.node("n1")
	n.Active, n.InTrial, n.OK, n.Reason = Ref{}, false, "False", agentCrashLooped
	w.policy.Drain, w.policy.Target.Number = DrainAlways, 2
	w.progress.Revision, w.progress.Attempt, w.policy.Retry = 2, 2, Retry{Revision: 2, Attempt: 2}
	w.drains("n1", 2)
	n.Drain.Revision = 2
	n.DrainReport.Refused = "pod default/db must not be evicted"
	w.now = epoch.Add(time.Minute)
	r := w.plan()
	if len(r.Moves) != 1 || r.Moves[0].Kind != TakeBack || r.Moves[0].Source.Kind != SourceNone {
		t.Errorf("moves are %+v, want the assignment to be taken back", r.Moves)
	}
	if len(r.Taints) != 1 || r.Taints[0].Drain != (Drain{}) {
		t.Errorf("taints are %+v, want the node to be released", r.Taints)
	}
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
	w.policy.Gates[0].Failures = 2
	w.policy.Preflight = PreflightRequire
	w.progress.Preflight = &PreflightResult{Started: epoch}
	w.now = epoch.Add(time.Minute)
	if r := w.plan(); len(r.Ask) == 0 || !slices.Equal(r.Measure, []string{"errors"}) {
		t.Fatalf("asked are nodes %v, and gates %q are evaluated", r.Ask, r.Measure)
	}
	w.policy.Measurements = []Measurement{{Gate: "errors", Server: "main", Query: "errors", Time: w.now, Value: 2}}
	w.now = w.now.Add(time.Second)
	if h := w.plan().Next.Halt; h == nil || h.Reason != HaltGateFailed || h.Message != "gate errors failed 2 times in a row: value 2, must be < 1; query: errors" {
		t.Errorf("the stop is %+v", h)
	}
}

func TestAGateDoesNotHoldNodesThatAreDrained(t *testing.T) {
	w := fleet(2)
	w.assigned() // none
	w.policy.Drain = DrainAlways
	w.drains("n1", 1)
	w.holdByGate()
	w.wantMoves(t, "Assign n1")
}

func TestNoDrainBeginsWhileAGateHoldsTheRollout(t *testing.T) {
	for name, held := range map[string]bool{"the gate fails": true, "no gate": false} {
		t.Run(name, func(t *testing.T) {
			w := fleet(1)
			w.assigned("n1")
			w.refuse("n1")
			w.policy.Drain = DrainWhenBlocked
			if held {
				w.holdByGate()
			}
			if r := w.plan(); (len(r.Taints) > 0) == held {
				t.Errorf("taints are %+v", r.Taints)
			}
		})
	}
}

// n1 was assigned the content as revision 1, before that became the target again as revision 2, and never accepted it. It must not use up
// the budget for ever.
func TestContentThatBecomesTheTargetAgainDoesNotUseUpTheBudget(t *testing.T) {
	for name, c := range map[string]struct {
		drain  DrainMode
		happen func(w *world, n *Node)
		moves  []string
		taints int
	}{
		"it refuses the content":              {DrainNever, func(w *world, _ *Node) { w.refuse("n1") }, []string{"TakeBack n1"}, 0},
		"it refuses the content, with drains": {DrainWhenBlocked, func(w *world, _ *Node) { w.refuse("n1") }, nil, 1},
		"its agent is silent":                 {DrainNever, func(_ *world, n *Node) { n.Observed, n.Active, n.InTrial = 1, Ref{}, false }, []string{"TakeBack n1"}, 0},
		"its agent is silent, but it runs it": {DrainNever, func(_ *world, n *Node) { n.Observed = 1 }, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := fleet(2)
			w.assigned("n1")
			w.policy.MaxUnavailable, w.policy.Drain, w.policy.Target.Number = Amount{Value: 1}, c.drain, 2
			c.happen(w, w.node("n1"))
			w.now = epoch.Add(10 * time.Minute)
			w.wantMoves(t, c.moves...)
			taints := 0
			for i := range w.nodes {
				if w.nodes[i].Drain.Rollout != "" {
					taints++
				}
			}
			if taints != c.taints {
				t.Errorf("%d nodes are drained, want %d", taints, c.taints)
			}
		})
	}
}
