// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"encoding/json"
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// checkLossless converts upstream fields to the grouped form and back.
func checkLossless(t rapid.TB, fields map[string]any) {
	t.Helper()
	want := map[string]any{"apiVersion": UpstreamAPIVersion, "kind": KubeletKind}
	maps.Copy(want, fields)
	grouped := Group(want)
	ungrouped, ok := grouped["ungrouped"]
	assert.Must(t, !ok, "in no group: %v", ungrouped)
	p := Payload{}
	got, refused := p.flatten(grouped)
	trial := p.Trial
	assert.Must(t, refused == nil, "%v, in %v", refused, grouped)
	diff := cmp.Diff(want, got)
	assert.Must(t, diff == "" && trial == (v1alpha1.TrialTerms{}), "trial %v, %s", trial, diff)
}

func TestEveryUpstreamConfigurationSurvivesGroupingAndFlattening(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := reflect.New(reflect.TypeFor[kubeletv1beta1.KubeletConfiguration]()).Elem()
		fill(t, config)
		text := assert.Value(json.Marshal(config.Interface()))(t)
		fields, refused := DecodeMapping(text)
		if refused != nil {
			t.Fatal(refused)
		}

		checkLossless(t, fields)
	})
}

// fill sets each field of a value of the upstream type, or leaves it unset.
func fill(t *rapid.T, v reflect.Value) {
	switch v.Addr().Interface().(type) {
	case *metav1.TypeMeta:
		return
	case *metav1.Duration:
		v.Set(reflect.ValueOf(metav1.Duration{Duration: time.Duration(rapid.Int64().Draw(t, "duration"))}))
		return
	case *metav1.Time:
		v.Set(reflect.ValueOf(metav1.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "time"), 0).Rfc3339Copy()))
		return
	case *logsapi.TimeOrMetaDuration:
		v.Set(reflect.ValueOf(logsapi.TimeOrMetaDuration{
			Duration:          metav1.Duration{Duration: time.Duration(rapid.Int64().Draw(t, "duration"))},
			SerializeAsString: rapid.Bool().Draw(t, "as string"),
		}))
		return
	case *resource.Quantity:
		v.Set(reflect.ValueOf(resource.MustParse(rapid.SampledFrom([]string{"0", "1", "1.5", "100m", "800Mi", "12E"}).Draw(t, "quantity"))))
		return
	}

	if rapid.IntRange(0, 2).Draw(t, "left alone") == 0 {
		return
	}

	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(t, field)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), rapid.IntRange(0, 2).Draw(t, "length"), 2))
		for i := range v.Len() {
			fill(t, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range rapid.IntRange(0, 2).Draw(t, "keys") {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			key.SetString(rapid.String().Draw(t, "key"))
			fill(t, value)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		v.SetString(rapid.String().Draw(t, "string"))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.Float64:
		v.SetFloat(rapid.Float64().Draw(t, "float"))
	case reflect.Int32, reflect.Int64:
		v.SetInt(rapid.Int64Range(-1<<31, 1<<31-1).Draw(t, "int"))
	case reflect.Uint32:
		v.SetUint(uint64(rapid.Uint32().Draw(t, "uint")))
	default:
		t.Fatalf("a %s upstream: teach the test to fill it", v.Type())
	}
}

func TestAnyFieldsWithAnyValuesSurviveGroupingAndFlattening(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fields := exactFields(t, names)
		if inner, ok := fields["logging"].(map[string]any); !ok || len(inner) == 0 {
			delete(fields, "logging") // there is no group of this name
		}

		checkLossless(t, fields)
	})
}

func TestAnyGroupedConfigurationSurvivesFlatteningAndGrouping(t *testing.T) {
	var draw func(t *rapid.T, g *group) map[string]any
	draw = func(t *rapid.T, g *group) map[string]any {
		grouped := exactFields(t, &name{inner: g.fields})
		for _, key := range keys(g.groups) {
			if inner := draw(t, g.groups[key]); len(inner) > 0 { // a group without fields has no meaning
				grouped[key] = inner
			}
		}

		return grouped
	}
	rapid.Check(t, func(t *rapid.T) {
		want := draw(t, topGroup)
		want["apiVersion"], want["kind"] = GroupedAPIVersion, KubeletKind
		fields, refused := (&Payload{}).flatten(want)
		assert.Must(t, refused == nil, "%v, in %v", refused, want)
		assert.NoDiff(t, cmp.Diff(want, Group(fields)))
	})
}

// exactFields draws mappings with names of the table in their place, with any
// values.
func exactFields(t *rapid.T, n *name) map[string]any {
	fields := map[string]any{}
	for _, key := range keys(n.inner) {
		inner := n.inner[key]
		switch kind := rapid.IntRange(0, 3).Draw(t, key); {
		case kind == 0 && inner.inner != nil:
			fields[key] = exactFields(t, inner)
		case kind == 0:
			fields[key] = map[string]any{"any": map[string]any{"maxPods": 1}}
			if ruleUnits[key] != nil { // such a mapping is a rule
				fields[key] = map[string]any{"any": []any{"maxPods"}}
			}
			if key == fieldMaxPods {
				fields[key] = []any{"any"}
			}
		case kind == 1 && inner.inner != nil:
			fields[key] = []any{exactFields(t, inner), "no mapping", nil}
		case kind == 1:
			fields[key] = rapid.SampledFrom([]any{nil, 1, 1.5, "x", true, []any{}, []any{"a", nil}}).Draw(t, "value")
		}
	}

	return fields
}
