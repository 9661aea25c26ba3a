// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package printable escapes text from untrusted sources before it is printed to
// a terminal, a log or a page. Payloads, API objects, output of a kubelet and
// files can contain control characters, characters that reorder the text beside
// them, and invisible characters. They become escape sequences such as \x1b and
// \u202e.
//
// It must not know what a text means.
package printable

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// printable reports whether a character is printed unchanged: letters, marks,
// digits, punctuation, symbols and the space. Escaped are control characters,
// the category Cf (bidirectional overrides and isolates, zero-width characters,
// tags), line and paragraph separators, other spaces, unassigned characters,
// and those without a shape of their own.
func printable(r rune) bool {
	return unicode.IsPrint(r) && !unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)
}

// inText reports whether a character is printed unchanged in a text of several
// lines.
func inText(r rune) bool { return printable(r) || r == '\n' || r == '\t' }

// Text escapes all characters that may not be printed. Newlines and tabs stay.
// The carriage return of a CRLF is removed.
func Text(s string) string {
	if clean(s) {
		return s
	}

	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case inText(r):
			b.WriteRune(r)
		case r == '\r' && strings.HasPrefix(s[i+n:], "\n"):
		default:
			b.WriteString(escaped(r))
		}

		i += n
	}

	return b.String()
}

// Line returns s as one line, escaped like in Text, with single spaces between
// words.
func Line(s string) string {
	return Text(strings.Join(strings.FieldsFunc(s, unicode.IsSpace), " "))
}

// JSON replaces characters that may not be printed in valid JSON with JSON's
// escape sequences.
func JSON(text []byte) []byte {
	return encoded(text, func(r rune) string {
		if r > 0xffff {
			r -= 0x10000
			return fmt.Sprintf(`\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		}

		return fmt.Sprintf(`\u%04x`, r)
	})
}

// YAML returns valid JSON as equivalent YAML, with YAML's escape sequences for
// characters that may not be printed.
func YAML(json []byte) []byte {
	return encoded(json, func(r rune) string {
		if r > 0xffff {
			return fmt.Sprintf(`\U%08x`, r)
		}

		return fmt.Sprintf(`\u%04x`, r)
	})
}

// encoded escapes characters that valid JSON only contains in strings.
func encoded(text []byte, escape func(rune) string) []byte {
	if clean(string(text)) {
		return text
	}

	var b bytes.Buffer
	for _, r := range string(text) {
		if inText(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(escape(r))
		}
	}

	return b.Bytes()
}

// Clean reports whether Text returns a text unchanged.
func Clean(text []byte) bool { return clean(string(text)) }

func clean(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !inText(r) }) < 0
}

func escaped(r rune) string {
	switch {
	case r == '\r':
		return `\r`
	case r < utf8.RuneSelf:
		return fmt.Sprintf(`\x%02x`, r)
	case r > 0xffff:
		return fmt.Sprintf(`\U%08x`, r)
	default:
		return fmt.Sprintf(`\u%04x`, r)
	}
}

// Writer escapes everything that is written to it. A program that prints
// through it cannot send control sequences to a terminal, even if the caller
// does not escape its text.
type Writer struct {
	to     io.Writer
	escape func(string) string
	rest   []byte // an incomplete character
}

// NewWriter returns a Writer that escapes like Text.
func NewWriter(to io.Writer) *Writer { return &Writer{to: to, escape: Text} }

// NewJSONWriter returns a Writer that escapes like JSON, for valid JSON such as
// a log.
func NewJSONWriter(to io.Writer) *Writer {
	return &Writer{to: to, escape: func(s string) string { return string(JSON([]byte(s))) }}
}

// Write implements io.Writer. An incomplete character at the end is kept for
// the next call.
func (w *Writer) Write(p []byte) (int, error) {
	all := append(w.rest, p...)
	end := len(all)
	for i := max(0, end-utf8.UTFMax+1); i < end; i++ {
		if utf8.RuneStart(all[i]) && !utf8.FullRune(all[i:]) {
			end = i
		}
	}

	w.rest = append([]byte(nil), all[end:]...)
	if _, err := io.WriteString(w.to, w.escape(string(all[:end]))); err != nil {
		return 0, err
	}

	return len(p), nil
}
