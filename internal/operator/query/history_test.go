// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
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
	list := func() string {
		var got []string
		for _, p := range revisionsOf(r, nil) {
			got = append(got, fmt.Sprintf("%d %s %s", p.Revision, p.Outcome, p.Reason))
		}

		return strings.Join(got, ", ")
	}
	assert.Equal(t, list(), "1 Halted Inconclusive, 2 RolledBack TooManyFailures, 3 Succeeded , 4 Halted Aborted")
	// The halt of an earlier attempt does not count while the next one is in
	// progress.
	r.Status.History = []v1alpha1.RolloutOutcome{{Revision: 4, Outcome: v1alpha1.OutcomeHalted, Reason: v1alpha1.HaltAborted, EndTime: &now}}
	r.Status.Phase, r.Status.Halt = v1alpha1.RolloutProgressing, nil
	assert.Equal(t, list(), "4 Progressing ", "in the next attempt")
}

func TestTheDurationOfATrialComesFromAgents(t *testing.T) {
	f := &Fleet{Nodes: []rollout.Node{{TrialLength: time.Minute}, {TrialLength: 2 * time.Minute}, {}}}
	assert.Equal(t, f.TrialTime(0), 2*time.Minute, "the longest")
	f.trial = 90 * time.Second
	assert.Equal(t, f.TrialTime(0), 90*time.Second, "the default that agents report: a present trial can have another length")
	assert.Equal(t, f.TrialTime(5*time.Minute), 5*time.Minute, "what is asked for")
	assert.Equal(t, (&Fleet{}).TrialTime(0), 10*time.Minute, "the default")
}
