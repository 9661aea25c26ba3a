package agent

import (
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/component"
)

func TestOldRejectionsAreDroppedExceptThatOfLocal(t *testing.T) {
	c := newChecks(nil)
	for _, revision := range []string{"", "a", "runs"} {
		c.put(revision, component.Verdict{Outcome: component.Rejected})
	}
	soon, later := time.Now().Add(recheckAfter/2), time.Now().Add(2*recheckAfter)
	for _, tt := range []struct {
		what  string
		now   time.Time
		alive bool
		asked bool // the verdict on a is gone
	}{
		{"soon", soon, true, false},
		{"while no kubelet runs", later, false, false},
		{"later", later, true, true},
	} {
		c.dropUndecided(tt.now, "runs", tt.alive)
		verdicts := c.all()
		_, has := verdicts["a"]
		_, local := verdicts[""]
		_, runs := verdicts["runs"]
		if has == tt.asked || !local || !runs {
			t.Errorf("%s: the verdicts are %v", tt.what, verdicts)
		}
	}
}
