// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAGroupedPayloadIsConvertedToTheUpstreamForm(t *testing.T) {
	text := grouped + `
trial: {configTrialDuration: 30m, crashLoopThreshold: 0, allowPodLoss: true}
server: {port: 10250}
resources:
  maxPods: 120
  memoryThrottlingFactor: 0.9
  eviction: {evictionHard: {memory.available: 100Mi, MaxPods: verbatim}}
  reservations: {reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]}
logging: {format: json, verbosity: 2, containerLogMaxSize: 10Mi}
security: {authentication: {anonymous: {enabled: false}}, tlsCertFile: null}
experimental: {featureGates: {A: true}}
`
	for _, key := range []string{KeyKubelet, KeyKubeletDropin} {
		p := assert.Value(FromConfigMap(configMap(map[string]string{key: text})))(t)
		want := map[string]any{
			"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
			"port": int64(10250), "maxPods": int64(120), "memoryThrottlingFactor": 0.9,
			"evictionHard":        map[string]any{"memory.available": "100Mi", "MaxPods": "verbatim"},
			"reservedMemory":      []any{map[string]any{"numaNode": int64(0), "limits": map[string]any{"memory": "1Gi"}}},
			"logging":             map[string]any{"format": "json", "verbosity": int64(2)},
			"containerLogMaxSize": "10Mi",
			"authentication":      map[string]any{"anonymous": map[string]any{"enabled": false}},
			"tlsCertFile":         nil,
			"featureGates":        map[string]any{"A": true},
		}
		assert.NoDiff(t, cmp.Diff(want, p.Fields), key, "fields")
		upstream, err := Decode(key, p.upstream)
		diff := cmp.Diff(want, upstream.Fields)
		assert.That(t, err == nil && diff == "", "%s: upstream: %v %s", key, err, diff)
		assert.That(t, string(p.Data) == text && p.SHA256 == Digest(key, []byte(text)),
			"%s: data %q, sha256 %s: not those of the original", key, p.Data, p.SHA256)
		assert.That(t, p.Trial.ConfigTrialDuration != nil && p.Trial.ConfigTrialDuration.Duration == 30*time.Minute && *p.Trial.CrashLoopThreshold == 0 && p.Trial.AllowPodLoss,
			"%s: trial %+v", key, p.Trial)
	}
}

func TestNumbersKeepTheirSpelling(t *testing.T) {
	const numbers = `{"a":9007199254740993,"b":18446744073709551615,"c":123456789012345678901234567890,"d":1.10,"e":-0,"f":1E2,"g":"1e3Ki"}`
	p, err := Decode(KeyKubelet, []byte(`{"apiVersion":"evenkeel.dev/v1alpha1","kind":"KubeletConfiguration","resources":{"eviction":{"evictionHard":`+numbers+`}}}`))
	assert.NoError(t, err)
	squeezed := strings.NewReplacer(" ", "", "\n", "").Replace(string(p.upstream))
	assert.That(t, strings.Contains(squeezed, `"evictionHard":`+numbers), "got %s", p.upstream)
	want := map[string]any{"a": int64(9007199254740993), "b": 18446744073709551615.0, "c": 123456789012345678901234567890.0, "d": 1.1, "e": int64(0), "f": 100.0, "g": "1e3Ki"}
	assert.NoDiff(t, cmp.Diff(want, p.Fields["evictionHard"]))
}

func TestChecksOfGroupedPayloadsUseGroupedPaths(t *testing.T) {
	for _, tt := range []struct {
		data    string
		problem Problem
		words   string
	}{
		{"security: {authentication: {x509: {clientCAFile: ca}}}", ProblemRelativePath,
			`security.authentication.x509.clientCAFile is the relative path "ca"; paths must be absolute`},
		{"server: {healthzPort: 0}", ProblemHealthDisabled,
			"server.healthzPort is 0, which disables the health endpoint: the kubelet's health could not be checked"},
	} {
		for _, key := range []string{KeyKubelet, KeyKubeletDropin} {
			checkRefused(t, assert.Err(Decode(key, []byte(grouped+tt.data))), tt.problem, tt.words, key)
		}
	}
}

func TestErrorsAboutMisplacedNamesSuggestTheRightPlace(t *testing.T) {
	long := strings.Repeat("x", 150)
	for _, tt := range []struct{ name, data, words string }{
		{"a field of a group within", "resources: {evictionHard: {}}", "resources.evictionHard: evictionHard belongs in resources.eviction: resources.eviction.evictionHard"},
		{"an upstream field at the top", "maxPods: 1", "maxPods: maxPods belongs in resources: resources.maxPods"},
		{"an upstream field in a struct", "security: {authentication: {maxPods: 1}}", "security.authentication.maxPods: maxPods belongs in resources: resources.maxPods"},
		{"a struct that is a group, in itself", "logging: {logging: {}}", "logging.logging: logging belongs at the top level"},
		{"a field of a struct that is a group", "networking: {format: json}", "networking.format: format belongs in logging: logging.format"},
		{"a trial in a group", "resources: {trial: {}}", "resources.trial: trial belongs at the top level"},
		{"a field in the wrong case", "networking: {PodCidr: x}", "networking.PodCidr: no such field; did you mean networking.podCIDR?"},
		{"a field in the wrong case and group", "networking: {MaxPods: 1}", "networking.MaxPods: no such field; did you mean resources.maxPods?"},
		{"a field of a struct in a list", "resources: {reservations: {reservedMemory: [{numaNode: 0}, null, {limit: {}}]}}", "resources.reservations.reservedMemory[2].limit: no such field; did you mean resources.reservations.reservedMemory[2].limits?"},
		{"no group", "bogus: {}", "bogus: no such field"},
		{"what is only shown", "ungrouped: {}", "ungrouped: is only for output of fields without a group; use the upstream form (kubelet.config.k8s.io/v1beta1) to set them"},
		{"what is only at the top", "node: {kind: x, apiVersion: x, ungrouped: {}}", "node.apiVersion: no such field; node.kind: no such field; node.ungrouped: no such field"},
		{"an empty key", `"": 1`, `"": no such field`},
		{"a key with a dot", "networking.podCIDR: x", `"networking.podCIDR": no such field`},
		{"a key of several lines", `node: {"a\nb": 1}`, `node."a b": no such field`},
		{"a long key", "node: {" + long + ": 1}", `node."` + long[:31] + " … " + long[:64] + `": no such field`},
		{"null for a group", "networking: null", "networking: must be a mapping of fields, not null"},
		{"a string for a group within", "resources: {eviction: none}", `resources.eviction: must be a mapping of fields, not "none"`},
		{"many", "f: 1\ne: 1\nd: 1\nc: 1\nb: 1\na: 1", "a: no such field; b: no such field; c: no such field; and 3 more"},
	} {
		checkRefused(t, assert.Err(Decode(KeyKubelet, []byte(grouped+tt.data))), ProblemGroup, tt.words, tt.name)
	}
}

func TestAnErrorAboutManyLongNamesIsTruncated(t *testing.T) {
	var data strings.Builder
	for _, c := range "abcdefgh" {
		data.WriteString(strings.Repeat(string(c), 1000) + ": 1\n")
	}

	_, err := Decode(KeyKubelet, []byte(grouped+data.String()))
	assert.That(t, err != nil && len(err.Error()) <= 500 && strings.HasSuffix(err.Error(), "; and 5 more"), "got %v", err)
}

func TestTypesOfValuesAreNotChecked(t *testing.T) {
	p, err := Decode(KeyKubelet, []byte(grouped+"resources: {maxPods: many, memorySwap: null, eviction: {}}\nsecurity: {authentication: 7, tlsCipherSuites: {a: b}}\nlogging: {options: [1]}"))
	assert.NoError(t, err)
	want := map[string]any{
		"apiVersion": UpstreamAPIVersion, "kind": KubeletKind, "maxPods": "many", "memorySwap": nil,
		"authentication": int64(7), "tlsCipherSuites": map[string]any{"a": "b"}, "logging": map[string]any{"options": []any{int64(1)}},
	}
	assert.NoDiff(t, cmp.Diff(want, p.Fields))
}

func TestFieldsWithoutAGroupAreShownAsUngrouped(t *testing.T) {
	for _, tt := range []struct {
		name         string
		fields, want map[string]any
	}{
		{"a newer kubelet's field", map[string]any{"newField": 1, "maxPods": 2},
			map[string]any{"resources": map[string]any{"maxPods": 2}, "ungrouped": map[string]any{"newField": 1}}},
		{"a newer field of a struct stays there", map[string]any{"authentication": map[string]any{"newWay": 1}},
			map[string]any{"security": map[string]any{"authentication": map[string]any{"newWay": 1}}}},
		{"a newer field of a struct that is a group", map[string]any{"logging": map[string]any{"format": "json", "containerLogMaxSize": "new"}, "containerLogMaxSize": "1Mi"},
			map[string]any{"logging": map[string]any{"format": "json", "containerLogMaxSize": "1Mi"}, "ungrouped": map[string]any{"logging": map[string]any{"containerLogMaxSize": "new"}}}},
		{"a struct that is a group, and is none", map[string]any{"logging": "x"}, map[string]any{"ungrouped": map[string]any{"logging": "x"}}},
		{"an empty struct that is a group", map[string]any{"logging": map[string]any{}}, map[string]any{"ungrouped": map[string]any{"logging": map[string]any{}}}},
		{"nothing", nil, map[string]any{}},
		{"the upstream form's own kind", map[string]any{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}, map[string]any{}},
	} {
		tt.want["apiVersion"], tt.want["kind"] = "evenkeel.dev/v1alpha1", "KubeletConfiguration"
		assert.NoDiff(t, cmp.Diff(tt.want, Group(tt.fields)), tt.name)
	}
}

func TestGroupedPathsAreUnique(t *testing.T) {
	seen := map[string]string{}
	groups := map[string]bool{}
	for _, f := range Fields {
		path := GroupedPath(f.Path)
		other, ok := seen[path]
		assert.That(t, !ok, "%s and %s are both %s", f.Path, other, path)
		seen[path] = f.Path
		want := f.Group + "." + f.Path
		if top, rest, _ := strings.Cut(f.Path, "."); rest != "" && top == last(f.Group) {
			want = f.Group + "." + rest
		}

		assert.Equal(t, path, want, f.Path, "is at")
		for g := f.Group; g != ""; g = strings.TrimSuffix(strings.TrimSuffix(g, last(g)), ".") {
			groups[g] = true
		}
	}

	for _, own := range []string{"apiVersion", "kind", "trial", "ungrouped"} {
		assert.That(t, !groups[own], "%q is a group", own)
	}

	names := map[string]bool{"trial": true}
	once := func(name string) {
		assert.That(t, !names[name], "two groups or fields of groups are called %s: the name is ambiguous", name)
		names[name] = true
	}
	var visit func(g *group)
	visit = func(g *group) {
		for key := range g.fields {
			once(key)
		}

		for key, inner := range g.groups {
			once(key)
			visit(inner)
		}
	}
	visit(topGroup)
	assert.Equal(t, GroupedPath("newField.x"), "newField.x", "a field that is not in the table is at")
}
