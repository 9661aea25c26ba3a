// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package links

import (
	"regexp"
	"strings"
)

var (
	codeBlock = regexp.MustCompile("(?ms)^ *```.*?^ *```\\s*?$")
	word      = regexp.MustCompile(`\w+`)
	target    = regexp.MustCompile(`\]\([^)]*\)`)
)

// Words counts the words of a page, without code blocks, comments and the
// targets of links.
func Words(text string) (n int) {
	text = comment.ReplaceAllString(codeBlock.ReplaceAllString(text, ""), "")
	for w := range strings.FieldsSeq(target.ReplaceAllString(text, "]")) {
		if word.MatchString(w) {
			n++
		}
	}

	return n
}
