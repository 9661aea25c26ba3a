package policy_test

import (
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
)

func TestTheReasonOfAStopIsTheFieldAndOnlyWithoutItTheMessage(t *testing.T) {
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
		t.Run(name, func(t *testing.T) {
			if got := policy.StopReason(tt.outcome); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
