// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestDeeplyNestedTextIsRejectedBeforeItIsDecoded(t *testing.T) {
	nest := func(open, close string, n int) string {
		text := ""
		for range n {
			text += open
		}

		text += "1"
		for range n {
			text += close
		}

		return text
	}
	for _, tt := range []struct{ name, text string }{
		{"JSON", `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","a":` + nest(`{"a":`, `}`, 9000) + `}`},
		{"lists", `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","a":` + nest(`[`, `]`, 9000) + `}`},
		{"flow style YAML", "apiVersion: evenkeel.dev/v1alpha1\nkind: KubeletConfiguration\na: " + nest(`{a: `, `}`, 5000)},
		{"block style YAML", "apiVersion: evenkeel.dev/v1alpha1\nkind: KubeletConfiguration\na:\n  " + nest(`- `, ``, 5000)},
		{"as deep as the limit, and one more", `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","a":` + nest(`[`, `]`, maxDepth) + `}`},
		{"one more that is empty", `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","a":` + strings.Replace(nest(`[`, `]`, maxDepth-1), "1", "[]", 1) + `}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Decode(KeyKubelet, []byte(tt.text))
			refused, ok := err.(*Error)
			assert.That(t, ok && refused.Problem == ProblemTooDeep && refused.Message == "nested more than 50 levels deep", "got %v", err)
		})
	}

	if _, err := Decode(KeyKubelet, []byte(`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","a":`+nest(`[`, `]`, maxDepth-1)+`}`)); err != nil {
		t.Errorf("what is as deep as the limit: %v", err)
	}
}

func TestAGroupedPayloadThatIsTooLargeInTheUpstreamFormIsRejected(t *testing.T) {
	text := []byte("apiVersion: evenkeel.dev/v1alpha1\nkind: KubeletConfiguration\nstaticPods: {staticPodURL: '")
	for range MaxSize/2 - len(text) { // each takes six bytes in JSON
		text = append(text, '<')
	}

	_, err := Decode(KeyKubelet, append(text, "'}\n"...))
	refused, ok := err.(*Error)
	assert.That(t, ok && refused.Problem == ProblemTooLarge, "got %.200v", err)
}
