// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsv1 "k8s.io/component-base/logs/api/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// CheckFields prints notes about fields of a configuration that no known
// kubelet version has, and about protected fields. The error names the fields
// whose values have another type than in KubeletConfiguration, the type, and
// the value.
func (e *Env) CheckFields(p payload.Payload) error {
	s := schema{shown: p.Shown, rules: p.Rules()}
	s.fields("", p.Fields, reflect.TypeFor[kubeletv1beta1.KubeletConfiguration]())
	const most = 5
	if left := len(s.problems) - most; left > 0 {
		s.problems = append(s.problems[:most], fmt.Sprintf("and %d more", left))
	}
	if len(s.problems) > 0 {
		return errors.New(strings.Join(s.problems, "; "))
	}

	for i, field := range s.unknown {
		if i == most {
			fmt.Fprintf(e.ErrOut, "note: and %s\n", printable.Count(len(s.unknown)-most, "more unknown field"))
			break
		}

		fmt.Fprintf(e.ErrOut, "note: unknown field %s: a kubelet without this field rejects the configuration, on the first node\n", field)
	}

	if left := unsetThresholds(p); len(left) > 0 {
		fmt.Fprintf(e.ErrOut, "note: %s replaces all default thresholds, so these are unset: %s; set them too, or "+
			"mergeDefaultEvictionSettings: true\n", printable.Line(p.Shown("evictionHard")), strings.Join(left, ", "))
	}

	switch set := payload.DefaultProtection().SetBy(p.Fields); len(set) {
	case 0:
	case 1:
		refuses := "a value that differs from its local configuration"
		if set[0].Limit != "" {
			refuses = "other values than these: " + set[0].Limit
		}

		fmt.Fprintf(e.ErrOut, "note: %s is a protected field: a node refuses %s, unless its agent is started with --protected-fields=-%s\n",
			printable.Line(p.Shown(set[0].Field)), refuses, printable.Line(set[0].Field))
	default:
		var names []string
		for _, d := range set {
			name := printable.Line(p.Shown(d.Field))
			if d.Limit != "" {
				name += " (" + d.Limit + ")"
			}

			names = append(names, name)
		}

		fmt.Fprintf(e.ErrOut, "note: protected fields: %s; a node refuses values that differ from its local configuration, unless its agent's "+
			"--protected-fields allows them\n",
			printable.Few(names))
	}

	return nil
}

// NoteFewFields prints a note if a configuration that is to be written looks
// like a drop-in, and is none.
func (e *Env) NoteFewFields(p payload.Payload) {
	if n := len(p.Fields) - 2; p.Key == payload.KeyKubelet && n <= 3 { // without apiVersion and kind
		fmt.Fprintf(e.ErrOut, "note: this whole configuration sets %s, and all other fields get their defaults; to change only these, use "+
			"--drop-in\n", printable.Count(n, "field"))
	}
}

// unsetThresholds returns the default thresholds that a whole configuration
// removes by setting others; none if it sets none.
func unsetThresholds(p payload.Payload) (left []string) {
	set, _ := p.Fields["evictionHard"].(map[string]any)
	if p.Key != payload.KeyKubelet || len(set) == 0 || p.Fields["mergeDefaultEvictionSettings"] == true {
		return nil
	}

	for _, name := range []string{"imagefs.available", "imagefs.inodesFree", "memory.available", "nodefs.available", "nodefs.inodesFree"} {
		if set[name] == nil {
			left = append(left, name)
		}
	}

	return left
}

// schema compares values with types.
type schema struct {
	shown    func(path string) string // the path of a field in the form of the file
	rules    []string                 // the paths of values that depend on the machine
	problems []string                 // values of wrong types
	unknown  []string                 // fields that KubeletConfiguration does not have, with what was meant
}

// expected describes the types that decode themselves.
var expected = map[reflect.Type]string{
	reflect.TypeFor[metav1.Duration]():           "a duration, such as \"10s\"",
	reflect.TypeFor[logsv1.TimeOrMetaDuration](): "a duration, such as \"10s\"",
	reflect.TypeFor[metav1.Time]():               "a time, such as \"2026-01-02T15:04:05Z\"",
	reflect.TypeFor[resource.Quantity]():         "a quantity, such as \"500Mi\"",
	reflect.TypeFor[resource.QuantityValue]():    "a quantity, such as \"500Mi\"",
}

// fields checks the fields of a mapping with the type of a struct.
func (s *schema) fields(path string, values map[string]any, t reflect.Type) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		at := payload.JoinPath(path, key)
		if f, similar := fieldNamed(t, key); f != nil {
			s.value(at, values[key], f)
		} else {
			s.unknown = append(s.unknown, fmt.Sprintf("%q of KubeletConfiguration%s", printable.Line(s.shown(at)), didYouMean(similar)))
		}
	}
}

// fieldNamed returns the type of the field of a struct with a JSON name.
// Without such a field, it returns nil and the most similar name, if there is
// one.
func fieldNamed(t reflect.Type, key string) (field reflect.Type, similar []string) {
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == key && name != "" {
			return f.Type, nil
		}

		names = append(names, name)
	}

	if near := payload.Nearest(key, names); near != "" {
		similar = []string{near}
	}

	return nil, similar
}

// value checks one value.
func (s *schema) value(path string, value any, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if value == nil || slices.Contains(s.rules, path) {
		return
	}

	if into, own := reflect.New(t).Interface().(json.Unmarshaler); own {
		text, err := json.Marshal(value)
		if err == nil {
			err = into.UnmarshalJSON(text)
		}
		if err != nil {
			s.wrong(path, value, cmp.Or(expected[t], "of another type"))
		}

		return
	}

	switch t.Kind() {
	case reflect.Struct:
		if inner, ok := value.(map[string]any); ok {
			s.fields(path, inner, t)
		} else {
			s.wrong(path, value, "a mapping")
		}
	case reflect.Map:
		inner, ok := value.(map[string]any)
		if !ok {
			s.wrong(path, value, "a mapping")
		}

		for _, key := range slices.Sorted(maps.Keys(inner)) {
			s.value(payload.JoinPath(path, key), inner[key], t.Elem())
		}
	case reflect.Slice:
		list, ok := value.([]any)
		if !ok {
			s.wrong(path, value, "a list")
		}

		for i := range list {
			s.value(fmt.Sprintf("%s[%d]", path, i), list[i], t.Elem())
		}
	case reflect.Bool:
		if _, ok := value.(bool); !ok {
			s.wrong(path, value, "true or false, without quotes")
		}
	case reflect.String:
		if _, ok := value.(string); !ok {
			s.wrong(path, value, "text, in quotes")
		}
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint32, reflect.Uint64:
		if !fits(value, t) {
			s.wrong(path, value, "a whole number"+rangeOf(t))
		}
	case reflect.Float32, reflect.Float64:
		switch value.(type) {
		case int64, float64:
		default:
			s.wrong(path, value, "a number")
		}
	}
}

// fits reports whether a number is whole and within the range of a type.
func fits(value any, t reflect.Type) bool {
	switch n := value.(type) {
	case int64:
		if t.Kind() == reflect.Uint || t.Kind() == reflect.Uint32 || t.Kind() == reflect.Uint64 {
			return n >= 0 && !reflect.Zero(t).OverflowUint(uint64(n))
		}

		return !reflect.Zero(t).OverflowInt(n)
	case float64: // a whole one with an exponent
		return n == math.Trunc(n) && math.Abs(n) < 1<<53 && fits(int64(n), t)
	}

	return false
}

// rangeOf names the limits of the smaller types.
func rangeOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int32:
		return fmt.Sprintf(" from %d to %d", math.MinInt32, math.MaxInt32)
	case reflect.Uint32:
		return fmt.Sprintf(" from 0 to %d", uint32(math.MaxUint32))
	}

	return ""
}

// wrong records a value of a wrong type.
func (s *schema) wrong(path string, value any, want string) {
	words := ""
	switch v := value.(type) {
	case map[string]any:
		words = "a mapping"
	case []any:
		words = "a list"
	case string:
		words = fmt.Sprintf("%q", printable.Truncate(v, 100))
	default:
		words = printable.Truncate(fmt.Sprint(v), 100)
	}

	s.problems = append(s.problems, printable.Line(fmt.Sprintf("%s must be %s, not %s", s.shown(path), want, words)))
}
