package rollout

import "testing"

// Two nodes have revision 1, and one of them keeps another configuration. Whatever the reason is, it counts while it may still adopt
// revision 1: the next revision begins there, and on the other node only if this one has a final verdict.
func TestANodeThatMayStillAdoptAnEarlierRevisionUsesTheBudget(t *testing.T) {
	for reason, final := range map[string]bool{
		"ValidationFailed": true, "Revoked": true, "CrashLooped": true, "NotHealthy": true, "NotReady": true, "WorkloadHarmed": true, "LostAPI": true,
		"WouldEvictPods": false, "RestartWouldEvictPods": false, "NeedsDrain": false, "ProtectedFields": false, "SyncFailed": false, "ObjectChanged": false,
		"StaleAssignment": false, "CouldNotValidate": false, "Inconclusive": false, "WaitingForLock": false, "DeadEnd": false, "LocalInvalid": false,
		"ReasonOfANewerAgent": false,
	} {
		for _, c := range []struct {
			ok          string
			provisional bool
			want        int
		}{
			{ok: "Unknown", want: 1},
			{ok: "False", provisional: true, want: 1},
			{ok: "False", want: map[bool]int{true: 0, false: 1}[final]},
		} {
			if c.ok == "Unknown" && reason == agentStale {
				c.want = 0 // it adopts nothing until it gets another assignment: leftBehind
			}
			w := fleet(2)
			w.assigned("n1", "n2")
			w.proves("n1", "n2")
			n := w.node("n1")
			n.OK, n.Reason, n.Provisional, n.Active, n.LastKnownGood = c.ok, reason, c.provisional, Ref{"uid-r0", "r0"}, Ref{"uid-r0", "r0"}
			w.policy.MaxUnavailable = Amount{Value: 1}
			w.target("r2")
			w.policy.Frozen = true
			if r := w.plan(); r.Counts.Unavailable != c.want {
				t.Errorf("%s %s, provisional %t: %d nodes are unavailable, want %d", c.ok, reason, c.provisional, r.Counts.Unavailable, c.want)
			}
			w.policy.Frozen = false
			r := w.plan()
			if len(r.Moves) != 1 || r.Moves[0].Kind != Assign || c.want == 1 && r.Moves[0].Node != 0 {
				t.Errorf("%s %s, provisional %t: moves %+v", c.ok, reason, c.provisional, r.Moves)
			}
		}
	}
}

// undecidedFleet is a fleet of four nodes, of which one may be unavailable now. Three could not validate revision 1, and revision 2 is the
// target.
func undecidedFleet() *world {
	w := fleet(4)
	w.assigned("n1", "n2", "n3")
	for _, name := range []string{"n1", "n2", "n3"} {
		n := w.node(name)
		n.OK, n.Reason, n.InTrial, n.Active = "Unknown", "CouldNotValidate", false, Ref{}
	}
	w.policy.MaxFailures, w.policy.MaxUnavailable = Amount{Value: 100}, Amount{Value: 1}
	w.target("r2")
	return w
}

// replies has a node answer its assignment of the target.
func (w *world) replies(i int, ok, reason string) {
	n := &w.nodes[i]
	n.Observed, n.OK, n.Reason, n.InTrial = n.Generation, ok, reason, false
	if ok == "True" {
		n.Active, n.LastKnownGood = Ref{"uid-r2", "r2"}, Ref{"uid-r2", "r2"}
	}
}

func TestNodesThatMayStillAdoptAnEarlierRevisionDoNotBlockEachOther(t *testing.T) {
	w := undecidedFleet()
	for moved := range 4 {
		r := w.plan()
		if len(r.Moves) != 1 || r.Moves[0].Kind != Assign || moved < 3 && r.Moves[0].Node == 3 {
			t.Fatalf("after %d nodes: %s, moves %+v", moved, r.Message, r.Moves)
		}
		w.wantMoves(t) // until it has proven the target
		w.replies(r.Moves[0].Node, "True", "AllChecksPassed")
	}
	if r := w.plan(); r.Phase != PhaseComplete {
		t.Errorf("the rollout is %s in the end: %s", r.Phase, r.Message)
	}
}

func TestTheTargetBeginsOnNoMoreNodesThanTheBudgetAllows(t *testing.T) {
	w := undecidedFleet()
	first := w.plan().Moves[0].Node
	w.replies(first, "False", "CrashLooped")
	w.wantMoves(t)
	w.policy.Retry = Retry{Revision: w.policy.Target.Number, Attempt: 2}
	if moves := w.plan().Moves; len(moves) != 1 || moves[0].Node != first || moves[0].Source.Attempt != 2 {
		t.Errorf("a retry moves %+v, want %s", moves, w.nodes[first].Name)
	}
}
