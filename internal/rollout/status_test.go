// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestARecreatedTargetUpdatesItsUIDInTheHistory(t *testing.T) {
	d := newPlanner(Input{Target: revision(3, "r-a", "is", "sa"), Status: v1alpha1.NodeConfigRolloutStatus{
		CurrentRevision: &v1alpha1.RolloutRevision{Number: 1, ConfigMapRef: v1alpha1.ConfigMapReference{Name: "r-a", UID: "was", SHA256: "sa"}},
		History: []v1alpha1.RolloutOutcome{
			{Revision: 1, ConfigMap: "r-a", UID: "was", SHA256: "sa"}, {Revision: 2, ConfigMap: "r-b", UID: "ub", SHA256: "sb"}, {Revision: 0, ConfigMap: "r-a"},
		},
	}}, nil)
	d.updateTargetUID()
	st := d.Next
	assert.That(t, st.History[0].UID == "is" && st.History[1].UID == "ub" && st.History[2].UID == "" && st.CurrentRevision.ConfigMapRef.UID == "is",
		"the status says %+v and %+v", st.History, st.CurrentRevision)
}

// A revision that failed stays so in the history, whatever becomes of it: a
// retry that succeeds, one that fails again, or is replaced.
func TestTheHistoryKeepsTheFailuresOfEarlierAttempts(t *testing.T) {
	const first = "TooManyFailures: 1 node failed (limit 1): n1 CrashLooped"
	const where = "now 26 on revision 1, 23 on the local configuration"
	type step struct {
		revision, attempt int64
		phase             v1alpha1.RolloutPhase
		stop              string // why the revision is stopped; empty: it is not
		succeeded         bool
		where             string
	}
	failed := step{2, 1, v1alpha1.RolloutHalted, "1 node failed (limit 1): n1 CrashLooped", false, ""}
	back := step{2, 1, v1alpha1.RolloutRolledBack, failed.stop, false, where}
	retried := step{2, 2, v1alpha1.RolloutProgressing, "", false, ""}
	succeeded := step{2, 2, v1alpha1.RolloutComplete, "", true, ""}
	again := step{2, 2, v1alpha1.RolloutHalted, "1 node failed (limit 1): n2 Timeout", false, ""}
	replaced := step{3, 1, v1alpha1.RolloutProgressing, "", false, ""}
	for name, tt := range map[string]struct {
		play          []step
		outcome, want string
	}{
		"it failed":                      {[]step{failed, failed}, v1alpha1.OutcomeHalted, first},
		"rolled back":                    {[]step{failed, back, back}, v1alpha1.OutcomeRolledBack, first + "; " + where},
		"a retry in progress":            {[]step{failed, retried}, v1alpha1.OutcomeHalted, first},
		"a retry that succeeds":          {[]step{failed, retried, succeeded, succeeded}, v1alpha1.OutcomeSucceeded, "earlier: " + first},
		"a retry that fails":             {[]step{failed, retried, again, again}, v1alpha1.OutcomeHalted, "TooManyFailures: attempt 2: 1 node failed (limit 1): n2 Timeout; earlier: " + first},
		"a retry that is replaced":       {[]step{failed, retried, replaced}, v1alpha1.OutcomeHalted, first},
		"replaced before it was decided": {[]step{{revision: 2, attempt: 1}, replaced}, v1alpha1.OutcomeSuperseded, "replaced by revision 3; failed: n1 CrashLooped"},
	} {
		t.Run(name, func(t *testing.T) {
			n := Node{Name: "n1", Ready: true, OK: "False", Reason: v1alpha1.ReasonCrashLooped, Source: given("r", revision(2, "r-1", "", "a"), epoch)}
			in := Input{Claim: Claim{Name: "r"}, Now: epoch}
			for _, s := range tt.play {
				in.Target = revision(s.revision, "r-1", "", "a")
				d := newPlanner(in, []Node{n})
				d.startRevision()
				d.failed, d.succeeded, d.back.where, d.Next.Attempt, d.Next.Halt = []int{0}, s.succeeded, s.where, s.attempt, nil
				if s.stop != "" {
					d.halt(v1alpha1.HaltTooManyFailures, s.stop, s.where != "")
				}

				d.completeStatus(s.phase, "")
				in.Status = d.Next
			}

			got := in.Status.History[len(in.Status.History)-1]
			assert.Equal(t, got.Outcome, tt.outcome, "the outcome")
			assert.Equal(t, got.Message, tt.want, "the message")
		})
	}
}
