// Package printable makes text of others fit for a terminal, a log and a page. A payload, an object of the API, a kubelet's
// words and a file on disk can hold characters that a terminal obeys, that reorder what is beside them, or that cannot be
// seen. They are written as escape sequences such as \x1b and \u202e, so that a reader sees that they are there. It must not
// know what any text means.
package printable

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Is reports whether a character may be printed as it is: letters, marks, digits, punctuation, symbols and the space. It may
// not if it is a control character, of the category Cf (bidirectional overrides and isolates, zero-width characters, tags),
// a separator of lines or paragraphs, a space other than the usual one, unassigned, or has no shape of its own.
func Is(r rune) bool {
	return unicode.IsPrint(r) && !unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)
}

// inText reports whether a character may be printed as it is in a text of several lines.
func inText(r rune) bool { return Is(r) || r == '\n' || r == '\t' }

// Text returns s with an escape sequence for each character that may not be printed. Newlines and tabs stay; so that a text
// of another system's lines can be read, a carriage return before a newline is left out.
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

// Line returns s as one line: an escape sequence for each character that may not be printed, and one space for what
// separates words.
func Line(s string) string {
	return Text(strings.Join(strings.FieldsFunc(s, unicode.IsSpace), " "))
}

// JSON returns the same JSON with JSON's own escape sequence for each character that may not be printed. It must be valid.
func JSON(text []byte) []byte {
	return encoded(text, func(r rune) string {
		if r > 0xffff {
			r -= 0x10000
			return fmt.Sprintf(`\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		}
		return fmt.Sprintf(`\u%04x`, r)
	})
}

// YAML returns JSON as YAML that means the same, with YAML's own escape sequence for each character that may not be printed.
// It must be valid.
func YAML(json []byte) []byte {
	return encoded(json, func(r rune) string {
		if r > 0xffff {
			return fmt.Sprintf(`\U%08x`, r)
		}
		return fmt.Sprintf(`\u%04x`, r)
	})
}

// encoded escapes what can only stand in a string of valid JSON.
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

// Clean reports whether Text would return a text as it is.
func Clean(text []byte) bool { return clean(string(text)) }

func clean(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !inText(r) }) < 0
}

func escaped(r rune) string {
	switch {
	case r < utf8.RuneSelf:
		switch r {
		case '\r':
			return `\r`
		default:
			return fmt.Sprintf(`\x%02x`, r)
		}
	case r > 0xffff:
		return fmt.Sprintf(`\U%08x`, r)
	default:
		return fmt.Sprintf(`\u%04x`, r)
	}
}

// Writer writes what Text makes of what is written to it. Nothing that a program prints through it can reach a terminal as a
// command, whoever forgot to look at it before.
type Writer struct {
	to   io.Writer
	of   func(string) string
	rest []byte // the beginning of a character
}

// NewWriter returns a Writer to another.
func NewWriter(to io.Writer) *Writer { return &Writer{to: to, of: Text} }

// NewJSONWriter returns a Writer for valid JSON, such as a log's, that stays valid.
func NewJSONWriter(to io.Writer) *Writer {
	return &Writer{to: to, of: func(s string) string { return string(JSON([]byte(s))) }}
}

// Write implements io.Writer. A character of which only the beginning was written waits for the rest of it.
func (w *Writer) Write(p []byte) (int, error) {
	all := append(w.rest, p...)
	end := len(all)
	for i := max(0, end-utf8.UTFMax+1); i < end; i++ {
		if utf8.RuneStart(all[i]) && !utf8.FullRune(all[i:]) {
			end = i
		}
	}
	w.rest = append([]byte(nil), all[end:]...)
	if _, err := io.WriteString(w.to, w.of(string(all[:end]))); err != nil {
		return 0, err
	}
	return len(p), nil
}
