package controller

import (
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTakingBackToNoSourceSetsTakenBack(t *testing.T) {
	given := rollout.Node{Source: rollout.Source{Kind: rollout.SourceConfigMap, Rollout: "workers", Revision: 3, Attempt: 2, AssignedAt: then}}
	spec := specOf(&given, rollout.Move{Kind: rollout.TakeBack, Revoked: []string{"u"}})
	if m := spec.TakenBack; spec.ConfigSource != nil || m == nil || m.Rollout != "workers" || m.Revision != 3 || m.Attempt != 2 || !m.AssignedAt.Time.Equal(then) || len(spec.Revoked) != 1 {
		t.Errorf("the spec is %+v", spec)
	}
	before := rollout.Source{Kind: rollout.SourceConfigMap, Rollout: "workers", Revision: 2, Attempt: 1, AssignedAt: then}
	if spec := specOf(&given, rollout.Move{Kind: rollout.TakeBack, Source: before}); spec.TakenBack != nil || spec.ConfigSource == nil {
		t.Errorf("with a source before it the spec is %+v", spec)
	}
}

// A plan's time has whole seconds, but what it waits for, such as the end of a grace period, can be within one.
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
