package policy

import (
	"slices"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestStoppedRevisionsExcludeInconclusiveOnes(t *testing.T) {
	outcome := func(name, outcome, reason, message string) v1alpha1.RolloutOutcome {
		return v1alpha1.RolloutOutcome{ConfigMap: name, Outcome: outcome, Reason: reason, Message: message}
	}
	status := v1alpha1.NodeConfigRolloutStatus{}
	status.History = []v1alpha1.RolloutOutcome{
		outcome("failed", v1alpha1.OutcomeRolledBack, v1alpha1.HaltTooManyFailures, "Inconclusive: not this"),
		outcome("aborted", v1alpha1.OutcomeHalted, v1alpha1.HaltAborted, ""),
		outcome("outage", v1alpha1.OutcomeHalted, v1alpha1.HaltInconclusive, "TooManyFailures: not this"),
		outcome("unclear", v1alpha1.OutcomeHalted, "", ""),
		outcome("superseded", v1alpha1.OutcomeSuperseded, "", "revision 9 took its place"),
		outcome("target", v1alpha1.OutcomeHalted, v1alpha1.HaltAborted, ""),
	}
	want := []string{"aborted", "failed", "unclear"}
	got := stopped(&status, nil, rollout.Revision{Number: 9, Name: "target"})
	assert.That(t, slices.Equal(got, want), "got %v, want %v", got, want)
}
