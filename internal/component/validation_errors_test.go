// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// scripted returns what gives a list of verdicts, one after another, and stores
// its inputs.
func scripted(verdicts []Verdict) (validate func(context.Context, []byte) Verdict, asked *[]string) {
	asked = new([]string)

	return func(_ context.Context, data []byte) Verdict {
		*asked = append(*asked, string(data))
		return verdicts[min(len(*asked), len(verdicts))-1]
	}, asked
}

func rejected(message string) Verdict { return Verdict{Outcome: Rejected, Stage: 1, Message: message} }

func TestErrorsAreCollectedOneFeatureGateAtATime(t *testing.T) {
	const data = "featureGates: {B: true, A: true, L: false}\nm: 7.5\n"
	const ofB, ofA, ofL = "unrecognized feature gate: B", "unrecognized feature gate: A", "cannot set feature gate L to false, feature is locked to true"
	const strict = `strict decoding error: unknown field "m"`
	accepted := Verdict{Outcome: Accepted}
	unknown := Verdict{Message: "no luck"}
	for _, tt := range []struct {
		name, data string
		verdicts   []Verdict
		want       []string
		last       string // last input
	}{
		{"accepted", data, []Verdict{accepted}, nil, data},
		{"could not tell", data, []Verdict{unknown}, nil, data},
		{"no gate", data, []Verdict{rejected("x; " + strict)}, []string{"x", strict}, data},
		{"all gates", data, []Verdict{rejected(ofB), rejected("[" + ofL + ", " + ofA + "]"), accepted}, []string{ofL, ofA, ofB}, `{"featureGates":{},"m":7.5}`},
		{"gates and the rest", data, []Verdict{rejected(ofB), rejected(ofA + "; " + strict), rejected("x; " + strict)},
			[]string{ofA, ofB, "x", strict}, `{"featureGates":{"L":false},"m":7.5}`},
		{"the first of what a strict decoder says", data, []Verdict{rejected(ofB + "; " + strict + " (line 1)"), rejected(strict + " (line 2)")},
			[]string{ofB, strict + " (line 1)"}, `{"featureGates":{"A":true,"L":false},"m":7.5}`},
		{"an answer of no use", data, []Verdict{rejected(ofB), rejected(ofA), unknown}, []string{ofA, ofB, "correct these and ask again: there may be more errors"}, `{"featureGates":{"L":false},"m":7.5}`},
		{"a gate that is not there", data, []Verdict{rejected("unrecognized feature gate: C")}, []string{"unrecognized feature gate: C"}, data},
		{"JSON", `{"featureGates":{"B":true}}`, []Verdict{rejected(ofB), accepted}, []string{ofB}, `{"featureGates":{}}`},
		{"no YAML", ": : :", []Verdict{rejected(ofB)}, []string{ofB}, ": : :"},
	} {
		validate, asked := scripted(tt.verdicts)
		got := objections(t.Context(), validate(t.Context(), []byte(tt.data)), []byte(tt.data), validate)
		assert.NoDiff(t, cmp.Diff(tt.want, got), tt.name)
		assert.Equal(t, (*asked)[len(tt.verdicts)-1], tt.last, tt.name) // then it looks for the field that an error is about
	}
}

func TestAnErrorWithoutAFieldGetsItsName(t *testing.T) {
	const words = "quantities must match the regular expression"
	const data = `{"maxPods": 5, "evictionHard": {"memory.available": "banana", "nodefs.available": "10%"}, "a": 1, "featureGates": {"A": true}, "syncFrequency": "1s"}`
	of := func(field, key string) func(f map[string]any) bool {
		return func(f map[string]any) bool {
			inner, _ := f[field].(map[string]any)
			return f[field] != nil && (key == "" || inner[key] != nil)
		}
	}
	for _, tt := range []struct {
		name, message string
		wrong         func(f map[string]any) bool
		want          string
		data          string
	}{
		{"a key of a mapping", words, of("evictionHard", "memory.available"), `evictionHard[memory.available]: "banana": ` + words, data},
		{"a field", words, of("syncFrequency", ""), `syncFrequency: "1s": ` + words, data},
		{"it names the field", "invalid MaxPods", of("maxPods", ""), "invalid MaxPods", data},
		{"it has no field", words, func(map[string]any) bool { return true }, words, data},
		{"two of them", words, func(f map[string]any) bool { return f["a"] != nil || f["syncFrequency"] != nil }, words, data},
		{"null", words, func(f map[string]any) bool { _, set := f["syncFrequency"]; return set }, "syncFrequency: null: " + words, `{"maxPods": 5, "syncFrequency": null}`},
		{"a secret", "no", of("staticPodURLHeader", "Token"), "staticPodURLHeader.Token: masked: no", `{"staticPodURLHeader": {"Token": ["hidden"]}}`},
		{"it cannot be decoded", words, of("a", ""), words, ": :"},
	} {
		got := objections(t.Context(), rejected(tt.message), []byte(tt.data), func(_ context.Context, data []byte) Verdict {
			if tt.wrong(decoded(data)) {
				return rejected(tt.message)
			}

			return Verdict{Outcome: Accepted, Stage: 1}
		})
		assert.NoDiff(t, cmp.Diff([]string{tt.want}, got), tt.name)
	}
}

// Without a protected field, stage 2 does not run, so that the error of another
// field does not occur either.
func TestOnlyACopyThatPassesTheSameStageNamesAField(t *testing.T) {
	const words = "quantities must match"
	data := []byte(`{"address": "192.0.2.1", "syncFrequency": "1s"}`)
	rejection := Verdict{Outcome: Rejected, Stage: 2, Message: words}
	for _, tt := range []struct {
		name      string
		protected Verdict // without address
		passes    string  // the field without which stage 2 accepts
		effective Effective
		want      string
		copies    int
	}{
		{"accepted at stage 1", Verdict{Outcome: Accepted, Stage: 1}, "", nil, words, 2},
		{"a protected difference", Verdict{Outcome: Accepted, Stage: 2, Violations: []payload.Difference{{}}}, "", nil, words, 2},
		{"another error", Verdict{Outcome: Rejected, Stage: 2, Message: "other"}, "", nil, words, 2},
		{"the other field", Verdict{Outcome: Accepted, Stage: 1}, "syncFrequency", nil, `syncFrequency: "1s": ` + words, 2},
		{"it has the local value", Verdict{Outcome: Accepted, Stage: 2}, "syncFrequency", Effective{"address": "192.0.2.1", "syncFrequency": "5s"},
			`syncFrequency: "1s": ` + words, 1},
	} {
		v, copies := rejection, 0
		v.Effective, v.Local = tt.effective, Effective{"address": "192.0.2.1", "syncFrequency": "1m"}
		got := objections(t.Context(), v, data, func(_ context.Context, data []byte) Verdict {
			copies++
			switch fields := decoded(data); {
			case fields["address"] == nil:
				return tt.protected
			case tt.passes != "" && fields[tt.passes] == nil:
				return Verdict{Outcome: Accepted, Stage: 2}
			}

			return rejection
		})
		assert.NoDiff(t, cmp.Diff([]string{tt.want}, got), tt.name)
		assert.Equal(t, copies, tt.copies, tt.name)
	}
}

func TestNoCopyIsValidatedAfterTheCheckWasCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got := objections(ctx, rejected("no"), []byte(`{"a": 1}`), func(context.Context, []byte) Verdict {
		t.Error("validated")
		return Verdict{Outcome: Accepted, Stage: 1}
	})
	assert.NoDiff(t, cmp.Diff([]string{"no"}, got))
}

func TestTheNumberOfRepeatedValidationsIsLimited(t *testing.T) {
	var data strings.Builder
	data.WriteString("featureGates:\n")
	var verdicts []Verdict
	for i := range 100 {
		fmt.Fprintf(&data, "  Gate%02d: true\n", i)
		verdicts = append(verdicts, rejected(fmt.Sprintf("unrecognized feature gate: Gate%02d", i)))
	}

	validate, asked := scripted(verdicts[1:])
	got := objections(t.Context(), verdicts[0], []byte(data.String()), validate)
	assert.That(t, len(got) == maxCopies+2 && len(*asked) == maxCopies, "%d objections after %d copies", len(got), len(*asked))
}

func TestEveryFeatureGateThatARealComponentRejectsIsNamed(t *testing.T) {
	const gates = "featureGates: {Foo: true, AllAlpha: false, WinOverlay: false, Bar: false, WinDSR: false}\nbogus: 1\n"
	refused := []string{
		"cannot set feature gate WinDSR to false, feature is locked to true",
		"cannot set feature gate WinOverlay to false, feature is locked to true",
		"unrecognized feature gate: Bar",
		"unrecognized feature gate: Foo",
	}
	for _, tt := range []struct {
		name, data string
		want       []string
	}{
		{"kube-proxy", string(proxyConfig(gates + "oomScoreAdj: 2000\n")), append(refused[:4:4],
			"KubeProxyConfiguration.KubeProxyLinuxConfiguration.OOMScoreAdj: Invalid value: 2000: must be within the range [-1000, 1000]",
			`strict decoding error: unknown field "bogus"`)},
		{"kubelet", string(config(gates + "maxPods: -1\n")), append(refused[:4:4],
			"invalid configuration: maxPods (--max-pods) -1 must not be a negative number", `strict decoding error: unknown field "bogus"`)},
	} {
		v, got := ValidationErrors(t.Context(), realComponent(t, tt.name), []byte(tt.data))
		assert.NoDiff(t, cmp.Diff(tt.want, got), tt.name)
		assert.That(t, v.Outcome == Rejected && strings.Contains(v.Message, "feature gate"),
			"%s: the verdict is %s: %s", tt.name, v.Outcome, v.Message)
	}
}
