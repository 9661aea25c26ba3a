// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Unset stands for the value of a field that is not set.
const Unset = "unset"

// Difference is a field whose effective value differs from the local
// configuration.
type Difference struct {
	Field string `json:"field"`     // JSON names joined by dots; a key with a dot is in brackets
	Value string `json:"effective"` // effective value: truncated JSON, Unset or "masked"
	Local string `json:"local"`     // the same for the local configuration
	Limit string `json:"-"`         // of a violation: the values that are allowed, in words
}

func newDifference(path string, value, local any) Difference {
	d := Difference{Field: shownPath(path), Value: render(path, value), Local: render(path, local)}
	if d.Value == d.Local && covers(urlField, path) {
		d.Value, d.Local = masked, masked // they differ in the masked part
	}

	return d
}

// String describes the difference for people.
func (v Difference) String() string {
	if v.Value == masked && v.Local == masked {
		return v.Field + " is masked and differs, or may differ, from the local configuration"
	}

	words := fmt.Sprintf("%s would be %s, but is %s locally", v.Field, v.Value, v.Local)
	if v.Limit != "" {
		words += " (" + v.Limit + ")"
	}

	return words
}

// Diff returns the fields that differ from the local configuration, sorted by
// path and compared like in Violations.
func Diff(effective, local map[string]any) []Difference {
	var all []Difference
	compare("", effective, local, func(path string, value, local any) {
		all = append(all, newDifference(path, value, local))
	})

	return all
}

// Changes returns the fields in which a configuration differs from the one
// before, as "changes maxPods: 110 -> 120", sorted by path, in at most limit
// bytes; what does not fit is counted. Secrets are masked.
func Changes(after, before map[string]any, limit int) string {
	all := Diff(after, before)
	if len(all) == 0 {
		return "changes nothing"
	}

	out := "changes"
	for i, d := range all {
		next := fmt.Sprintf(" %s: %s -> %s;", d.Field, d.Local, d.Value)
		rest := fmt.Sprintf(" and %d more", len(all)-i)
		if len(out)+len(next)+len(rest) > limit {
			return out + rest
		}

		out += next
	}

	return strings.TrimSuffix(out, ";")
}

// compare calls differ for every different leaf of a and b, and reports whether
// there was one.
func compare(path string, a, b any, differ func(path string, a, b any)) bool {
	inA, mapA := mapping(a)
	inB, mapB := mapping(b)
	if !mapA || !mapB {
		if same(a, b) {
			return false
		}

		differ(path, a, b)

		return true
	}

	differs := false
	for _, key := range eitherKeys(inA, inB) {
		if compare(JoinPath(path, key), inA[key], inB[key], differ) {
			differs = true
		}
	}

	field := lookupField(path)
	if !differs && (inA == nil) != (inB == nil) && (field == nil || field.inner != nil) {
		differ(path, a, b)
		return true
	}

	return differs
}

// mapping returns v as a mapping, which may be nil.
func mapping(v any) (map[string]any, bool) {
	m, ok := v.(map[string]any)
	return m, ok || v == nil
}

func eitherKeys(a, b map[string]any) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(keys(a), keys(b)))))
}

// JoinPath returns the path of a key below a path, joined by a dot, or in
// brackets if the key could be read as a path.
func JoinPath(path, key string) string {
	switch {
	case key == "" || strings.ContainsAny(key, ".[]"):
		return path + "[" + key + "]"
	case path == "":
		return key
	default:
		return path + "." + key
	}
}

// same compares decoded JSON values, and numbers by value.
func same(a, b any) bool {
	if empty(a) && empty(b) {
		return true
	}

	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		differs := func(key string) bool { return !same(a[key], b[key]) }
		return ok && !slices.ContainsFunc(eitherKeys(a, b), differs)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, same)
	}

	x, okX := number(a)
	y, okY := number(b)

	return okX && okY && x == y || reflect.DeepEqual(a, b)
}

func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}

	return false
}

// number returns a canonical form of a number, as far as float64 is exact.
func number(v any) (string, bool) {
	switch v.(type) {
	case json.Number, int, int32, int64, float64:
	default:
		return "", false
	}

	text := fmt.Sprint(v)
	if f, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(f) < 1<<53 {
		text = strconv.FormatFloat(f, 'g', -1, 64)
	}

	return text, true
}

// integer returns an integer value, or false for any other value.
func integer(v any) (int64, bool) {
	text, ok := number(v)
	if !ok {
		return 0, false
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, true
	}

	f, err := strconv.ParseFloat(text, 64)

	return int64(f), err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53
}

// render formats a value for a status.
func render(path string, v any) string {
	switch {
	case v == nil:
		return Unset
	case covers(headerField, path):
		return masked
	case covers(urlField, path):
		if v = maskURL(v); v == masked {
			return masked
		}
	}

	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return singleLine(fmt.Sprintf("%q", fmt.Sprint(v)))
	}

	return singleLine(b.String())
}

// shownPath formats a path, which can contain keys of the payload, for a
// status.
func shownPath(path string) string {
	return singleLine(strings.Trim(strconv.Quote(path), `"`))
}
