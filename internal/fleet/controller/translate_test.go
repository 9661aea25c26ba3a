package controller

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/fleet/rollout"
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

// olderCRD refuses what a CRD without spec.takenBack does not know.
type olderCRD struct {
	client.Client
	refused int
}

func (c *olderCRD) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	if data, err := p.Data(o); err != nil || strings.Contains(string(data), "takenBack") {
		c.refused++
		return apierrors.NewBadRequest(`strict decoding error: unknown field "spec.takenBack"`)
	}
	return c.Client.Patch(ctx, o, p, opts...)
}

func TestWithAnOlderCRDTakingBackOmitsTakenBack(t *testing.T) {
	nc := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "older-crd"}}
	nc.Spec.ConfigSource = &v1alpha1.NodeConfigSource{
		ConfigMapRef: &v1alpha1.ConfigMapReference{Namespace: "n", Name: "c", UID: "u"},
		RolloutRef:   &v1alpha1.RolloutReference{Name: "workers", Revision: 1, Attempt: 1, AssignedAt: metav1.Now()},
	}
	assert.NoError(t, admin.Create(t.Context(), nc))
	c := assert.Value(New(own(), Options{MetricsAddress: "0", ProbeAddress: "0", Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)}))(t)
	api := &olderCRD{Client: c.client}
	c.client = api
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nc.Name}}
	c.fleet.setConfig(nc)
	planned := policy.NodeOf(node, nc)
	assert.NoError(t, c.moveNode(t.Context(), &planned, rollout.Move{Kind: rollout.TakeBack}, nil))
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(nc), nc); err != nil || nc.Spec.ConfigSource != nil || api.refused != 1 {
		t.Errorf("%v, refused %d times, and the spec is %+v", err, api.refused, nc.Spec)
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
