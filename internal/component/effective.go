// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/internal/payload"
)

// Effective is the effective configuration of a component as the component printed it, with the API's JSON names.
// Numbers are json.Number.
type Effective map[string]any

// Field returns the value at a path of JSON field names, such as "authentication.x509.clientCAFile". A map key with a
// dot is in brackets: "evictionHard[memory.available]". Names match in any case, except in brackets.
func (e Effective) Field(path string) (any, bool) { return e.field(splitPath(path)) }

// String returns the string at path, or "".
func (e Effective) String(path string) string {
	v, _ := e.Field(path)
	s, _ := v.(string)
	return s
}

// Int returns the integer at path.
func (e Effective) Int(path string) (int64, bool) {
	v, _ := e.Field(path)
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	i, err := n.Int64()
	return i, err == nil
}

func (e Effective) field(path []segment) (any, bool) {
	if len(path) == 0 {
		return nil, false
	}
	var value any = map[string]any(e)
	for _, s := range path {
		fields, ok := value.(map[string]any)
		if !ok {
			return nil, false
		}
		if value, ok = s.in(fields); !ok {
			return nil, false
		}
	}
	return value, true
}

// segment is one element of a path: the name of a field, or the exact key of a map.
type segment struct {
	name  string
	exact bool
}

func (s segment) in(fields map[string]any) (any, bool) {
	if v, ok := fields[s.name]; ok || s.exact {
		return v, ok
	}
	for name, v := range fields {
		if strings.EqualFold(name, s.name) {
			return v, true
		}
	}
	return nil, false
}

func splitPath(path string) []segment {
	var segments []segment
	for path != "" {
		if rest, ok := strings.CutPrefix(path, "["); ok {
			key, after, _ := strings.Cut(rest, "]")
			segments = append(segments, segment{name: key, exact: true})
			path = strings.TrimPrefix(after, ".")
			continue
		}
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			end = len(path)
		}
		segments = append(segments, segment{name: path[:end]})
		path = strings.TrimPrefix(path[end:], ".")
	}
	return segments
}

func joinPath(path []segment) (joined string) {
	for _, s := range path {
		joined = payload.JoinPath(joined, s.name)
	}
	return joined
}

// decodeEffective decodes a printed configuration: dry runs print Go field names of the internal type, /configz prints
// API names.
func decodeEffective(text []byte) (Effective, error) {
	fields, err := payload.DecodeMapping(text)
	if err != nil {
		return nil, err
	}
	return payload.Canonical(fields), nil
}

// leaves calls visit with the path of every field that is set. A mapping is walked, a list is one value, and null is
// not set.
func leaves(fields map[string]any, prefix []segment, visit func(path []segment, value any)) {
	for name, value := range fields {
		path := append(slices.Clip(prefix), segment{name: name})
		if inner, ok := value.(map[string]any); ok && len(inner) > 0 {
			leaves(inner, path, visit)
		} else if value != nil {
			visit(path, value)
		}
	}
}
