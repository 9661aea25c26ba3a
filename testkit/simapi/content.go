// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// The content of objects is decoded JSON: maps, slices, strings, int64,
// float64, bool and nil.

func decode(raw []byte) (map[string]any, error) {
	var out map[string]any
	err := utiljson.Unmarshal(raw, &out)
	if out == nil {
		out = map[string]any{}
	}

	return out, err
}

// clone returns a copy that shares nothing with v.
func clone[T any](v T) T { return copyOf(v).(T) }

func copyOf(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, value := range v {
			out[key] = copyOf(value)
		}

		return out
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = copyOf(value)
		}

		return out
	}

	return v
}

func equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}

		for name, value := range a {
			if other, ok := b[name]; !ok || !equal(value, other) {
				return false
			}
		}

		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equal)
	}

	switch b.(type) {
	case map[string]any, []any:
		return false
	}

	return a == b
}

// encode returns content as JSON, with sorted names.
func encode(v any) []byte { return appendJSON(nil, v) }

func appendJSON(out []byte, v any) []byte {
	switch v := v.(type) {
	case map[string]any:
		if v == nil {
			return append(out, "null"...)
		}

		out = append(out, '{')
		for i, name := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				out = append(out, ',')
			}

			out = append(appendString(out, name), ':')
			out = appendJSON(out, v[name])
		}

		return append(out, '}')
	case []any:
		if v == nil {
			return append(out, "null"...)
		}

		out = append(out, '[')
		for i, item := range v {
			if i > 0 {
				out = append(out, ',')
			}

			out = appendJSON(out, item)
		}

		return append(out, ']')
	case string:
		return appendString(out, v)
	case int64:
		return strconv.AppendInt(out, v, 10)
	case bool:
		return strconv.AppendBool(out, v)
	case nil:
		return append(out, "null"...)
	}

	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("simapi: %v", err)) // plain data can always be encoded
	}

	return append(out, raw...)
}

func appendString(out []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			raw, err := json.Marshal(s)
			if err != nil {
				panic(fmt.Sprintf("simapi: %v", err)) // a string can always be encoded
			}

			return append(out, raw...)
		}
	}

	out = append(out, '"')
	out = append(out, s...)

	return append(out, '"')
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

func number(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case float64:
		return int64(v)
	}

	return 0
}

func setOrDelete(content map[string]any, name string, value any) {
	if value == nil {
		delete(content, name)
		return
	}

	content[name] = copyOf(value)
}

func stringsOf(v any) map[string]string {
	out := map[string]string{}
	if m, ok := v.(map[string]any); ok {
		for key, value := range m {
			out[key], _ = value.(string)
		}
	}

	return out
}

// Schema is the part of an OpenAPI schema that says which values are added to
// an object.
type Schema struct {
	Default              any                `json:"default"`
	Properties           map[string]*Schema `json:"properties"`
	Items                *Schema            `json:"items"`
	AdditionalProperties *Schema            `json:"-"`
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
				v[name] = normal(p.Default)
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

// normal returns a copy of v with the types that decode returns.
func normal(v any) any {
	var out any
	if err := utiljson.Unmarshal(encode(v), &out); err != nil {
		panic(err) // it was just encoded
	}

	return out
}
