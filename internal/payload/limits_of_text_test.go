// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestDeeplyNestedTextIsRejectedBeforeItIsDecoded(t *testing.T) {
	const json, yaml = `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","a":`, grouped + "a:"
	nest := func(open, close string, n int) string {
		return strings.Repeat(open, n) + "1" + strings.Repeat(close, n)
	}
	for _, tt := range []struct{ name, text string }{
		{"JSON", json + nest(`{"a":`, `}`, 9000) + `}`},
		{"lists", json + nest(`[`, `]`, 9000) + `}`},
		{"flow style YAML", yaml + " " + nest(`{a: `, `}`, 5000)},
		{"block style YAML", yaml + "\n  " + nest(`- `, ``, 5000)},
		{"as deep as the limit, and one more", json + nest(`[`, `]`, maxDepth) + `}`},
		{"one more that is empty", json + strings.Replace(nest(`[`, `]`, maxDepth-1), "1", "[]", 1) + `}`},
	} {
		checkRefused(t, assert.Err(Decode(KeyKubelet, []byte(tt.text))), ProblemTooDeep, "nested more than 50 levels deep", tt.name)
	}

	assert.OK(t, assert.Err(Decode(KeyKubelet, []byte(json+nest(`[`, `]`, maxDepth-1)+`}`))), "what is as deep as the limit")
}

func TestAGroupedPayloadThatIsTooLargeInTheUpstreamFormIsRejected(t *testing.T) {
	text := grouped + "staticPods: {staticPodURL: '" + strings.Repeat("<", MaxSize/2) + "'}\n" // each takes six bytes in JSON
	_, err := Decode(KeyKubelet, []byte(text))
	assert.Equal(t, ProblemOf(err), ProblemTooLarge)
}
