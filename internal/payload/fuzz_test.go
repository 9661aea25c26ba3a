// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// payloads are the seeds of targets that decode a payload.
var payloads = []string{
	"", "{", "a: &a [*a]", "{\"a\":1,\"a\":2}", "? [a]\n: b", "\xff\xfe", "a: !!binary x", head, head + "maxPods: 120\n",
	head + "evictionHard: {memory.available: 1Gi}\nfeatureGates: {A: true}\nstaticPodURLHeader: {Authorization: [secret]}",
	grouped + "resources: {maxPods: 110, eviction: {evictionHard: {memory.available: 1Gi}}}",
	grouped + "trial: {configTrialDuration: 1h, crashLoopThreshold: 3, allowPodLoss: true}",
	grouped + "logging: {format: json, options: {text: {infoBufferSize: 18446744073709551616}}}",
	head + "registerWithTaints: [{key: a, effect: NoSchedule}, {key: b}]\nclusterDNS: [10.96.0.10]\n", head + "\"a\\u202eb\": 1",
}

// Errors say what is wrong in one line that fits a status, and the two ways to
// decode agree.
func FuzzDecode(f *testing.F) {
	for _, text := range payloads {
		f.Add([]byte(text))
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Decode(KeyKubelet, data)
		if err != nil {
			var refused *Error
			assert.That(t, errors.As(err, &refused) && refused.Problem != "" && refused.Message != "" && !strings.HasPrefix(refused.Message, "ConfigMap"),
				"%q is refused with %#v", data, err)
			words := err.Error()
			assert.That(t, len(words) <= 2000 && !strings.ContainsAny(words, "\n\r"), "%q is refused with %d bytes: %q", data, len(words), words)

			return
		}

		if p.HasRules() {
			return
		}

		mapping := assert.Value(DecodeMapping(p.upstream))(t, string(data), "was accepted, but", string(p.upstream), "is not")
		d := Diff(mapping, mapping)
		assert.That(t, len(d) == 0, "%q differs from itself: %v", data, d)
		canonical := Canonical(mapping)
		assert.NoDiff(t, cmp.Diff(canonical, Canonical(canonical)), "the canonical names change")

		v := DefaultProtection().Violations(mapping, mapping, nil)
		assert.That(t, len(v) == 0, "%q violates protected fields compared with itself: %v", data, v)
	})
}

// A configuration in the grouped form is decoded as the same configuration.
func FuzzGroup(f *testing.F) {
	for _, text := range payloads {
		f.Add([]byte(text))
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Decode(KeyKubelet, data)
		if err != nil {
			return
		}

		group := Group(p.Fields)
		text, err := json.Marshal(group)
		if err != nil || len(text) > MaxSize/2 || group["ungrouped"] != nil { // those are for output only
			return
		}

		again, err := Decode(KeyKubelet, text)
		if err != nil {
			var refused *Error
			if errors.As(err, &refused) && (refused.Problem == ProblemTooDeep || refused.Problem == ProblemTooLarge || refused.Problem == ProblemGroup || refused.Problem == ProblemRule) {
				return // groups are deeper, unknown names below a field are refused, and a mapping can be a rule
			}

			t.Fatalf("%q, grouped as %q, is refused: %v", data, text, err)
		}

		if again.HasRules() {
			return
		}

		assert.NoDiff(t, cmp.Diff(p.Fields, again.Fields), string(data), "grouped as", string(text), "is another configuration")
	})
}

// Masking keeps a text valid and ends; a masked text has nothing more to mask
// of the forms whose secret is known.
func FuzzMaskText(f *testing.F) {
	for _, text := range []string{
		"Authorization: Bearer %", "-----BEGIN RSA PRIVATE KEY-----\n%\n-----END RSA PRIVATE KEY-----", "https://user:%@host/path", "password=%",
		`"token": "%"`, "--api-key=%", "?sig=%", "proxy-authorization=[Basic %]", `secret="%"`,
	} {
		f.Add(text, "before ", " after")
	}

	const secret = "hunter2Zq9xVw8"
	f.Fuzz(func(t *testing.T, form, before, after string) {
		if len(form)+len(before)+len(after) > 10_000 {
			return
		}

		out := MaskText(before + strings.ReplaceAll(form, "%", secret) + after)
		assert.That(t, len(out) <= 20*(len(form)+len(before)+len(after)+len(secret)*(1+strings.Count(form, "%"))),
			"%d bytes became %d", len(form)+len(before)+len(after), len(out))
		for _, known := range []string{"Authorization: Bearer %", "https://user:%@host/path", "password=%"} {
			if text := before + "\n" + strings.ReplaceAll(known, "%", secret) + "\n" + after; strings.Contains(MaskText(text), secret) && !strings.Contains(before+after, secret) {
				t.Errorf("the secret in %q stays in %q", text, MaskText(text))
			}
		}
	})
}

// What a protection list accepts, it protects; what it refuses, the error
// names.
func FuzzProtection(f *testing.F) {
	for _, value := range []string{"", "default", "none", "maxPods", "+maxPods,-clusterDNS", "-authentication.x509.clientCAFile", "evictionHard[memory.available]", "authentification", ",", "+", "--", "a b"} {
		f.Add(value)
	}

	f.Fuzz(func(t *testing.T, value string) {
		p, err := ParseProtection(value)
		if err != nil {
			assert.That(t, len(err.Error()) <= 1000+5*len(value), "%q is refused with %d bytes", value, len(err.Error()))

			return
		}

		var fields map[string]any
		assert.NoError(t, yaml.Unmarshal([]byte("clusterDNS: [10.0.0.1]\nmaxPods: 5\n"), &fields))
		v := p.Violations(fields, fields, nil)
		assert.That(t, len(v) == 0, "with %q, a configuration violates fields compared with itself: %v", value, v)
	})
}
