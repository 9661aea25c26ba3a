// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package printable

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTruncationKeepsTheBeginningAndTheEnd(t *testing.T) {
	for _, tt := range []struct {
		name, text, want string
		by               func(string, int) string
		n                int
	}{
		{"short", "a: b: c", "a: b: c", Truncate, 7},
		{"a chain of errors", "read the configuration: stage 1 of the dry run: the kubelet says: open /var/lib/kubelet/pki/ca.crt: permission denied",
			"read the configuration: … n /var/lib/kubelet/pki/ca.crt: permission denied", Columns, 74},
		{"a path", "/var/lib/kubelet/a/very/long/path/to/the/file.conf", "/var/lib/ … h/to/the/file.conf", Columns, 30},
		{"wide characters", strings.Repeat("漢", 10), "漢 … 漢漢漢", Columns, 12},
		{"marks", "xxxxxxxxxxxxe\u0301", "xx … xxxxe\u0301", Columns, 10},
		{"bytes", strings.Repeat("é", 10), "é … éé", Truncate, 12},
		{"no room", "abcdefgh", "", Columns, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.by(tt.text, tt.n), tt.want)
		})
	}
}

func TestTruncatedTextFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, n := anyText.Draw(t, "text"), rapid.IntRange(0, 40).Draw(t, "n")
		got := Truncate(text, n)
		switch {
		case len(got) > n && got != text || len(text) <= n && got != text:
			t.Fatalf("%q is cut to %q: %d bytes of %d", text, got, len(got), n)
		case got != text && !utf8.ValidString(got):
			t.Fatalf("%q is no UTF-8", got)
		}
		if got := Columns(Line(text), n); Size(got, columns) > n {
			t.Fatalf("%q has %d columns, more than %d", got, Size(got, columns), n)
		}
	})
}
