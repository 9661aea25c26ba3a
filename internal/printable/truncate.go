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

// Truncate returns s if it has at most n bytes, and otherwise its beginning and
// its end in at most n bytes: the end of an error or a path usually says most.
// It does not split characters, and removes invalid UTF-8 at the cut.
func Truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}

	return Shorten(s, n, utf8.RuneLen)
}

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
