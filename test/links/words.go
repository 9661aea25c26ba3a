// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package links

import (
	"regexp"
	"strings"
)

var (
	codeBlock = regexp.MustCompile("(?ms)^ *```.*?^ *```\\s*?$")
	parts     = regexp.MustCompile(`\n\s*\n|\n *(?:[-*] |[0-9]+\. |#|>)|\n.*\|.*`)
	ends      = regexp.MustCompile(`[.:;]\s`)
	word      = regexp.MustCompile(`\w+`)
	target    = regexp.MustCompile(`\]\([^)]*\)`)
)

// Repeats returns the sentences of a page that nearly equal one of the three sentences before them: two versions of which one
// should have been deleted. Code and tables are not compared.
func Repeats(text string) (out []string) {
	var sentences []string
	for _, part := range parts.Split(codeBlock.ReplaceAllString(text, ""), -1) {
		sentences = append(sentences, ends.Split(part, -1)...)
	}
	var words []map[string]bool
	for i, sentence := range sentences {
		set := map[string]bool{}
		for _, w := range word.FindAllString(strings.ToLower(sentence), -1) {
			set[w] = true
		}
		words = append(words, set)
		for _, before := range words[max(0, i-3):i] {
			common := 0
			for w := range set {
				if before[w] {
					common++
				}
			}
			if all := len(set) + len(before) - common; min(len(set), len(before)) >= 6 && 5*common >= 4*all {
				out = append(out, strings.Join(strings.Fields(sentence), " "))
				break
			}
		}
	}
	return out
}

// Words counts the words of a page, without code blocks, comments and the targets of links.
func Words(text string) (n int) {
	text = comment.ReplaceAllString(codeBlock.ReplaceAllString(text, ""), "")
	for _, w := range strings.Fields(target.ReplaceAllString(text, "]")) {
		if word.MatchString(w) {
			n++
		}
	}
	return n
}
