package simapi

import (
	"reflect"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// The content of objects is decoded JSON: maps, slices, strings, int64, float64, bool and nil.

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

func equal(a, b any) bool { return reflect.DeepEqual(a, b) }

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

// Schema is the part of an OpenAPI schema that says which values are added to an object.
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

// normal returns a copy of a default with the types that decode returns.
func normal(v any) any {
	var out any
	if err := utiljson.Unmarshal(encode(v), &out); err != nil {
		panic(err) // it was just encoded
	}
	return out
}
