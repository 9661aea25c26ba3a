// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

func TestTheHistorySaysWhyARevisionWasStopped(t *testing.T) {
	now := metav1.Now()
	r := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
	r.Status = v1alpha1.NodeConfigRolloutStatus{
		Phase: v1alpha1.RolloutHalted, Halt: &v1alpha1.RolloutHalt{Attempt: 1, Reason: v1alpha1.HaltAborted},
		UpdateRevision: &v1alpha1.RolloutRevision{Number: 4, ConfigMapRef: v1alpha1.ConfigMapReference{Name: "r-4"}},
		History: []v1alpha1.RolloutOutcome{
			{Revision: 3, Outcome: v1alpha1.OutcomeSucceeded, EndTime: &now},
			{Revision: 2, Outcome: v1alpha1.OutcomeRolledBack, Reason: v1alpha1.HaltTooManyFailures, EndTime: &now},
			{Revision: 1, Outcome: v1alpha1.OutcomeHalted, Reason: v1alpha1.HaltInconclusive, EndTime: &now},
		},
	}
	list := func() []string {
		var got []string
		for _, p := range revisionsOf(r, nil) {
			got = append(got, fmt.Sprintf("%d %s %s", p.Revision, p.Outcome, p.Reason))
		}

		return got
	}
	want := []string{"1 Halted Inconclusive", "2 RolledBack TooManyFailures", "3 Succeeded ", "4 Halted Aborted"}
	if got := list(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}

	// The halt of an earlier attempt does not count while the next one is in
	// progress.
	r.Status.History = []v1alpha1.RolloutOutcome{{Revision: 4, Outcome: v1alpha1.OutcomeHalted, Reason: v1alpha1.HaltAborted, EndTime: &now}}
	r.Status.Phase, r.Status.Halt = v1alpha1.RolloutProgressing, nil
	if got := list(); !slices.Equal(got, []string{"4 Progressing "}) {
		t.Errorf("in the next attempt: %q", got)
	}
}
