// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package printable

import (
	"strings"
	"testing"
	"unicode/utf8"

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

		at = max(0, min(at, len(text)))
		inPieces(t, text[:at], text[at:])
	})
}

func FuzzTruncate(f *testing.F) {
	for _, text := range hostile {
		f.Add(text, 20)
	}

	f.Fuzz(func(t *testing.T, text string, n int) {
		truncated(t, text, max(0, min(n, 1000)))
	})
}

func FuzzEncoded(f *testing.F) {
	for _, text := range hostile {
		f.Add(text)
	}

	f.Fuzz(func(t *testing.T, text string) { meansTheSame(t, text) })
}
