// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

var (
	logCall = regexp.MustCompile(`(?i)log.*\.(?:Debug|Info|Warn|Error|Log|With)\(`)
	text    = regexp.MustCompile(`"[^"]*"|` + "`[^`]*`")
)

// forEachLine calls f for the lines of all non-test Go files below a directory,
// except comments.
func forEachLine(t *testing.T, dir string, f func(line string)) {
	t.Helper()
	err := filepath.WalkDir("../../"+dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}

		source, err := os.ReadFile(path)
		for line := range strings.Lines(string(source)) {
			if !strings.HasPrefix(strings.TrimSpace(line), "//") {
				f(line)
			}
		}

		return err
	})
	assert.NoError(t, err)
}

// People search logs by the attributes that the documentation lists. sloglint
// forbids their synonyms, but reads no documentation.
func TestDocumentedLogAttributesExist(t *testing.T) {
	used := map[string]bool{}
	for _, dir := range []string{"cmd", "internal/component", "internal/controller", "internal/node"} {
		forEachLine(t, dir, func(line string) {
			if logCall.MatchString(line) {
				for _, literal := range text.FindAllString(line, -1) {
					used[strings.Trim(literal, `"`)] = true
				}
			}
		})
	}

	page := assert.Value(os.ReadFile("../../docs/operating.md"))(t)
	_, section, _ := strings.Cut(string(page), "\n## Logs\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := regexp.MustCompile("(?m)^\\| `[^|]+").FindAllString(section, -1)
	names := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(strings.Join(rows, ""), -1)
	assert.That(t, len(names) >= 8, "docs/operating.md documents only %d attributes under Logs", len(names))
	for _, name := range names {
		assert.That(t, used[name[1]], "docs/operating.md documents the attribute %s, but no log line has it", name[1])
	}
}
