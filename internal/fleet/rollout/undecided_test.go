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
