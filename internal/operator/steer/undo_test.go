// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

// halted is an API with the rollout workers, whose revision 2 was stopped by a
// failed node, and whose revision 1 succeeded.
func halted(t *testing.T, funcs interceptor.Funcs) client.WithWatch {
	t.Helper()
	api := fakeapi.New(t)
	good, bad := api.AddRevision("workers", 1, "maxPods: 1\n"), api.AddRevision("workers", 2, "maxPods: 2\n")
	api.AddRollout("workers", "workers", nil, func(r *v1alpha1.NodeConfigRollout) {
		r.Spec.Template = fakeapi.Follow(bad.Namespace, bad.Name)
		r.Spec.FailurePolicy.MaxFailures = new(intstr.FromInt32(1))
		r.Status = v1alpha1.NodeConfigRolloutStatus{
			ObservedGeneration: 1, Nodes: v1alpha1.RolloutCounts{Failed: 1},
			Phase: v1alpha1.RolloutHalted, Halt: &v1alpha1.RolloutHalt{Reason: v1alpha1.HaltTooManyFailures},
			CurrentRevision: &v1alpha1.RolloutRevision{Number: 1, ConfigMapRef: fakeapi.RefTo(good)},
			UpdateRevision:  &v1alpha1.RolloutRevision{Number: 2, ConfigMapRef: fakeapi.RefTo(bad)},
		}
	})

	return interceptor.NewClient(api, funcs)
}

func rolloutOf(t *testing.T, c client.Client) *v1alpha1.NodeConfigRollout {
	t.Helper()
	var r v1alpha1.NodeConfigRollout
	assert.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "workers"}, &r))
	return &r
}

func TestAnUndoDoesNotOverwriteAConcurrentPush(t *testing.T) {
	pushed := false
	c := halted(t, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
		if !pushed {
			pushed = true
			var r v1alpha1.NodeConfigRollout
			if err := c.Get(ctx, client.ObjectKey{Name: "workers"}, &r); err != nil {
				return err
			}

			r.Spec.Template = v1alpha1.RolloutTemplate{Kubelet: fakeapi.Pods(7)}
			if err := c.Update(ctx, &r); err != nil {
				return err
			}
		}

		return c.Patch(ctx, o, p, options...)
	}})
	prepared := assert.Value(Undo(t.Context(), c, "workers", 1, 0))(t)
	words, err := prepared.Write(t.Context(), c, false)
	assert.That(t, err != nil && strings.Contains(err.Error(), `rollout "workers" was changed by somebody else in the meantime`) && words == "",
		"the error is %v, and it says %q", err, words)
	spec := rolloutOf(t, c).Spec
	got := string(spec.Template.Kubelet.Raw)
	assert.That(t, strings.Contains(got, `"maxPods":7`), "the template is %s, want what was pushed", got)
	assert.Equal(t, spec.Pin, nil, "the pin")
}

func TestAPinReplacesTheTemplate(t *testing.T) {
	r := &v1alpha1.NodeConfigRollout{}
	r.Name = "workers"
	r.Status.CurrentRevision = &v1alpha1.RolloutRevision{Number: 2, ConfigMapRef: v1alpha1.ConfigMapReference{SHA256: "b"}}
	template, older, oldest := payload.Payload{SHA256: "c"}, payload.Payload{SHA256: "b"}, payload.Payload{SHA256: "a"}
	for i, step := range []struct {
		pin   func() string
		words string
		want  v1alpha1.RolloutPin
	}{
		{func() string { return pin(r, template, older, 2) }, "until the template changes (spec.pin); follow it", v1alpha1.RolloutPin{SHA256: "b", Instead: "c"}},
		{func() string { return pin(r, template, older, 2) }, "already has the configuration of revision 2", v1alpha1.RolloutPin{SHA256: "b", Instead: "c"}},
		{func() string { return pin(r, template, oldest, 1) }, "(spec.pin); it has not succeeded, so the pauses of the steps hold; follow it", v1alpha1.RolloutPin{SHA256: "a", Instead: "c"}},
		{func() string { return pin(r, template, template, 3) }, "which is that of the template", v1alpha1.RolloutPin{SHA256: "c", Instead: "c"}},
		{func() string { return pin(r, template, template, 3) }, "already has the configuration of revision 3", v1alpha1.RolloutPin{SHA256: "c", Instead: "c"}},
		{func() string { return pin(r, template, older, 2) }, "undone", v1alpha1.RolloutPin{SHA256: "b", Instead: "c"}},
		{func() string { return pin(r, oldest, older, 2) }, "undone", v1alpha1.RolloutPin{SHA256: "b", Instead: "a"}}, // the template has changed
	} {
		said := step.pin()
		assert.That(t, strings.Contains(said, step.words), "step %d: %q, want %q", i, said, step.words)
		assert.That(t, r.Spec.Pin != nil && *r.Spec.Pin == step.want, "step %d: the pin is %+v, want %+v", i, r.Spec.Pin, step.want)
	}
}
