// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/internal/operator/kubeadm"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// thereAndBack converts a flat KubeletConfiguration into the grouped form and
// back, and fails if it means another then.
func thereAndBack(t rapid.TB, flat []byte) {
	t.Helper()
	want, err := payload.Decode(payload.KeyKubelet, flat)
	assert.Must(t, err == nil, "%v: %s", err, flat)
	text := flat
	for range 2 {
		d, err := kubeadm.Documents("f.yaml", text)
		assert.Must(t, err == nil, "%v: %s", err, text)
		if text, err = convert(d[0]); err != nil {
			t.Fatalf("%v: %s", err, d[0].Text)
		}
	}

	got := assert.Value(payload.Decode(payload.KeyKubelet, text))(t)
	assert.NoDiff(t, cmp.Diff(want.Fields, got.Fields), string(text))
	assert.Must(t, strings.HasPrefix(string(text), "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"),
		"apiVersion and kind come first: %s", text)
}

func TestConversionKeepsEveryField(t *testing.T) {
	text := assert.Value(os.ReadFile("../../payload/testdata/printed-full.json"))(t)
	var printed map[string]any
	assert.NoError(t, json.Unmarshal(text, &printed))
	fields := payload.Canonical(printed)
	fields["apiVersion"], fields["kind"] = payload.UpstreamAPIVersion, payload.KubeletKind
	assert.That(t, len(fields) >= 100, "only %d fields", len(fields))
	thereAndBack(t, assert.Value(json.Marshal(fields))(t))
}

func TestConversionKeepsAnyValueOfAnyField(t *testing.T) {
	guarded := map[string]bool{
		"staticPodPath": true, "authentication.x509.clientCAFile": true, "tlsCertFile": true, "tlsPrivateKeyFile": true,
		"resolvConf": true, "volumePluginDir": true, "podLogsDir": true, "healthzPort": true,
	}
	ruled := map[string]bool{
		"kubeReserved": true, "systemReserved": true, "evictionHard": true, "evictionSoft": true, "evictionMinimumReclaim": true,
	}
	values := []any{
		nil, true, false, 0, -7, int64(1)<<62 + 1, 0.1, 1e-9, 2.5e30, []any{}, []any{nil, "a", map[string]any{}}, map[string]any{},
		"", " ", "yes", "null", "~", "1e3", "0x1f", "012", "1:30", "<<", "=", "- a", "# a", "a: b", "a\nb\n", "\ta", "2026-01-02", "\u2028", "ü😀", "\x01", "*a", "&a b",
	}
	rapid.Check(t, func(t *rapid.T) {
		fields := map[string]any{"apiVersion": payload.UpstreamAPIVersion, "kind": payload.KubeletKind}
		for _, f := range rapid.SliceOfN(rapid.SampledFrom(payload.Fields), 0, 20).Draw(t, "fields") {
			if guarded[f.Path] {
				continue
			}

			var value any = rapid.SampledFrom(values).Draw(t, f.Path)
			key := rapid.SampledFrom([]string{"", "memory.available", "yes", "1", "1.0", "a b"}).Draw(t, "key")
			if key != "" && !strings.Contains(f.Path, ".") {
				value = map[string]any{key: value}
			}

			if m, mapping := value.(map[string]any); mapping {
				if _, inner := m[key].(map[string]any); f.Path == "maxPods" || inner && ruled[f.Path] {
					continue // a mapping in the place of such a value is a rule, which only the grouped form has
				}
			}

			set(fields, strings.Split(f.Path, "."), value)
		}

		thereAndBack(t, assert.Value(json.Marshal(fields))(t))
	})
}

// set sets the field at path; structs on the way are made.
func set(fields map[string]any, path []string, value any) {
	for ; len(path) > 1; path = path[1:] {
		inner, ok := fields[path[0]].(map[string]any)
		if !ok {
			inner = map[string]any{}
			fields[path[0]] = inner
		}

		fields = inner
	}

	fields[path[0]] = value
}

func TestConversionOfAnEmptyConfiguration(t *testing.T) {
	const want = "apiVersion: evenkeel.dev/v1alpha1\nkind: KubeletConfiguration\n"
	got, err := Convert("f", []byte(header), "grouped")
	assert.That(t, err == nil && string(got) == want, "got %q, %v, want %q", got, err, want)
	thereAndBack(t, []byte(header))
}

func TestConversionKeepsLargeNumbers(t *testing.T) {
	flat := header + "kubeAPIBurst: 18446744073709551615\nmaxOpenFiles: 9223372036854775807\n"
	got, err := Convert("f", []byte(flat), "grouped")
	want := "cluster:\n  kubeAPIBurst: 18446744073709551615\nresources:\n  maxOpenFiles: 9223372036854775807\n"
	assert.That(t, err == nil && strings.HasSuffix(string(got), want), "got %q, %v, want at its end %q", got, err, want)
}

func TestConversionLimitsTheSizeOfTheResult(t *testing.T) {
	gates := map[string]bool{}
	for i := range 45_000 { // in YAML each is a line of its own
		gates[fmt.Sprintf("Gate%010d", i)] = true
	}

	fields := map[string]any{"apiVersion": payload.UpstreamAPIVersion, "kind": payload.KubeletKind, "featureGates": gates}
	text := assert.Value(json.Marshal(fields))(t)
	assert.Must(t, len(text) <= payload.MaxSize, "%d bytes", len(text))
	const want = "large.json: the grouped form is not valid: larger than 1 MiB; nothing was written"
	assert.Error(t, assert.Err(Convert("large.json", text, "grouped")), want)
}
