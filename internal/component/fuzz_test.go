// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

var kubeletLogs = []string{
	"I0510 12:00:00.000000    4711 server.go:47] \"KubeletConfiguration\" configuration=<\n\tauthentication:\n\t  anonymous: {}\n >\n",
	"E0510 12:00:00.000000    4711 run.go:72] \"command failed\" err=\"failed to load kubelet config file\"\n",
	`{"ts":1,"caller":"a.go:1","msg":"command failed","err":"x"}` + "\n", "Error: unknown flag: --x\n", "panic: runtime error\n\ngoroutine 1 [running]:\n",
	"Flag --max-pods has been deprecated, This parameter should be set via the config file specified by the Kubelet's --config flag.\n",
	"I0510 12:00:00.000000    4711 a.go:1] \"a\" b={\"c\":[1,2]} d=\"e\" f=<\n\tg\n > h=i\n", "\r\n\t\n >\n", "W0510 12:00:00.000000 1 a.go:1] \"\\u202e\" err=\"\x1b[2J\"",
}

// What a component prints is read in the same way in whatever pieces it
// arrives, and within limits.
func FuzzOutput(f *testing.F) {
	for i, text := range kubeletLogs {
		f.Add([]byte(text+kubeletLogs[(i+1)%len(kubeletLogs)]), uint16(i*7))
	}

	f.Fuzz(func(t *testing.T, data []byte, at uint16) {
		read := func(pieces ...[]byte) *outputReader {
			r := &outputReader{overrunMarks: []string{"Starting client certificate rotation"}, onOverrun: func(string) {}, holdsDump: func(string) bool { return true }}
			for _, p := range pieces {
				n, err := r.Write(p)
				assert.Must(t, n == len(p) && err == nil, "%d, %v", n, err)
			}

			r.flush()

			return r
		}
		cut := min(int(at), len(data))
		whole, pieces := read(data), read(data[:cut], data[cut:])
		assert.That(t, len(whole.dumps) <= maxDumps, "%d values are kept", len(whole.dumps))
		a, b := whole.failureText(), pieces.failureText()
		assert.That(t, a == b && slices.Equal(whole.dumps, pieces.dumps) && slices.Equal(whole.fileFlags, pieces.fileFlags) && whole.overrun == pieces.overrun,
			"%q is read as %q %q, and cut at %d as %q %q", data, a, whole.dumps, cut, b, pieces.dumps)
	})
}

func FuzzLastErrors(f *testing.F) {
	for _, text := range kubeletLogs {
		f.Add([]byte(text), 300)
	}

	f.Fuzz(func(t *testing.T, log []byte, limit int) {
		limit = 100 + max(0, min(limit, 4000))
		got := LastErrors(log, limit)
		assert.That(t, len(got) <= limit && utf8.ValidString(got) && printable.Clean([]byte(got)) && !strings.ContainsAny(got, "\n\t"), "the errors in %q are %q, with the limit %d", log, got, limit)
	})
}

const emptyDump = `{"authentication":{},"authorization":{},"containerRuntimeEndpoint":"unix:///none","healthzPort":10248,"maxPods":110,"clusterDNS":null}`

// A dump is recognized only if it is the only one, has all fields, and has the
// endpoint that identifies it.
func FuzzDump(f *testing.F) {
	for _, text := range []string{emptyDump, "Authentication: {}\nAuthorization: {}\nContainerRuntimeEndpoint: unix:///none\nHealthzPort: 1\nMaxPods: 2\n", "{}", "null", "[1]", emptyDump + "\n---\na: 1"} {
		f.Add(text, emptyDump)
	}

	f.Fuzz(func(t *testing.T, a, b string) {
		mayBeDump(a)
		values := []string{a, b}
		shape := shapeOf(values, "unix:///none")
		if one, _ := findDump([]string{a}, anchorFields); one != nil {
			two, _ := findDump([]string{a, a}, anchorFields)
			assert.That(t, two == nil, "of two equal dumps %q one is taken", a)
			for _, name := range anchorFields {
				_, ok := one[name]
				assert.That(t, ok, "the dump %q has no %s", a, name)
			}
		}

		if shape == nil {
			return
		}

		assert.That(t, len(shape.fields) != 0 && slices.IsSorted(shape.fields), "the fields of %q are %q", values, shape.fields)
		empty, _ := findEmptyDump(values, "unix:///none")
		shape.probeConfig(empty, emptyFields("kubelet.config.k8s.io/v1beta1", "unix:///none"))
		e := shape.read(values)
		assert.Must(t, e != nil, "the dump in %q gave the shape %q, but is not read with it", values, shape.fields)
		_, ok := e["kind"]
		assert.That(t, !ok, "the type stays in %v", e)
		leaves(e, nil, func(path []segment, _ any) { joinPath(path) })
	})
}

// configz and dumps: decoding ends, and the names are those of the API.
func FuzzEffective(f *testing.F) {
	for _, text := range []string{emptyDump, `{"kubeletconfig":{"maxPods":110}}`, "MaxPods: 110\nEvictionHard: {memory.available: 100Mi}\n", "a: &a {b: *a}", "\"\": 1"} {
		f.Add([]byte(text), "evictionHard[memory.available]")
	}

	f.Fuzz(func(t *testing.T, text []byte, path string) {
		got := splitPath(path)
		assert.That(t, len(got) <= len(path), "%q has %d parts", path, len(got))
		e, err := decodeEffective(text)
		if err != nil {
			return
		}

		e.Field(path)
		e.Int(path)
		again := payload.Canonical(maps.Clone(e))
		assert.That(t, reflect.DeepEqual(again, map[string]any(e)), "the names of %v change to %v", e, again)
		d := payload.Diff(e, e)
		assert.That(t, len(d) == 0, "%q differs from itself: %v", text, d)
	})
}

// Flags are read as the kubelet's own parser reads them.
func FuzzFlags(f *testing.F) {
	for _, line := range []string{
		"--config=/a --v=2", "--config /a -v 2", "-v2 --node-ip ::", "--fail-swap-on=false --runonce", "--root_dir=/x --kubeconfig=", "--", "-- a", "-v=", "--v -1", "--config --v", "-vv", "--help", "--fail-swap-on false",
		"--register-node --cert-dir -a", "--lock-file= --lock-file=/b", "-v", "--=a", "---", "--config=a=b",
	} {
		f.Add(strings.ReplaceAll(line, " ", "\n"))
	}

	f.Fuzz(func(t *testing.T, text string) {
		args := strings.Split(text, "\n")
		flags, err := parseFlags(args)
		if err == nil {
			var tokens []string
			for _, x := range flags {
				tokens = append(tokens, x.tokens...)
			}

			end := slices.Index(args, "--")
			assert.That(t, slices.Equal(tokens, args) || end >= 0 && slices.Equal(tokens, args[:len(tokens)]), "%q became the tokens %q", args, tokens)
			rest := without(flags, "config")
			assert.That(t, len(only(flags, "config"))+len(rest) == len(tokens), "%q loses arguments without --config: %q", args, rest)
		}

		theirs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
		theirs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
			return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
		})
		theirs.Usage = func() {}
		for name := range valued {
			if name == "v" {
				theirs.StringP(name, name, "", "")
			} else {
				theirs.String(name, "", "")
			}
		}

		for name := range booleans {
			theirs.Bool(name, false, "")
		}

		errTheirs := theirs.Parse(args)
		if v := theirs.Lookup("v"); errTheirs != nil || theirs.NArg() > 0 || v.Changed && strings.Trim(v.Value.String(), "0123456789") != "" {
			return // the kubelet refuses it, or it has other flags than those here
		}

		if err != nil {
			if slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "-") && !strings.HasPrefix(a, "--") }) {
				return // it refuses single dashes, except of -v
			}

			t.Fatalf("the kubelet accepts %q: %v", args, err)
		}

		for name := range valued {
			value, given := last(flags, name)
			want := theirs.Lookup(name)
			assert.That(t, want.Changed == given && want.Value.String() == value, "--%s in %q is %q (%v), and for the kubelet %q (%v)", name, args, value, given, want.Value, want.Changed)
		}
	})
}

func FuzzRejectedGates(f *testing.F) {
	f.Add([]byte(`{"featureGates":{"A":true,"B":false}}`), "unrecognized feature gate: A; cannot set feature gate B to true, feature is locked to false; strict decoding error: unknown field \"x\"")
	f.Add([]byte("featureGates: {A: 1}"), "unrecognized feature gate: B")
	f.Add([]byte("featureGates: null"), "strict decoding error: a")
	f.Fuzz(func(t *testing.T, data []byte, message string) {
		lenient, strict := cutStrict(message)
		assert.That(t, len(lenient)+len(strict) <= len(message), "%q is split into %q and %q", message, lenient, strict)
		refused, remaining := withoutRejectedGates(data, message)
		assert.Must(t, (remaining == nil) == (len(refused) == 0), "%q was refused, and %q remains", refused, remaining)
		assert.That(t, remaining == nil || json.Valid(remaining), "%q remains", remaining)
		again, _ := withoutRejectedGates(remaining, message)
		assert.That(t, remaining == nil || len(again) == 0, "%q is refused again in %q", again, remaining)
	})
}
