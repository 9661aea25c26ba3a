// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simapi

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// The content of objects is decoded JSON: maps, slices, strings, int64,
// float64, bool and nil.

func decode(raw []byte) (map[string]any, error) {
	out := map[string]any{}
	err := utiljson.Unmarshal(raw, &out)
	return out, err
}

// encode returns content as JSON, with sorted names.
func encode(v any) []byte { return must.Get(json.Marshal(v)) }

// contentOf returns the content of an object.
func contentOf(v any) map[string]any { return must.Get(decode(encode(v))) }

// as returns the content of an object as a Go type.
func as[T any](o *object) (v T) {
	must.OK(json.Unmarshal(o.raw, &v))
	return v
}

// sub returns the mapping of that name, a new one if there is none.
func sub(content map[string]any, name string) map[string]any {
	if m, ok := content[name].(map[string]any); ok {
		return m
	}

	m := map[string]any{}
	content[name] = m

	return m
}

func text(content map[string]any, name string) string {
	s, _ := content[name].(string)
	return s
}

func setOrDelete(content map[string]any, name string, value any) {
	if value == nil {
		delete(content, name)
		return
	}

	content[name] = runtime.DeepCopyJSONValue(value)
}

// Schema is the part of an OpenAPI schema that says which values are added to
// an object.
type Schema struct {
	Default    any                `json:"default"`
	Properties map[string]*Schema `json:"properties"`
	Items      *Schema            `json:"items"`
}

// apply adds the defaults to v. A nil schema adds none.
func (s *Schema) apply(v any) {
	if s == nil {
		return
	}

	switch v := v.(type) {
	case map[string]any:
		for name, p := range s.Properties {
			if _, set := v[name]; !set && p.Default != nil {
				v[name] = contentOf(map[string]any{"": p.Default})[""] // with the types of decoded JSON
			}
			if value, set := v[name]; set {
				p.apply(value)
			}
		}
	case []any:
		for _, item := range v {
			s.Items.apply(item)
		}
	}
}
