// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// node returns a kubelet with a local file and drop-ins with these contents.
func node(t *testing.T, local string, dropins ...string) *Kubelet {
	t.Helper()
	files := map[string]string{"local": local}
	for i, text := range dropins {
		files[fmt.Sprintf("conf.d/%d.conf", i)] = text
	}

	dir := tree(t, files)
	k := &Kubelet{Config: filepath.Join(dir, "local")}
	if len(dropins) > 0 {
		k.ConfigDir = filepath.Join(dir, "conf.d")
	}

	return k
}

func TestLimitsApplyToFilesThatOnlyAKubeletAccepts(t *testing.T) {
	for _, deep := range []string{"a: " + strings.Repeat("[", 60) + strings.Repeat("]", 60), `"a": ` + strings.Repeat("{x: ", 60) + "1" + strings.Repeat("}", 60)} {
		assert.Error(t, assert.Err(newLayer([]byte("b: 1\nb: 2\n"+deep+"\n"), OriginLocal)), "nested more than 50 levels deep", deep[:10])
	}

	l := assert.Value(newLayer([]byte("b: 1\nb: 2\n"), OriginLocal))(t)
	assert.That(t, l.fields["b"] != nil, "a key twice: %v", l.fields)
}

func TestTheTopmostLayerThatSetsAFieldIsItsOrigin(t *testing.T) {
	const local, own, ours = OriginLocal, OriginLocal, OriginDropin
	for _, tt := range []struct {
		name, local, own, ours, path string
		want                         any
		origin                       Origin
	}{
		{"no layer", "a: 1", "b: 1", "c: 1", "x", nil, ""},
		{"the node's own drop-in", "x: 1", "x: 2", "c: 1", "x", json.Number("2"), own},
		{"ours", "x: 1", "x: 2", "x: 3", "x", json.Number("3"), ours},
		{"a key of a mapping", "m: {a.b: 1}", "m: {c: 2}", "m: {}", "m[a.b]", json.Number("1"), local},
		{"ours takes it away", "x: 1", "x: 2", "x: null", "x", nil, ours},
		{"the node's own takes it away", "m: {x: 1}", "m: null", "", "m.x", nil, own},
		{"null in the file is nothing", "x: null", "", "", "x", nil, local},
		{"a drop-in in another case", "x: 1", "X: 2", "", "x", json.Number("2"), own},
		{"a file in another case", "X: 1", "", "", "x", nil, ""},
		{"a mapping gives way to a value", "m: {x: 1}", "m: 2", "", "m.x", json.Number("2"), own},
	} {
		candidate := assert.Value(node(t, tt.local, tt.own).candidate(Candidate{Data: []byte(tt.ours), Dropin: true}, ""))(t, tt.name)
		layers := assert.Value(candidate.layers())(t, tt.name)
		value, origin := lookupLayers(layers, splitPath(tt.path))
		assert.That(t, value == tt.want && origin == tt.origin, "%s: got %v from %q, want %v from %q", tt.name, value, origin, tt.want, tt.origin)
	}
}

func TestMaskedHeadersAreHiddenUnlessTheyAreKnownToBeEqual(t *testing.T) {
	const same = "staticPodURLHeader: {a: [secret]}"
	const sameInJSON = `{"staticPodURLHeader": {"a": ["secret"]}}`
	const other = "staticPodURLHeader: {a: [changed]}"
	const a, b = "staticPodURLHeader.a", "staticPodURLHeader.b"
	whole := func(text string) Candidate { return Candidate{Data: []byte(text)} }
	dropin := func(text string) Candidate { return Candidate{Data: []byte(text), Dropin: true} }
	for _, tt := range []struct {
		name      string
		node      *Kubelet
		candidate Candidate
		shown     string // header names in both dumps
		want      []string
	}{
		{"the same", node(t, same), whole(sameInJSON), "a", nil},
		{"one of two", node(t, "staticPodURLHeader: {a: [s], b: [s], c.d: [s]}"), whole("staticPodURLHeader: {a: [s], b: [t], c.d: [t]}"), "a b c.d",
			[]string{b, "staticPodURLHeader[c.d]"}},
		{"one that is not there locally", node(t, "x: 1"), whole(same), "a", []string{a}},
		{"one that is there locally only", node(t, same), whole("x: 1"), "a", []string{a}},
		{"a drop-in that does not mention what cannot be known", node(t, same, "STATICpodURLHeader: {}"), dropin("x: 1"), "a", nil},
		{"a drop-in with another value", node(t, same), dropin(other), "a", []string{a}},
		{"a drop-in that adds one", node(t, same), dropin("staticPodURLHeader: {b: [s]}"), "a b", []string{b}},
		{"a drop-in that takes one away", node(t, same), dropin("staticPodURLHeader: {a: null}"), "a", []string{a}},
		{"a drop-in that takes all away", node(t, same), dropin("staticPodURLHeader: null"), "a", []string{a}},
		{"the node's own drop-in has the same", node(t, other, same), whole(same), "a", nil},
		{"the node's own drop-in in another case", node(t, same, "STATICpodURLHeader: {}"), whole(same), "a", []string{a}},
		{"the node's file in another case, which does not count", node(t, same+"\nSTATICpodURLHeader: {}"), whole(same), "a", nil},
		{"a value of another kind", node(t, "staticPodURLHeader: 3"), whole(same), "a", []string{a}},
		{"a local file that cannot be read", &Kubelet{Config: "/nowhere"}, whole(same), "a", []string{a}},
		{"a local drop-in directory that cannot be read", &Kubelet{ConfigDir: "/nowhere"}, whole(same), "a", []string{a}},
		{"a local drop-in that is no YAML", node(t, "x: 1", "{: ["), whole(same), "a", []string{a}},
		{"one that is only printed", node(t, same), whole(same), "a b", []string{b}},
		{"no dump, another value", node(t, same), whole(other), "-", []string{a}},
		{"no dump, and not to be known", &Kubelet{Config: "/nowhere"}, whole("x: 1"), "-", []string{"staticPodURLHeader"}},
		{"a flag replaces them", &Kubelet{flags: []flag{{name: "manifest-url-header", value: "a:b"}}}, whole(same), "a", nil},
	} {
		var printed Effective
		if tt.shown != "-" {
			masked := map[string]any{}
			for name := range strings.FieldsSeq(tt.shown) {
				masked[name] = []any{"<masked>"}
			}

			printed = Effective{"staticPodURLHeader": masked}
		}

		candidate := assert.Value(tt.node.candidate(tt.candidate, ""))(t, tt.name)
		c := &check{h: &DryRunner{k: tt.node}, candidate: candidate, local: tt.node.local("")}
		assert.NoDiff(t, cmp.Diff(tt.want, c.maskedDifferences(printed, printed)), tt.name)
	}
}

func TestTheVerbosityOfTheDryRunIsNotReported(t *testing.T) {
	k := func(k *Kubelet, v string) *Kubelet {
		k.flags = []flag{{name: "v", value: v}}
		return k
	}
	for _, tt := range []struct {
		name string
		k    *Kubelet
		want string
	}{
		{"the flag's", k(node(t, "logging: {verbosity: 2}"), "3"), "3"},
		{"the flag's, which is no number", k(node(t, "logging: {verbosity: 2}"), "x"), "<nil>"},
		{"the file's", node(t, "logging: {verbosity: 2}"), "2"},
		{"the drop-in's", node(t, "logging: {verbosity: 2}", "Logging: {Verbosity: 4}"), "4"},
		{"the default", node(t, "x: 1"), "0"},
		{"something else", node(t, "logging: {verbosity: high}"), "<nil>"},
		{"that of a file which cannot be read", &Kubelet{Config: "/nowhere"}, "<nil>"},
	} {
		const text = `{"Logging":{"verbosity":5},"MaxPods":110}`
		printed := effectiveOf(t, text)
		n, _ := tt.k.setVerbosity(printed, tt.k.local(""), true).Field("logging.verbosity")
		assert.Equal(t, fmt.Sprint(n), tt.want, tt.name)
		assert.NoDiff(t, cmp.Diff(effectiveOf(t, text), printed), tt.name, "what was printed changed")
	}
}

// printing is a fake kubelet that prints maxPods 1 for the local configuration,
// which contains LOCAL, and 2 otherwise.
const printing = `case "$config" in *LOCAL*) dump '{"MaxPods": 1}';; *) dump '{"MaxPods": 2}';; esac; `

func TestALocalConfigurationThatCannotBePrintedIsAWarning(t *testing.T) {
	for body, want := range map[string]string{
		`case "$stage$config" in 1*LOCAL*) end "no good";; esac; ` + printing + "accept": "the effective local configuration is unknown: no good",
		`case "$config" in *LOCAL*) quiet; accept;; esac; ` + printing + "accept":        "the effective local configuration is unknown: the kubelet did not print it",
	} {
		h := dryRunner(t, fakeWithLocal(t, body, "maxPods: 1 # LOCAL"))
		v := h.Check(context.Background(), Candidate{Data: []byte("maxPods: 2")}, "")
		checkVerdict(t, v, Accepted, 1, "stage 2 of the dry run was not used: the local configuration's container runtime is unknown")
		assert.That(t, v.Local == nil && slices.Equal(v.Warnings, []string{want}), "local %v, warnings %q, want %q", v.Local, v.Warnings, want)
	}
}

func TestUnknownOriginsAreAWarning(t *testing.T) {
	const broken = "{: [ # LOCAL"
	h := dryRunner(t, fakeWithLocal(t, printing+"accept", broken))
	v := h.CheckLocal(context.Background(), "")
	checkVerdict(t, v, Accepted, 1, "")
	assert.That(t, len(v.Warnings) == 1 && strings.HasPrefix(v.Warnings[0], "cannot tell where fields come from: "+h.k.Config+": error converting YAML to JSON: ") && v.Origins == nil,
		"origins %v, warnings %q", v.Origins, v.Warnings)
	v = h.Check(context.Background(), Candidate{Data: []byte("maxPods: 2"), Dropin: true}, "")
	assert.That(t, len(v.Warnings) == 1 && v.Origins == nil, "origins %v, warnings %q", v.Origins, v.Warnings)
}

func TestARejectedLocalConfigurationCancelsTheRunWithoutFlags(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	k := fakeWithLocal(t, printing+`case "$* $config" in *--max-pods=5*) until [ -s `+pids+` ]; do sleep 0.01; done; end "no good";; *LOCAL*) sleep 600 & echo $$ $! >`+pids+`; wait;; esac; accept`, "LOCAL", "--max-pods=5")
	checkVerdict(t, dryRunner(t, k).CheckLocal(context.Background(), ""), Rejected, 1, "no good")
	mustBeGone(t, pids)
}
