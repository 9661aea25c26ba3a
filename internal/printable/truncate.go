// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package printable

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// ellipsis stands for what was cut out.
const ellipsis = " … "

// Truncate returns s if it has at most n bytes, and otherwise its beginning and its end in at most n bytes: the end of an error
// or a path usually says most. It does not split characters, and removes invalid UTF-8 at the cut.
func Truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return Shorten(s, n, utf8.RuneLen)
}

// Columns is Truncate with a limit in columns of a terminal.
func Columns(s string, n int) string { return Shorten(s, n, columns) }

// Shorten is Truncate with a limit of the sum of the sizes of the characters.
func Shorten(s string, n int, size func(rune) int) string {
	if Size(s, size) <= n {
		return s
	}
	rest := n - Size(ellipsis, size)
	if rest < 2 {
		return ""
	}
	tail := rest - rest/3 // the end is more informative
	head := rest - tail
	from := 0
	for from < len(s) {
		r, width := utf8.DecodeRuneInString(s[from:])
		if size(r) > head {
			break
		}
		head -= size(r)
		from += width
	}
	to := len(s)
	for to > from {
		r, width := utf8.DecodeLastRuneInString(s[:to])
		if size(r) > tail {
			break
		}
		tail -= size(r)
		to -= width
	}
	for to < len(s) { // a mark belongs to the character before it
		r, width := utf8.DecodeRuneInString(s[to:])
		if !unicode.Is(unicode.M, r) {
			break
		}
		to += width
	}
	return strings.ToValidUTF8(strings.TrimRight(s[:from], " ")+ellipsis+strings.TrimLeft(s[to:], " "), "")
}

// Size is the sum of the sizes of the characters.
func Size(s string, size func(rune) int) int {
	n := 0
	for _, r := range s {
		n += size(r)
	}
	return n
}

// wide are the characters that take two columns of a terminal.
var wide = []*unicode.RangeTable{unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana}

// columns returns the number of columns of a terminal that a character takes.
func columns(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case unicode.In(r, wide...), r >= 0x3000 && r <= 0x303e, r >= 0xff01 && r <= 0xff60, r >= 0xffe0 && r <= 0xffe6,
		r >= 0x1f300 && r <= 0x1faff:
		return 2
	}
	return 1
}

// Cut returns at most the first characters of a text.
func Cut(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most])
}

// Brief is Cut that shows whether something is missing.
func Brief(s string, most int) string {
	if short := Cut(s, most); short != s {
		return short + "…"
	}
	return s
}
