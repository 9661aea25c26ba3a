// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
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
	got := stopped(&status, nil, "target")
	assert.That(t, slices.Equal(got, want), "got %v, want %v", got, want)
}

// A revision that succeeded and was aborted later is nothing to return to.
func TestAnUndoPassesOverARevisionThatFailedAfterItsSuccess(t *testing.T) {
	revision := func(number int64, sha256 string) *v1alpha1.RolloutRevision {
		return &v1alpha1.RolloutRevision{Number: number, ConfigMapRef: v1alpha1.ConfigMapReference{Name: "workers-" + sha256, SHA256: sha256}}
	}
	entry := func(number int64, sha256, outcome, reason string) v1alpha1.RolloutOutcome {
		return v1alpha1.RolloutOutcome{Revision: number, ConfigMap: "workers-" + sha256, SHA256: sha256, Outcome: outcome, Reason: reason, Message: reason}
	}
	r := &v1alpha1.NodeConfigRollout{Status: v1alpha1.NodeConfigRolloutStatus{
		UpdateRevision: revision(3, "c"), CurrentRevision: revision(2, "b"),
		History: []v1alpha1.RolloutOutcome{
			entry(2, "b", v1alpha1.OutcomeRolledBack, v1alpha1.HaltAborted), entry(1, "a", v1alpha1.OutcomeSucceeded, ""),
		},
	}}
	assert.Equal(t, PreviousRevision(&r.Status), 1, "after the abort it returns")
	r.Status.History[0].Outcome = v1alpha1.OutcomeSucceeded
	assert.Equal(t, PreviousRevision(&r.Status), 2, "after a success it returns")
	r.Status.History[1].Revision, r.Status.History[0] = 0, entry(2, "b", v1alpha1.OutcomeHalted, v1alpha1.HaltTooManyFailures)
	r.Status.History = r.Status.History[:1]
	assert.Equal(t, PreviousRevision(&r.Status), 0, "without any it returns")
}
