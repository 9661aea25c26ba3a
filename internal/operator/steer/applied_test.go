// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAPushRecordsWhatKubectlApplyWouldHave(t *testing.T) {
	with := func(applied, kubelet string) *v1alpha1.NodeConfigRollout {
		r := &v1alpha1.NodeConfigRollout{}
		r.Name, r.Spec.AllNodes = "workers", true
		r.Spec.Template.Kubelet = &runtime.RawExtension{Raw: []byte(kubelet)}
		if applied != "" {
			r.Annotations = map[string]string{"mine": "stays", corev1.LastAppliedConfigAnnotation: applied}
		}

		return r
	}
	const head = `{"apiVersion":"evenkeel.dev/v1alpha1","kind":"NodeConfigRollout","metadata":{"name":"workers"},"spec":{`
	const anew = head + `"template":{"kubelet":{"maxPods":7}}}}`
	for name, tt := range map[string]struct{ applied, kubelet, want string }{
		"nothing":               {"", `{"maxPods":7}`, anew},
		"something unreadable":  {"{", `{"maxPods":7}`, anew},
		"a list":                {"[]", `{"maxPods":7}`, anew},
		"null":                  {"null", `{"maxPods":7}`, anew},
		"other fields":          {`{"metadata":{"labels":{"a":"b"}},"spec":{"paused":true,"template":{"kubelet":{"podPidsLimit":9}}}}`, `{"maxPods":7}`, `{"apiVersion":"evenkeel.dev/v1alpha1","kind":"NodeConfigRollout","metadata":{"labels":{"a":"b"}},"spec":{"paused":true,"template":{"kubelet":{"maxPods":7}}}}`},
		"the same":              {"old", `{"maxPods":1}`, "old"},
		"too long for a record": {"old", `{"maxPods":"` + strings.Repeat("7", maxApplied) + `"}`, "old"},
	} {
		before, after := with(tt.applied, `{"maxPods":1}`), with("", tt.kubelet)
		assert.NoError(t, SaveApplied(before, after))
		assert.Equal(t, after.Annotations[corev1.LastAppliedConfigAnnotation], tt.want, name)
		assert.Equal(t, after.Annotations["mine"], before.Annotations["mine"], name)
		assert.Equal(t, before.Annotations[corev1.LastAppliedConfigAnnotation], tt.applied, name)
	}

	after := with("", `{"maxPods":7}`)
	assert.NoError(t, SaveApplied(nil, after))
	got := after.Annotations[corev1.LastAppliedConfigAnnotation]
	assert.That(t, strings.HasPrefix(got, head+`"allNodes":true,`) && strings.Contains(got, `"template":{"kubelet":{"maxPods":7}}`), "a new rollout has %s", got)
}
