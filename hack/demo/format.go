// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// width is the longest line that the demo prints, in columns.
const width = 120

var (
	uid = regexp.MustCompile(`\b([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)
	// link is what separates an error from its cause.
	link = regexp.MustCompile(`: |, (?:err|error): `)
	// noLink ends what comes before a colon that is no link: "(UID: 1)", "last: exit status 1", "run: kubectl", "or: kubectl".
	noLink = regexp.MustCompile(`(?:\(UID|\b(?:last|or|run|with))$`)
	// chatter is a message of the kubelet below the level of a warning, and a debug message of evenkeel.
	chatter = regexp.MustCompile(`^I\d{4} |^time=\S+ level=DEBUG`)
)

// shortUIDs cuts each UID to its first eight digits.
func shortUIDs(text string) string { return uid.ReplaceAllString(text, "$1") }

// chain splits a chain of errors. Texts in quotes stay whole.
func chain(text string) []string {
	var parts []string
	from := 0
	for _, at := range link.FindAllStringIndex(text, -1) {
		before := text[:at[0]]
		if strings.Count(before, `"`)%2 == 1 || noLink.MatchString(before) {
			continue
		}
		parts = append(parts, text[from:at[0]])
		from = at[1]
	}
	return append(parts, text[from:])
}

// brief shortens a line that is longer than n columns, if it has a chain of errors: the last cause stays, and as many of the first
// words as fit.
func brief(line string, n int) string {
	if utf8.RuneCountInString(line) <= n {
		return line
	}
	if cause := strings.TrimSpace(line); strings.HasPrefix(cause, "error:") || strings.HasPrefix(cause, "Bad:") {
		line, _, _ = strings.Cut(line, "; ") // of a kubelet's last errors, the first one ended it
	}
	parts := chain(line)
	short := line
	for keep := len(parts) - 2; keep > 0; keep-- {
		head := strings.Join(parts[:keep], ": ")
		if len(strings.Fields(head)) < 3 { // "error: node n refuses this" says more than "error"
			break
		}
		if short = head + ": … " + parts[len(parts)-1]; utf8.RuneCountInString(short) <= n {
			break
		}
	}
	return short
}

// wrap breaks lines between words where they are longer than n columns, and inside a word that is longer. A line that continues
// another begins with its indentation and two spaces.
func wrap(text string, n int) []string {
	var lines []string
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\t", "    "), "\n") {
		line = strings.TrimRight(line, " ")
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		if len(indent) > n/2 {
			line, indent = strings.TrimLeft(line, " "), ""
		}
		for {
			runes := []rune(line)
			if len(runes) <= n {
				lines = append(lines, line)
				break
			}
			at, rest := n, n
			for i := n; i > len(indent)+2; i-- {
				if runes[i] == ' ' {
					at, rest = i, i+1
					break
				}
			}
			lines = append(lines, strings.TrimRight(string(runes[:at]), " "))
			line = indent + "  " + strings.TrimLeft(string(runes[rest:]), " ")
		}
	}
	return lines
}

// newest returns the last lines of a log, at most n, without chatter unless the log contains nothing else.
func newest(log string, n int) []string {
	all := strings.Split(strings.TrimSpace(log), "\n")
	var lines []string
	dropping := false
	for _, line := range all {
		// The lines of a message after its first are indented.
		dropping = chatter.MatchString(line) || dropping && strings.TrimLeft(line, " \t") != line
		if !dropping {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		lines = all
	}
	return lines[max(0, len(lines)-n):]
}
