// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestPreflightRequestsAreBounded(t *testing.T) {
	const good = `{"uid":"u1","configMapRef":{"namespace":"ns","name":"n","uid":"cm","sha256":"s"},"attempt":2}`
	for what, c := range map[string]struct {
		text string
		want string // the UID; empty: no request
	}{
		"good": {good, "u1"}, "none": {"", ""}, "no JSON": {"maxPods: 1", ""}, "a list": {"[]", ""}, "without a UID": {`{"configMapRef":{}}`, ""},
		"a long UID":     {`{"uid":"` + strings.Repeat("u", v1alpha1.MaxPreflightUID+1) + `"}`, ""},
		"too long":       {`{"uid":"u1","x":"` + strings.Repeat("x", maxRequest) + `"}`, ""},
		"nested deeply":  {`{"uid":"u1","x":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`, "u1"},
		"unknown fields": {`{"uid":"u1","later":{"a":1}}`, "u1"},
	} {
		nc := &v1alpha1.NodeConfig{}
		nc.Annotations = map[string]string{v1alpha1.AnnotationPreflight: c.text}
		p := preflightOf(nc)
		assert.That(t, (p == nil) == (c.want == "") && (p == nil || p.UID == c.want), "%s: the request is %+v, want the UID %q", what, p, c.want)
	}

	assert.That(t, preflightOf(nil) == nil, "a NodeConfig that does not exist has a request")
	nc := &v1alpha1.NodeConfig{}
	nc.Annotations = map[string]string{v1alpha1.AnnotationPreflight: good}
	nc.Status.Preflight = &v1alpha1.PreflightAnswer{UID: "of another request"}
	p := preflightOf(nc)
	assert.That(t, p.Answered == nil, "the answer to another request counts: %+v", p.Answered)

	nc.Status.Preflight.UID = "u1"
	p = preflightOf(nc)
	assert.That(t, p.Answered != nil && p.Attempt == 2 && p.ConfigMapRef.SHA256 == "s", "the request is %+v", p)
}
