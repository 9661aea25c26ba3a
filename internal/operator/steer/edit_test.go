// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAnEditTouchesOnlyWhatDiffers(t *testing.T) {
	read := func(s string) map[string]any {
		var m map[string]any
		assert.NoError(t, json.Unmarshal([]byte(s), &m))
		return m
	}
	for _, tt := range []struct{ name, before, after, want string }{
		{"nothing", `{"a":{"b":1}}`, `{"a":{"b":1}}`, `null`},
		{"a field within", `{"a":{"b":1,"c":2}}`, `{"a":{"b":3,"c":2}}`, `[{"op":"add","path":"/spec/a/b","value":3}]`},
		{"a field that goes", `{"a":{"b":1,"c":2}}`, `{"a":{"c":2}}`, `[{"op":"remove","path":"/spec/a/b"}]`},
		{"into an object that may not be there", `{"a":{}}`, `{"a":{"b":1}}`, `[{"op":"add","path":"/spec/a","value":{"b":1}}]`},
		{"a template as a whole", `{"template":{"kubelet":{"a":1}}}`, `{"template":{"kubelet":{"a":null}}}`,
			`[{"op":"add","path":"/spec/template","value":{"kubelet":{"a":null}}}]`},
		{"a key with a slash", `{"a":{"x/y~z":"1"}}`, `{"a":{"x/y~z":"2"}}`, `[{"op":"add","path":"/spec/a/x~1y~0z","value":"2"}]`},
		{"false is a value", `{"a":{"b":true}}`, `{"a":{"b":false}}`, `[{"op":"add","path":"/spec/a/b","value":false}]`},
	} {
		got := assert.Value(json.Marshal(operations("/spec", read(tt.before), read(tt.after))))(t)
		assert.NoDiff(t, cmp.Diff(tt.want, string(got)), tt.name)
	}
}
