// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

var marshaler = reflect.TypeFor[json.Marshaler]()

// upstreamLeaf is a field of a Go type without named fields of its own, as
// encoding/json sees it.
type upstreamLeaf struct {
	path     string
	typ      reflect.Type
	omitted  bool // if it is zero
	indirect bool // a list or a pointer, or below one
}

func isMarshaler(t reflect.Type) bool {
	return t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler)
}

func upstreamLeaves(t reflect.Type, at upstreamLeaf) []upstreamLeaf {
	for !isMarshaler(t) && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice) {
		t, at.indirect = t.Elem(), true
	}

	at.typ = t
	if isMarshaler(t) || t.Kind() != reflect.Struct {
		return []upstreamLeaf{at}
	}

	var leaves []upstreamLeaf
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || f.Name == "TypeMeta" {
			continue
		}

		inner := at
		inner.path = strings.Trim(at.path+"."+name, ".")
		inner.omitted = slices.Contains(strings.Split(options, ","), "omitempty")
		leaves = append(leaves, upstreamLeaves(f.Type, inner)...)
	}

	return leaves
}

func TestTheTableHasEveryUpstreamFieldAndNothingElse(t *testing.T) {
	upstream := map[string]bool{}
	for _, leaf := range upstreamLeaves(reflect.TypeFor[kubeletv1beta1.KubeletConfiguration](), upstreamLeaf{}) {
		upstream[leaf.path] = true
	}

	assert.Must(t, len(upstream) >= 140, "only %d fields were found upstream", len(upstream))
	table := map[string]bool{}
	for _, f := range Fields {
		assert.That(t, !table[f.Path], "%s is in the table twice", f.Path)
		table[f.Path] = true
		assert.That(t, upstream[f.Path] == (f.Since == 0), "%s is upstream: %t, and the table says since 1.%d: take one out", f.Path, upstream[f.Path], f.Since)
		assert.That(t, f.Group != "", "%s is in no group", f.Path)
		assert.That(t, f.Limit == nil || f.Protected != "" && strings.HasPrefix(f.Limit.Description, "free "), "a limit: %+v", f)
	}

	for _, path := range slices.Sorted(maps.Keys(upstream)) {
		assert.That(t, table[path], "%s is upstream but not in the table: give it a group", path)
	}

	assert.That(t, slices.IsSortedFunc(Fields, func(a, b Field) int { return strings.Compare(a.Path, b.Path) }), "they are not sorted")
}

// Lists, mappings and pointers that are empty count as unset anyway.
func TestZeroValuesMatchTheOmitemptyFieldsOfTheUpstreamType(t *testing.T) {
	zeros := map[string]any{}
	for _, leaf := range upstreamLeaves(reflect.TypeFor[kubeletv1beta1.KubeletConfiguration](), upstreamLeaf{}) {
		switch kind := leaf.typ.Kind(); {
		case !leaf.omitted || leaf.indirect || isMarshaler(leaf.typ):
		case kind == reflect.String:
			zeros[leaf.path] = ""
		case kind == reflect.Bool:
			zeros[leaf.path] = false
		case leaf.typ.ConvertibleTo(reflect.TypeFor[float64]()):
			zeros[leaf.path] = json.Number("0")
		}
	}

	assert.NoDiff(t, cmp.Diff(zeros, ZeroValues), "-upstream +table")
}

// readDump reads a dump of the pinned kubelet at -v=5: one with every field
// set, and one with only defaults.
func readDump(t *testing.T, file string) map[string]any {
	t.Helper()
	text := assert.Value(os.ReadFile(filepath.Join("testdata", file)))(t)
	var fields map[string]any
	assert.NoError(t, json.Unmarshal(text, &fields))

	return fields
}

func TestAllNamesInARealDumpAreKnown(t *testing.T) {
	for _, file := range []string{"printed-full.json", "printed-defaults.json"} {
		canonical := Canonical(readDump(t, file))
		var check func(n *name, value any)
		check = func(n *name, value any) {
			switch v := value.(type) {
			case map[string]any:
				for key, inner := range v {
					assert.Must(t, n.inner[key] != nil, "%q in %q is not the name of a field", key, n.path)
					if n.inner[key].inner != nil {
						check(n.inner[key], inner)
					}
				}
			case []any:
				for _, inner := range v {
					check(n, inner)
				}
			}
		}
		check(names, canonical)
		assert.That(t, len(canonical) >= 100, "%s: only %d fields", file, len(canonical))
	}
}

func TestAPrintedConfigurationGetsTheNamesOfTheAPI(t *testing.T) {
	canonical := Canonical(readDump(t, "printed-full.json"))
	for path, want := range map[string]any{
		"resolvConf":                                 "/etc/resolv.conf",
		"tlsCertFile":                                "/pki/kubelet.crt",
		"cpuCFSQuota":                                true,
		"authentication.x509.clientCAFile":           "/etc/kubernetes/ca.crt",
		"evictionHard":                               map[string]any{"memory.available": "100Mi"},
		"featureGates.QOSReserved":                   true,
		"staticPodURLHeader":                         map[string]any{"X-Secret": []any{"<masked>"}},
		"reservedMemory":                             []any{map[string]any{"numaNode": 0.0, "limits": map[string]any{"memory": "800Mi"}}},
		"shutdownGracePeriodByPodPriority":           []any{map[string]any{"priority": 10.0, "shutdownGracePeriodSeconds": 10.0}},
		"userNamespaces.idsPerPod":                   65536.0,
		"logging.vmodule":                            []any{map[string]any{"filePattern": "a", "verbosity": 3.0}},
		"crashLoopBackOff.maxContainerRestartPeriod": "10s",
		"singleProcessOOMKill":                       nil,
	} {
		got, ok, err := unstructured.NestedFieldNoCopy(canonical, strings.Split(path, ".")...)
		assert.That(t, ok, "%s is missing: %v", path, err)
		assert.NoDiff(t, cmp.Diff(want, got), path)
	}
}

func TestUnknownAndDuplicateNamesAreNotConverted(t *testing.T) {
	printed := func() map[string]any {
		return map[string]any{
			"NewField": map[string]any{"MaxPods": 1}, "maxPods": 2, "MaxPods": 3,
			"PORT": 4, "Port": 5, "ResolverConfig": nil, "ResolvConf": "/x",
			"Authentication": map[string]any{"X509": "no mapping", "NewWay": true}, "TLSCipherSuites": []any{"A", 1},
			"EvictionHard": nil, "ReservedMemory": []any{nil, []any{map[string]any{"NumaNode": 1}}},
		}
	}
	in := printed()
	got := Canonical(in)
	want := map[string]any{
		"NewField": map[string]any{"MaxPods": 1}, "maxPods": 2, "MaxPods": 3,
		"port": 4, "Port": 5, "resolvConf": "/x", "ResolverConfig": nil,
		"authentication": map[string]any{"x509": "no mapping", "NewWay": true}, "tlsCipherSuites": []any{"A", 1},
		"evictionHard": nil, "reservedMemory": []any{nil, []any{map[string]any{"numaNode": 1}}},
	}
	assert.NoDiff(t, cmp.Diff(want, got))
	assert.NoDiff(t, cmp.Diff(printed(), in), "the input was modified")
	assert.That(t, Canonical(nil) == nil, "nothing became something")
}

func TestCanonicalNamesStayAsTheyAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		once := Canonical(respelled(t, anyConfiguration().Draw(t, "configuration")))
		assert.NoDiff(t, cmp.Diff(once, Canonical(once)))
	})
}

// respelled returns fields with names in any case, or in two, with other names,
// and with mappings in lists.
func respelled(t *rapid.T, fields object) object {
	out := object{rapid.SampledFrom([]string{"ResolverConfig", "other", "Other", ""}).Draw(t, "unknown"): 1}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		value := fields[key]
		if inner, ok := value.(object); ok {
			if value = respelled(t, inner); rapid.Bool().Draw(t, "in a list") {
				value = []any{value, nil}
			}
		}

		title := strings.ToUpper(key[:min(1, len(key))]) + key[min(1, len(key)):]
		for range rapid.IntRange(1, 2).Draw(t, "spellings") {
			out[rapid.SampledFrom([]string{key, strings.ToUpper(key), title}).Draw(t, "spelling")] = value
		}
	}

	return out
}

func TestChangesNameTheFieldsThatFit(t *testing.T) {
	before := map[string]any{"maxPods": int64(110), "evictionHard": map[string]any{"memory.available": "100Mi", "nodefs.available": "10%"}}
	after := map[string]any{"maxPods": int64(120), "evictionHard": map[string]any{"memory.available": "100Mi"}}
	for limit, want := range map[int]string{
		1000: `changes evictionHard[nodefs.available]: "10%" -> unset; maxPods: 110 -> 120`,
		70:   `changes evictionHard[nodefs.available]: "10%" -> unset; and 1 more`,
		30:   `changes and 2 more`,
	} {
		assert.Equal(t, Changes(after, before, limit), want, limit)
	}

	assert.Equal(t, Changes(after, after, 1000), "changes nothing")
}

func TestNoTwoNamesAtOnePlaceDifferInCaseAlone(t *testing.T) {
	var visit func(n *name)
	visit = func(n *name) {
		seen := map[string]string{}
		for key, inner := range n.inner {
			other, ok := seen[strings.ToLower(key)]
			assert.That(t, !ok, "%s and %s, in %q", key, other, n.path)
			seen[strings.ToLower(key)] = key
			visit(inner)
		}
	}
	visit(names)
}
