// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

func TestAReasonIsTrimmedAndHasALimit(t *testing.T) {
	for name, tt := range map[string]struct{ text, want, wantErr string }{
		"none":               {" ", "", ""},
		"a reason":           {" a storm\n", "a storm", ""},
		"the longest reason": {strings.Repeat("é", 256), strings.Repeat("é", 256), ""},
		"a longer reason":    {strings.Repeat("é", 257), "", "the reason has 257 characters, more than the limit of 256; nothing was changed"},
	} {
		got, err := Reason(tt.text)
		assert.Equal(t, got, tt.want, name)
		assert.That(t, (tt.wantErr == "") == (err == nil) && (err == nil || err.Error() == tt.wantErr), "%s: error %v", name, err)
	}
}

func TestAPauseAndItsEndWriteAndRemoveTheReason(t *testing.T) {
	api := fakeapi.New(t)
	r := api.AddRollout("workers", "workers", nil, nil)
	for _, step := range []struct {
		change Change
		want   string
	}{
		{Pause("a storm"), "a storm, "},
		{Pause("calm"), "a storm, "}, // is paused already
		{Freeze("hands off"), "a storm, hands off"},
		{Unfreeze, "a storm, "},
		{Resume, ", "},
	} {
		assert.NoError(t, assert.Err(Edit(t.Context(), api, "workers", step.change)))
		api.Read(r)
		assert.Equal(t, r.Spec.PausedReason+", "+r.Spec.FrozenReason, step.want)
	}
}

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
		r := &v1alpha1.NodeConfigRollout{Status: test.status}
		r.Status.UpdateRevision = &v1alpha1.RolloutRevision{Number: 2}
		_, err := retry(r, nil)
		if test.want != "" {
			assert.ErrorHas(t, err, test.want, name)
			continue
		}

		assert.That(t, err == nil && r.Spec.Retry != nil && r.Spec.Retry.Attempt == 2, "%s: error %v, retry %+v", name, err, r.Spec.Retry)
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
		r := &v1alpha1.NodeConfigRollout{}
		r.Spec.Strategy.Steps = []v1alpha1.RolloutStep{{Pause: &v1alpha1.RolloutPause{}}}
		r.Status = v1alpha1.NodeConfigRolloutStatus{UpdateRevision: revision(4, "bad"), CurrentRevision: revision(3, "good"), History: []v1alpha1.RolloutOutcome{{
			Revision: 2, SHA256: "bad", Outcome: v1alpha1.OutcomeHalted, Reason: v1alpha1.HaltTooManyFailures, Message: "TooManyFailures: w-7 CrashLooped"}}}
		tt.set(r)
		_, err := Onward(tt.change, false)(r.DeepCopy())
		refused := err != nil && strings.Contains(err.Error(), "would roll out a configuration that failed before: "+failed)
		assert.That(t, refused == tt.refuse && (err == nil || tt.refuse), "%s: the error is %v", name, err)
		assert.NoError(t, assert.Err(Onward(tt.change, true)(r)), name)
	}
}

func TestAnAbortIsWrittenBeforeTheFleetIsRead(t *testing.T) {
	t.Cleanup(func(before time.Duration) func() { return func() { Patience = before } }(Patience))
	Patience = 50 * time.Millisecond
	var c client.WithWatch
	c = halted(t, interceptor.Funcs{List: func(ctx context.Context, under client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
		if _, nodes := list.(*corev1.NodeList); !nodes {
			return under.List(ctx, list, o...)
		}

		assert.That(t, rolloutOf(t, c).Spec.Abort != nil, "the nodes are read first")
		<-ctx.Done() // the fleet is large, or the API server does not answer

		return ctx.Err()
	}})
	words := assert.Value(EditAndTell(t.Context(), c, "workers", 2, Abort(true, "")))(t)
	assert.That(t, strings.HasPrefix(words, "rollout workers aborted: revision 2 stops") && strings.Contains(words, "; cannot tell which nodes change: ") &&
		strings.HasSuffix(words, "context deadline exceeded"), "it says %q", words)
}

func TestARetryReadsTheFleetOnceWhateverConflicts(t *testing.T) {
	lists, conflicts := 0, 0
	c := halted(t, interceptor.Funcs{
		List: func(ctx context.Context, under client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			lists++
			return under.List(ctx, list, o...)
		},
		Patch: func(ctx context.Context, under client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			if conflicts++; conflicts < MostConflicts {
				return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), nil)
			}

			return under.Patch(ctx, o, p, options...)
		},
	})
	words := assert.Value(EditObserved(t.Context(), c, "workers", 2, Retry(t.Context(), c, nil, true)))(t)
	assert.That(t, strings.HasPrefix(words, "rollout workers retried: attempt 2"), "it says %q", words)
	once := lists
	assert.NoError(t, assert.Err(checkRetry(t.Context(), c, rolloutOf(t, c), nil)))
	assert.Equal(t, once, lists-once, "lists")
}
