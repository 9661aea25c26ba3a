// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

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
