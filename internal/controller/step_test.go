// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/controller/gate"
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
	want := v1alpha1.NodeConfigSpec{Revoked: []types.UID{"u"},
		TakenBack: &v1alpha1.TakenBackAssignment{Rollout: "workers", Revision: 3, Attempt: 2, AssignedAt: metav1.NewTime(then)}}
	assert.NoDiff(t, cmp.Diff(want, spec))
	spec = specOf(&given, rollout.Move{Kind: rollout.TakeBack, Source: by(2, 1)})
	assert.NoDiff(t, cmp.Diff(v1alpha1.NodeConfigSpec{ConfigSource: by(2, 1)}, spec), "with a source before it")
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
		assert.Equal(t, nextPlan(planned, now, result).Sub(planned), tt.want, "after", tt.after, "with moves:", tt.moves)
	}
}

func TestTheStatusOfAStoppedRolloutHasReasonRequestsAndSettings(t *testing.T) {
	world(t)
	roll(t, "stopped")
	c := newController(t, own(), func(o *Options) {
		o.PrometheusServers, o.Maintenance = []gate.Server{{Name: "main", URL: "http://localhost"}}, []string{"example.com/repair"}
	})
	c.fleet.setRollout(rolloutNamed(t, "stopped"))
	r := c.fleet.rollouts["stopped"]
	in := rollout.Input{
		Claim: rollout.Claim{Name: "stopped"}, Now: time.Now().Truncate(time.Second), Generation: r.object.Generation, Controller: c.settings,
		Spec: v1alpha1.NodeConfigRolloutSpec{Abort: &v1alpha1.RolloutAbort{Revision: 1, Reason: "wrong value"}},
		Target: v1alpha1.RolloutRevision{Number: 1, ConfigMapRef: v1alpha1.ConfigMapReference{
			Namespace: "n", Name: "stopped-1", UID: "u", SHA256: digest("stopped"),
		}},
	}
	result := rollout.Plan(in, nil)
	var written []string
	for range 2 {
		assert.NoError(t, assert.Err(c.recordStatus(t.Context(), r, &planInput{object: r.object, Input: in}, &result)))
		written = append(written, rolloutNamed(t, "stopped").ResourceVersion)
	}

	assert.That(t, written[0] == written[1], "a recorded status was written again")
	st := rolloutNamed(t, "stopped").Status
	h := st.History
	assert.That(t, len(h) == 1 && h[0].Outcome == v1alpha1.OutcomeHalted && h[0].Message == "Aborted: stopped by a person: wrong value" &&
		h[0].Reason == v1alpha1.HaltAborted, "the history is %+v", h)
	settings := st.Controller
	assert.That(t, settings != nil && len(settings.PrometheusServers) == 1 && len(settings.Maintenance) == 1, "the settings are %+v", settings)
}
