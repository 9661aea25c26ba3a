package trial

import (
	"fmt"
	"testing"
	"time"
)

// TestBadEntryOfCurrentSurvivesManyRejections: current and last-known-good must not run again because the list of bad
// configurations is limited.
func TestBadEntryOfCurrentSurvivesManyRejections(t *testing.T) {
	n := newNodeSim(t)
	n.healthy, n.limits.CrashLoopThreshold = true, 0
	n.start()
	n.intent = Intent{Kind: Assigned, Config: randomConfig(1, 0)}
	n.converge()
	n.exit("exit status 1", true)
	n.pass(2 * time.Minute)
	if b, bad := n.state.BadEntry(randomConfig(1, 0)); !bad || b.Provisional {
		t.Fatalf("it is not bad: %+v", n.state.Bad)
	}
	for i := range 3 * maxBad {
		c := Config{Revision: fmt.Sprintf("rejected-%d", i), UID: "rejected", Payload: fmt.Sprintf("sha-rejected-%d", i)}
		n.dryRuns[c.Revision] = Verdict{Outcome: Rejected, Message: "no"}
		n.intent = Intent{Kind: Assigned, Config: c}
		n.converge()
		if !n.state.Run.Config.IsLocal() {
			t.Fatalf("after %d rejections it runs again: %+v", i+1, n.state.Run.Config)
		}
	}
	if len(n.state.Bad) != maxBad || n.state.Bad[0].Revision != fmt.Sprintf("rejected-%d", 3*maxBad-1) {
		t.Errorf("%d entries, the newest is %s", len(n.state.Bad), n.state.Bad[0].Revision)
	}
	n.kill()
	n.start()
	if !n.state.Run.Config.IsLocal() {
		t.Errorf("the next agent runs it again: %+v", n.state.Run.Config)
	}
}
