// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

// halted is a fake API server with a rollout that was halted at revision 2,
// after revision 1 had succeeded.
func halted(t *testing.T, funcs interceptor.Funcs) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	assert.NoError(t, errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)))
	r := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "workers", UID: "r"}}
	r.Spec.AllNodes, r.Spec.Template.Kubelet = true, fakeapi.Pods(2)
	r.Spec.FailurePolicy.MaxFailures = new(intstr.FromInt32(1))
	good, bad := fakeapi.Revision(t, r.Name, 1, v1alpha1.RolloutTemplate{Kubelet: fakeapi.Pods(1)}), fakeapi.Revision(t, r.Name, 2, r.Spec.Template)
	r.Status = v1alpha1.NodeConfigRolloutStatus{
		Phase: v1alpha1.RolloutHalted, Halt: &v1alpha1.RolloutHalt{Reason: v1alpha1.HaltTooManyFailures}, Nodes: v1alpha1.RolloutCounts{Failed: 1},
		CurrentRevision: &v1alpha1.RolloutRevision{Number: 1, ConfigMapRef: fakeapi.RefTo(good)},
		UpdateRevision:  &v1alpha1.RolloutRevision{Number: 2, ConfigMapRef: fakeapi.RefTo(bad)},
	}

	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(r, good, bad).WithInterceptorFuncs(funcs).Build()
}

func rolloutOf(t *testing.T, c client.Client) *v1alpha1.NodeConfigRollout {
	t.Helper()
	var r v1alpha1.NodeConfigRollout
	assert.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "workers"}, &r))
	return &r
}

func specOf(t *testing.T, c client.Client) v1alpha1.NodeConfigRolloutSpec {
	t.Helper()
	return rolloutOf(t, c).Spec
}

func undo(t *testing.T, c client.Client, number, target int64) (string, error) {
	t.Helper()
	prepared, err := Undo(t.Context(), c, "workers", number, target)
	if err != nil {
		return "", err
	}

	return prepared.Write(t.Context(), c, false)
}

func TestAnUndoPinsTheLastRevisionThatSucceeded(t *testing.T) {
	c := halted(t, interceptor.Funcs{})
	words, err := undo(t, c, 0, 2)
	assert.That(t, err == nil && strings.HasPrefix(words, "rollout workers undone: the configuration of revision 1 is the target again"),
		"it says %q, %v", words, err)
	pin := specOf(t, c).Pin
	assert.That(t, pin != nil && pin.SHA256 != pin.Instead, "the pin is %+v", pin)
}

func TestAnUndoOfAnotherRevisionThanTheUserSawChangesNothing(t *testing.T) {
	c := halted(t, interceptor.Funcs{})
	_, err := undo(t, c, 0, 7)
	want := `rollout "workers" is at revision 2, not 7: kubectl evenkeel rollout status workers; nothing was changed`
	assert.That(t, err != nil && err.Error() == want, "the error is %v, want %s", err, want)
	assert.Equal(t, specOf(t, c).Pin, nil, "the pin")
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

			r.Spec.Template.Kubelet = fakeapi.Pods(7)
			if err := c.Update(ctx, &r); err != nil {
				return err
			}
		}

		return c.Patch(ctx, o, p, options...)
	}})
	words, err := undo(t, c, 1, 0)
	assert.That(t, err != nil && strings.Contains(err.Error(), `rollout "workers" was changed by somebody else in the meantime`) && words == "",
		"the error is %v, and it says %q", err, words)
	spec := specOf(t, c)
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
		assert.That(t, r.Spec.Pin != nil && *r.Spec.Pin == step.want,
			"step %d: the pin is %+v, want %+v", i, r.Spec.Pin, step.want)
	}
}
