// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestWhatWaitsForARetryCanBeRetried(t *testing.T) {
	for name, test := range map[string]struct {
		status v1alpha1.NodeConfigRolloutStatus
		want   string // of the error; empty: it is retried
	}{
		"nothing":         {v1alpha1.NodeConfigRolloutStatus{}, "has nothing to retry"},
		"a stop":          {v1alpha1.NodeConfigRolloutStatus{Halt: &v1alpha1.RolloutHalt{}}, ""},
		"a failed node":   {v1alpha1.NodeConfigRolloutStatus{Nodes: v1alpha1.RolloutCounts{Failed: 1}}, ""},
		"a blocked node":  {v1alpha1.NodeConfigRolloutStatus{Nodes: v1alpha1.RolloutCounts{Blocked: 1}}, ""},
		"joining stopped": {v1alpha1.NodeConfigRolloutStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionJoiningStopped, Status: "True"}}}, ""},
		"joining goes on": {v1alpha1.NodeConfigRolloutStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionJoiningStopped, Status: "False"}}}, "has nothing to retry"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &v1alpha1.NodeConfigRollout{Status: test.status}
			r.Status.UpdateRevision = &v1alpha1.RolloutRevision{Number: 2}
			_, err := retry(r, nil)
			if test.want != "" {
				assert.ErrorHas(t, err, test.want)
				return
			}

			assert.That(t, err == nil && r.Spec.Retry != nil && r.Spec.Retry.Attempt == 2, "error %v, retry %+v", err, r.Spec.Retry)
		})
	}
}

// While the rollout is paused, a GitOps controller may commit the stopped
// content again.
func TestAContentThatFailedBeforeContinuesOnlyByForce(t *testing.T) {
	const failed = "revision 2 was stopped (TooManyFailures: w-7 CrashLooped)"
	revision := func(number int64, sha256 string) *v1alpha1.RolloutRevision {
		return &v1alpha1.RolloutRevision{Number: number, ConfigMapRef: v1alpha1.ConfigMapReference{SHA256: sha256}}
	}
	for name, tt := range map[string]struct {
		change Change
		set    func(*v1alpha1.NodeConfigRollout)
		refuse bool
	}{
		"resume":                       {Resume, func(r *v1alpha1.NodeConfigRollout) { r.Spec.Paused = true }, true},
		"unfreeze":                     {Unfreeze, func(r *v1alpha1.NodeConfigRollout) { r.Spec.Frozen = true }, true},
		"approve":                      {Approve(false, ""), func(*v1alpha1.NodeConfigRollout) {}, true},
		"approve, which has no effect": {Approve(false, ""), func(r *v1alpha1.NodeConfigRollout) { r.Spec.Approval = &v1alpha1.RolloutApproval{Revision: 4} }, false},
		"resume while it is frozen":    {Resume, func(r *v1alpha1.NodeConfigRollout) { r.Spec.Paused, r.Spec.Frozen = true, true }, false},
		"unfreeze for a rollback": {Unfreeze, func(r *v1alpha1.NodeConfigRollout) {
			r.Spec.Frozen, r.Status.Halt = true, &v1alpha1.RolloutHalt{Rollback: true}
		}, false},
		"resume after its success": {Resume, func(r *v1alpha1.NodeConfigRollout) {
			r.Spec.Paused, r.Status.CurrentRevision = true, revision(4, "bad")
		}, false},
		"resume of another content": {Resume, func(r *v1alpha1.NodeConfigRollout) { r.Spec.Paused, r.Status.UpdateRevision = true, revision(4, "new") }, false},
		"resume of its own attempt": {Resume, func(r *v1alpha1.NodeConfigRollout) { r.Spec.Paused, r.Status.UpdateRevision = true, revision(2, "bad") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := &v1alpha1.NodeConfigRollout{}
			r.Spec.Strategy.Steps = []v1alpha1.RolloutStep{{Pause: &v1alpha1.RolloutPause{}}}
			r.Status = v1alpha1.NodeConfigRolloutStatus{UpdateRevision: revision(4, "bad"), CurrentRevision: revision(3, "good"), History: []v1alpha1.RolloutOutcome{{
				Revision: 2, SHA256: "bad", Outcome: v1alpha1.OutcomeHalted, Reason: v1alpha1.HaltTooManyFailures, Message: "TooManyFailures: w-7 CrashLooped"}}}
			tt.set(r)
			_, err := Onward(tt.change, false)(r.DeepCopy())
			assert.That(t, (err != nil) == tt.refuse && (err == nil || strings.Contains(err.Error(), "would roll out a configuration that failed before: "+failed)), "the error is %v", err)
			_, err = Onward(tt.change, true)(r)
			assert.NoError(t, err)
		})
	}
}
