// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package printable

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

var hostile = []string{
	"", "plain", "a\tb\nc", "\x1b[2J\x1b]0;title\x07", "\u202eevil", "zero\u200bwidth", "\xff\xfe", "e\u0301", "\r\n", "\U000e0041", "\u2028",
	"漢字 and more", strings.Repeat("x", 300), `"quoted\u001b"`, "\x9b31m",
}

func FuzzText(f *testing.F) {
	for _, text := range hostile {
		f.Add(text, 3)
	}

	f.Fuzz(func(t *testing.T, text string, at int) {
		whole := Text(text)
		assert.That(t, Clean([]byte(whole)) && Text(whole) == whole, "%q became %q, which is not clean", text, whole)
		line := Line(text)
		assert.That(t, !strings.ContainsAny(line, "\n\t") && Clean([]byte(line)), "%q became the line %q", text, line)
		// In pieces, a carriage return at the end of one does not know the
		// newline that follows.
		if text = strings.ReplaceAll(text, "\r", ""); !utf8.ValidString(text) {
			return
		}

		var out bytes.Buffer
		w := NewWriter(&out)
		at = max(0, min(at, len(text)))
		for _, piece := range []string{text[:at], text[at:]} {
			n, err := w.Write([]byte(piece))
			assert.Must(t, n == len(piece) && err == nil, "%d, %v", n, err)
		}

		assert.Equal(t, out.String(), Text(text), text, "in pieces became")
	})
}

func FuzzTruncate(f *testing.F) {
	for _, text := range hostile {
		f.Add(text, 20)
	}

	f.Fuzz(func(t *testing.T, text string, n int) {
		n = max(0, min(n, 1000))
		if got := Truncate(text, n); len(got) > n || utf8.ValidString(text) && !utf8.ValidString(got) || len(text) <= n && got != text {
			t.Errorf("%q with at most %d bytes is %q", text, n, got)
		}
	})
}

// Escaped JSON and YAML mean what they meant before.
func FuzzEncoded(f *testing.F) {
	for _, text := range hostile {
		f.Add(text)
	}

	f.Fuzz(func(t *testing.T, text string) {
		encoded, err := json.Marshal(map[string]any{"a" + text[:min(len(text), 100)]: []any{text}}) // YAML has no keys of more than 1,024 characters
		assert.NoError(t, err)
		var want, got map[string]any
		assert.NoError(t, json.Unmarshal(encoded, &want))
		if !Clean(JSON(encoded)) || !Clean(YAML(encoded)) {
			t.Errorf("%q is not clean: %q, %q", text, JSON(encoded), YAML(encoded))
		}
		if err := json.Unmarshal(JSON(encoded), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %q, which is read as %q, %v", text, JSON(encoded), got, err)
		}

		got = nil
		if err := yaml.Unmarshal(YAML(encoded), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %q, which is read as %q, %v", text, YAML(encoded), got, err)
		}
	})
}
