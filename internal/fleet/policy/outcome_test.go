package policy

import (
	"slices"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestStopReasonPrefersTheFieldToTheMessage(t *testing.T) {
	for name, tt := range map[string]struct {
		outcome v1alpha1.RolloutOutcome
		want    string
	}{
		"the field": {v1alpha1.RolloutOutcome{Outcome: v1alpha1.OutcomeHalted, Reason: v1alpha1.HaltAborted, Message: "Aborted: stopped by a person"}, v1alpha1.HaltAborted},
		"the field, whatever the message says": {
			v1alpha1.RolloutOutcome{Outcome: v1alpha1.OutcomeHalted, Reason: v1alpha1.HaltTooManyFailures, Message: "Inconclusive: said otherwise"}, v1alpha1.HaltTooManyFailures},
		"a reason of a later version": {v1alpha1.RolloutOutcome{Outcome: v1alpha1.OutcomeHalted, Reason: "Later", Message: "Inconclusive: not this"}, "Later"},
		"an earlier version, halted":  {v1alpha1.RolloutOutcome{Outcome: v1alpha1.OutcomeHalted, Message: "Inconclusive: 2 nodes went NotReady"}, v1alpha1.HaltInconclusive},
		"an earlier version, rolled back": {
			v1alpha1.RolloutOutcome{Outcome: v1alpha1.OutcomeRolledBack, Message: "TooManyFailures: it failed on 1 node"}, v1alpha1.HaltTooManyFailures},
		"an earlier version, as if by chance": {v1alpha1.RolloutOutcome{Outcome: v1alpha1.OutcomeHalted, Message: "Inconclusively: no reason"}, ""},
		"nothing said":                        {v1alpha1.RolloutOutcome{Outcome: v1alpha1.OutcomeHalted}, ""},
		"not stopped":                         {v1alpha1.RolloutOutcome{Outcome: v1alpha1.OutcomeSuperseded, Message: "Inconclusive: not this"}, ""},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, StopReason(tt.outcome), tt.want) })
	}
}

func TestStoppedRevisionsExcludeInconclusiveOnes(t *testing.T) {
	outcome := func(name, outcome, reason, message string) v1alpha1.RolloutOutcome {
		return v1alpha1.RolloutOutcome{ConfigMap: name, Outcome: outcome, Reason: reason, Message: message}
	}
	status := v1alpha1.NodeConfigRolloutStatus{}
	status.History = []v1alpha1.RolloutOutcome{
		outcome("failed", v1alpha1.OutcomeRolledBack, v1alpha1.HaltTooManyFailures, "Inconclusive: not this"),
		outcome("aborted", v1alpha1.OutcomeHalted, v1alpha1.HaltAborted, ""),
		outcome("outage", v1alpha1.OutcomeHalted, v1alpha1.HaltInconclusive, "TooManyFailures: not this"),
		outcome("failed-earlier", v1alpha1.OutcomeHalted, "", "TooManyFailures: it failed on 1 node"),
		outcome("outage-earlier", v1alpha1.OutcomeHalted, "", "Inconclusive: 2 nodes went NotReady"),
		outcome("unclear", v1alpha1.OutcomeHalted, "", ""),
		outcome("superseded", v1alpha1.OutcomeSuperseded, "", "revision 9 took its place"),
		outcome("target", v1alpha1.OutcomeHalted, v1alpha1.HaltAborted, ""),
	}
	want := []string{"aborted", "failed", "failed-earlier", "unclear"}
	got := stopped(&status, nil, rollout.Revision{Number: 9, Name: "target"})
	assert.That(t, slices.Equal(got, want), "got %v, want %v", got, want)
}
