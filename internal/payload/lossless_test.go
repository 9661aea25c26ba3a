// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"encoding/json"
	"maps"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	assert.Must(t, grouped["ungrouped"] == nil, "in no group: %v", grouped["ungrouped"])
	p := Payload{}
	got, refused := p.flatten(grouped)
	assert.Must(t, refused == nil, "%v, in %v", refused, grouped)
	diff := cmp.Diff(want, got)
	assert.Must(t, diff == "" && p.Trial == (v1alpha1.TrialTerms{}), "trial %v, %s", p.Trial, diff)
}

// anyUpstream draws every field of the upstream type.
var anyUpstream = rapid.MakeCustom[kubeletv1beta1.KubeletConfiguration](rapid.MakeConfig{Types: map[reflect.Type]*rapid.Generator[any]{
	reflect.TypeFor[metav1.TypeMeta](): rapid.Just[any](metav1.TypeMeta{}),
	reflect.TypeFor[metav1.Time](): rapid.Map(rapid.Int64Range(0, 1<<33), func(seconds int64) any {
		return metav1.Unix(seconds, 0).Rfc3339Copy()
	}),
	reflect.TypeFor[resource.Quantity](): rapid.Map(
		rapid.SampledFrom([]string{"0", "1", "1.5", "100m", "800Mi", "12E"}), func(text string) any { return resource.MustParse(text) },
	),
}})

func TestEveryUpstreamConfigurationSurvivesGroupingAndFlattening(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := assert.Value(json.Marshal(anyUpstream.Draw(t, "configuration")))(t)
		checkLossless(t, assert.Value(DecodeMapping(text))(t))
	})
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
