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
		n                int
	}{
		{"short", "a: b: c", "a: b: c", 7},
		{"a chain of errors", "read the configuration: stage 1 of the dry run: the kubelet says: open /var/lib/kubelet/pki/ca.crt: permission denied",
			"read the configuration: … n /var/lib/kubelet/pki/ca.crt: permission denied", 76},
		{"a path", "/var/lib/kubelet/a/very/long/path/to/the/file.conf", "/var/lib/ … h/to/the/file.conf", 32},
		{"marks", "xxxxxxxxxxxxxxxxe\u0301", "xxx … xxxxe\u0301", 15},
		{"bytes", strings.Repeat("é", 10), "é … éé", 12},
		{"no room", "abcdefgh", "", 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, Truncate(tt.text, tt.n), tt.want)
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
	})
}
