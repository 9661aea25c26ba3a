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
		assert.Equal(t, Truncate(tt.text, tt.n), tt.want, tt.name)
	}
}

// truncated requires that a text fits if it is cut, and is not cut if it fits.
func truncated(t assert.T, text string, n int) {
	got := Truncate(text, n)
	assert.That(t, len(got) <= n && (len(text) > n || got == text), "%q is cut to %q: %d bytes of %d", text, got, len(got), n)
	assert.That(t, got == text || utf8.ValidString(got), "%q is no UTF-8", got)
}

func TestTruncatedTextFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { truncated(t, anyText.Draw(t, "text"), rapid.IntRange(0, 40).Draw(t, "n")) })
}
