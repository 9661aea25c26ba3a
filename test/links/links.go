// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package links finds the links of a Markdown page that lead nowhere: to a file
// that does not exist, or to a heading that the linked page does not have. It
// knows GitHub's anchors, and no network: it does not follow links to other
// sites.
package links

import (
	"fmt"
	"html"
	"regexp"
	"strings"
	"unicode"
)

// Link is one link of a page.
type Link struct {
	Line   int // in the page, counted from 1
	Target string
}

// Page is what a Markdown page links to, and what others can link to in it.
type Page struct {
	Links   []Link
	Anchors map[string]bool
}

var (
	fence      = regexp.MustCompile("^ *(```+|~~~+)")
	heading    = regexp.MustCompile(`^ {0,3}#{1,6} +(.*?)[ #]*$`)
	codeSpan   = regexp.MustCompile("``.+?``|`[^`]*`")
	inline     = regexp.MustCompile(`!?\[((?:[^\[\]]|!?\[[^\]]*\](?:\([^)]*\))?)*)\]\(<?([^()\s>]*(?:\([^()\s]*\)[^()\s>]*)*)>?(?:\s+"[^"]*")?\)`)
	definition = regexp.MustCompile(`(?m)^ {0,3}\[[^\]]+\]: *<?([^\s>]+)`)
	attribute  = regexp.MustCompile(`<[a-z]+\s[^>]*?\b(href|src|id|name)="([^"]*)"`)
	emphasis   = regexp.MustCompile(`\*+([^*]+)\*+`)
	comment    = regexp.MustCompile(`(?s)<!--.*?-->`)
)

// Parse returns the links and anchors of a page. Code has neither.
func Parse(text string) Page {
	page := Page{Anchors: map[string]bool{}}
	// A comment keeps its line breaks, so that the lines after it keep their
	// numbers.
	text = comment.ReplaceAllStringFunc(text, func(c string) string { return strings.Repeat("\n", strings.Count(c, "\n")) })
	var paragraph []string // links can continue in the next line of their paragraph
	used := map[string]int{}
	block := "" // the fence of the block of code that the line is in
	lines := strings.Split(text+"\n", "\n")
	for i, line := range lines {
		m := fence.FindStringSubmatch(line)
		fenced := m != nil && (block == "" || strings.HasPrefix(m[1], block))
		title := heading.FindStringSubmatch(line)
		if fenced || block != "" || title != nil || strings.TrimSpace(line) == "" {
			page.addLinks(i+1-len(paragraph), strings.Join(paragraph, "\n"))
			paragraph = nil
		}

		switch {
		case fenced && block == "":
			block = m[1]
		case fenced:
			block = ""
		case block != "":
		case title != nil:
			page.addHeading(title[1], used)
			page.addLinks(i+1, line)
		case strings.TrimSpace(line) != "":
			paragraph = append(paragraph, line)
		}
	}

	return page
}

// addHeading adds the anchor of a heading. The second of equal headings gets
// the suffix -1.
func (p *Page) addHeading(title string, used map[string]int) {
	anchor := Anchor(title)
	n := used[anchor]
	used[anchor]++
	if n > 0 {
		anchor = fmt.Sprintf("%s-%d", anchor, n)
	}

	p.Anchors[anchor] = true
}

// addLinks adds the links of a paragraph, and the anchors that its HTML sets.
// first is the number of its first line.
func (p *Page) addLinks(first int, text string) {
	// The text of a link may be code; its target is not.
	text = codeSpan.ReplaceAllStringFunc(text, func(code string) string { return "code" + strings.Repeat("\n", strings.Count(code, "\n")) })
	line := func(at int) int { return first + strings.Count(text[:at], "\n") }
	for _, m := range inline.FindAllStringSubmatchIndex(text, -1) {
		p.Links = append(p.Links, Link{line(m[0]), html.UnescapeString(text[m[4]:m[5]])})
		p.addLinks(line(m[2]), text[m[2]:m[3]]) // an image in a link
	}

	for _, m := range definition.FindAllStringSubmatchIndex(text, -1) {
		p.Links = append(p.Links, Link{line(m[0]), text[m[2]:m[3]]})
	}

	for _, m := range attribute.FindAllStringSubmatchIndex(text, -1) {
		value := text[m[4]:m[5]]
		switch text[m[2]:m[3]] {
		case "id", "name":
			p.Anchors[value] = true
		default:
			p.Links = append(p.Links, Link{line(m[0]), html.UnescapeString(value)})
		}
	}
}

// Anchor returns the anchor that GitHub makes of a heading, without the number
// that distinguishes equal headings.
func Anchor(heading string) string {
	text := emphasis.ReplaceAllString(inline.ReplaceAllString(heading, "$1"), "$1")
	var anchor strings.Builder
	for _, r := range strings.ToLower(html.UnescapeString(text)) {
		switch {
		case r == ' ':
			anchor.WriteRune('-')
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsMark(r), unicode.IsNumber(r):
			anchor.WriteRune(r)
		}
	}

	return anchor.String()
}

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
