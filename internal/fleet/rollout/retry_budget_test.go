package rollout

import "testing"

// failedFleet is a fleet of three nodes on which the target failed, and of which only one may be unavailable now.
func failedFleet() *world {
	w := fleet(3)
	w.assigned("n1", "n2", "n3")
	w.policy.MaxFailures, w.policy.MaxUnavailable = Amount{Value: 100}, Amount{Value: 1}
	for i := range w.nodes {
		n := &w.nodes[i]
		n.OK, n.Reason, n.InTrial, n.Active = "False", "CrashLooped", false, Ref{}
	}
	return w
}

func TestARetryWithMoreFailedNodesThanTheBudgetBeginsOnOneAfterTheOther(t *testing.T) {
	w := failedFleet()
	w.wantMoves(t)
	w.policy.Retry = Retry{Revision: 1, Attempt: 2}
	for tried := range 3 {
		r := w.plan()
		if len(r.Moves) != 1 || r.Moves[0].Kind != Assign || r.Moves[0].Source.Attempt != 2 {
			t.Fatalf("after %d nodes: moves %+v", tried, r.Moves)
		}
		w.wantMoves(t) // this one uses up the budget until it has proven the target
		n := &w.nodes[r.Moves[0].Node]
		n.Observed, n.OK, n.Reason, n.Active = n.Generation, "True", "AllChecksPassed", Ref{"uid-r1", "r1"}
		w.proves(n.Name)
	}
	if r := w.plan(); r.Phase != PhaseComplete {
		t.Errorf("the rollout is %s in the end: %s", r.Phase, r.Message)
	}
}

func TestARetryWaitsForAFailedNodeThatIsDownOrOnTrialIfTheBudgetIsUsedUp(t *testing.T) {
	for what, change := range map[string]func(w *world, n *Node){
		"NotReady": func(w *world, n *Node) { w.setNotReady(n, true) },
		"on trial": func(w *world, n *Node) { n.InTrial = true },
		"silent":   func(_ *world, n *Node) { n.Generation++ },
	} {
		w := failedFleet()
		w.policy.Retry = Retry{Revision: 1, Attempt: 2}
		change(w, w.node("n1"))
		r := w.plan()
		for _, m := range r.Moves {
			if name := w.nodes[m.Node].Name; name != "n1" {
				t.Errorf("n1 is %s and uses up the budget, and %s is assigned the target again", what, name)
			}
		}
	}
}

func TestARetryStaysWithinTheBudgetOfADomain(t *testing.T) {
	w := failedFleet()
	w.policy.MaxUnavailable, w.policy.MaxUnavailablePerDomain = Amount{Value: 3}, &Amount{Value: 1}
	w.policy.Retry = Retry{Revision: 1, Attempt: 2}
	if r := w.plan(); len(r.Moves) != 1 || r.Moves[0].Kind != Assign {
		t.Errorf("moves %+v", r.Moves)
	}
}
