// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"regexp"
	"strings"
)

// mask hides what is different each time.
var mask = []struct {
	what *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`\b[0-9a-f]{8}-(?:[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\.\.\.)`), "UID"},
	{regexp.MustCompile(`\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z`), "TIME"},
	{regexp.MustCompile(`\b[0-9a-f]{40}\b`), "COMMIT"},
	{regexp.MustCompile(`\bgo1\.[0-9.]+\b`), "GO"},
	{regexp.MustCompile(`#[A-Z2-7]{26}\b`), "TOKEN"},
	{regexp.MustCompile(`\b[0-9a-f]{10}\b`), "HASH"},
	{regexp.MustCompile(`\b(?:[0-9]+(?:\.[0-9]+)?(?:ms|[smhd]))+\b`), "AGE"},
	{regexp.MustCompile(`\s+`), " "},
}

func masked(line string) string {
	for _, m := range mask {
		line = m.what.ReplaceAllString(line, m.as)
	}

	return strings.TrimSpace(line)
}

var (
	answered = regexp.MustCompile(`\[y/N\] ?\S*$`)
	question = regexp.MustCompile(`\[y/N\] `)
)

// Compare returns an error that shows both unless a command printed what the
// page says, as Package docs describes.
func Compare(page []string, printed string) error {
	if len(page) == 0 {
		return nil
	}

	// The answer comes from the reader: no line ends after the question.
	printed = question.ReplaceAllString(printed, "[y/N]\n")
	got := strings.Split(strings.TrimRight(printed, "\n"), "\n")
	want := make([]string, len(page))
	for i, line := range page {
		want[i] = answered.ReplaceAllString(line, "[y/N]")
	}
	if !match(want, got) {
		return fmt.Errorf("the page says that it prints\n\t%s\nand it prints\n\t%s", strings.Join(page, "\n\t"), strings.Join(got, "\n\t"))
	}

	return nil
}

// match reports whether lines are those that are wanted.
func match(want, got []string) bool {
	switch {
	case len(want) == 0:
		return len(got) == 0
	case strings.TrimSpace(want[0]) == "...":
		for skip := 0; skip <= len(got); skip++ {
			if match(want[1:], got[skip:]) {
				return true
			}
		}

		return false
	case len(got) == 0:
		return false
	}

	same := masked(want[0]) == masked(got[0])
	// A UID may be written as its first digits and "...": that is no open end.
	if line := masked(want[0]); !same && strings.HasSuffix(line, "...") {
		same = strings.HasPrefix(masked(got[0]), strings.TrimSpace(strings.TrimSuffix(line, "...")))
	}

	return same && match(want[1:], got[1:])
}
