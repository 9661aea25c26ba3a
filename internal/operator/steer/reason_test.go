// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAReasonIsTrimmedAndHasALimit(t *testing.T) {
	for name, tt := range map[string]struct{ text, want, wantErr string }{
		"none":               {" ", "", ""},
		"a reason":           {" a storm\n", "a storm", ""},
		"the longest reason": {strings.Repeat("é", 256), strings.Repeat("é", 256), ""},
		"a longer reason":    {strings.Repeat("é", 257), "", "the reason has 257 characters, more than the limit of 256; nothing was changed"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Reason(tt.text)
			assert.Equal(t, got, tt.want)
			assert.That(t, (tt.wantErr == "") == (err == nil) && (err == nil || err.Error() == tt.wantErr), "error %v", err)
		})
	}
}

func TestAPauseAndItsEndWriteAndRemoveTheReason(t *testing.T) {
	scheme := runtime.NewScheme()
	assert.NoError(t, v1alpha1.AddToScheme(scheme))
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "workers"}}).Build()
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
		assert.NoError(t, assert.Err(Edit(t.Context(), c, "workers", step.change)))
		r := &v1alpha1.NodeConfigRollout{}
		assert.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "workers"}, r))
		assert.Equal(t, r.Spec.PausedReason+", "+r.Spec.FrozenReason, step.want)
	}
}
