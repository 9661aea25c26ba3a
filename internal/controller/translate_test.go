// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTakingBackToNoSourceSetsTakenBack(t *testing.T) {
	by := func(revision, attempt int64) *v1alpha1.NodeConfigSource {
		return &v1alpha1.NodeConfigSource{
			ConfigMapRef: &v1alpha1.ConfigMapReference{},
			RolloutRef:   &v1alpha1.RolloutReference{Name: "workers", Revision: revision, Attempt: attempt, AssignedAt: metav1.NewTime(then)},
		}
	}
	given := rollout.Node{Source: by(3, 2)}
	spec := specOf(&given, rollout.Move{Kind: rollout.TakeBack, Revoked: []types.UID{"u"}})
	if m := spec.TakenBack; spec.ConfigSource != nil || m == nil || m.Rollout != "workers" || m.Revision != 3 || m.Attempt != 2 || !m.AssignedAt.Time.Equal(then) || len(spec.Revoked) != 1 {
		t.Errorf("the spec is %+v", spec)
	}
	if spec := specOf(&given, rollout.Move{Kind: rollout.TakeBack, Source: by(2, 1)}); spec.TakenBack != nil || spec.ConfigSource == nil {
		t.Errorf("with a source before it the spec is %+v", spec)
	}
}

// A plan's time has whole seconds, but what it waits for, such as the end of a
// grace period, can be within one.
func TestAPlanIsNotRepeatedWithinTheSameSecond(t *testing.T) {
	planned := time.Date(2026, 1, 1, 0, 0, 44, 0, time.UTC)
	now := planned.Add(402 * time.Millisecond)
	for _, tt := range []struct {
		after time.Duration
		moves int
		want  time.Duration
	}{
		{402 * time.Millisecond, 0, time.Second}, {time.Millisecond, 0, time.Second}, {403 * time.Millisecond, 0, 403 * time.Millisecond},
		{time.Minute, 0, time.Minute}, {time.Millisecond, 1, time.Millisecond},
	} {
		result := &rollout.Result{RequeueAfter: tt.after, Moves: make([]rollout.Move, tt.moves)}
		got := nextPlan(planned, now, result).Sub(planned)
		assert.That(t, got == tt.want, "after %s with %d moves: the next plan is made after %s, want %s", tt.after, tt.moves, got, tt.want)
	}
}
