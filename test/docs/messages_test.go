// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

var (
	// messageTable matches the header of a table whose first column quotes
	// messages.
	messageTable = regexp.MustCompile(`^\| (message|it says|log or|symptom)`)
	literal      = regexp.MustCompile("\"(?:[^\"\\\\\n]|\\\\.)*\"|`[^`]*`")
	concatenated = regexp.MustCompile(`"\s*\+\s*"`)
	quoted       = regexp.MustCompile("`([^`]+)`|\"([^\"]+)\"")
	// placeholder matches what a page or a format string has in the place of a
	// value.
	placeholder = regexp.MustCompile(`\.\.\.|%[-+#]?[0-9.*]*(\[\d\])?[a-zA-Z]|\x00|\S*\d\S*|\b(?:[A-Z]{2,}/)?(?:DIR|FILE|NAME|NODE|PATH|NS|N)\b`)
)

// unchecked are quoted messages of other programs, and messages in which a page
// fills in a value that is a word.
var unchecked = []string{"leader election lost", "there is no kubelet at", "enter the mnt namespace", "maxPods belongs in resources", "strict decoding error", "maxParallelImagePulls cannot", "read-only file system", "no space left on device"}

func TestMessagesThatThePagesQuoteExist(t *testing.T) {
	source := messages(t, "internal", "cmd", "build", "api")
	pages, _ := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	quotes := 0
	for _, page := range pages {
		text := assert.Value(os.ReadFile(page))(t)
		in := false
		for line := range strings.Lines(string(text)) {
			if in = strings.HasPrefix(line, "|") && (in || messageTable.MatchString(line)); !in {
				continue
			}

			cell, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), " | ")
			for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
				for _, part := range placeholder.Split(m[1]+m[2], -1) {
					if part = strings.Trim(part, " :;,"); len(strings.Fields(part)) < 3 || slices.ContainsFunc(unchecked, func(s string) bool { return strings.Contains(part, s) }) {
						continue
					}
					if quotes++; !exists(part, source) {
						t.Errorf("%s quotes %q, which no program prints", filepath.Base(page), part)
					}
				}
			}
		}
	}

	assert.That(t, quotes >= 40, "the pages quote only %d messages", quotes)
}

// exists reports whether a message contains the quoted words, or the words
// contain most of a message between two values.
func exists(words string, source []string) bool {
	for _, s := range source {
		if strings.Contains(s, words) {
			return true
		}

		for _, part := range placeholder.Split(s, -1) {
			if part = strings.Trim(part, " :;,`\""); 2*len(part) > len(words) && strings.Contains(words, part) {
				return true
			}
		}
	}

	return false
}

// messages returns the string literals of the programs' source, and whole files
// of the dashboard's page.
func messages(t *testing.T, dirs ...string) (out []string) {
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			ext := filepath.Ext(path)
			if err != nil || !slices.Contains([]string{".go", ".js", ".html"}, ext) || strings.HasSuffix(path, "_test.go") {
				return err
			}

			text, err := os.ReadFile(path)
			if ext != ".go" {
				out = append(out, string(text))
			} else {
				out = append(out, literal.FindAllString(concatenated.ReplaceAllString(string(text), ""), -1)...)
			}

			return err
		})
		assert.NoError(t, err)
	}

	return out
}
