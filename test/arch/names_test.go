// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package arch

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

// decisive are prefixes of names, and types, of API constants by which programs decide.
var decisive = []string{"Reason", "Outcome", "Halt", "Condition", "RolloutPhase"}

// coincidences are literals that equal an API constant but mean something else.
var coincidences = map[string]string{
	`internal/node/trial/observed.go: "Invalid"`:        "a kind of intent",
	`internal/operator/describe/node.go: "Revoked"`:     "a heading",
	`internal/operator/describe/standing.go: "Waiting"`: "a position in a rollout",
	`cmd/evenkeel-agent/inspect/status.go: "Revoked"`:   "a heading",
	`internal/operator/installer/types.go: "Succeeded"`: "how an operation of the installer ended",
	`internal/operator/dashboard/detail.go: "Invalid"`:  "a heading",
	`internal/node/source/nodewatch.go: "Ready"`:        "the condition of a Node and of a pod",
}

var (
	// constant matches the line of a constant: its name, its type (if it has one) and its value.
	constant = regexp.MustCompile(`^(?:const |\t+)(\w+)(?: +(\w+))? += "([^"]+)"`)
	logCall  = regexp.MustCompile(`(?i)log.*\.(?:Debug|Info|Warn|Error|Log|With)\(`)
	text     = regexp.MustCompile(`"[^"]*"|` + "`[^`]*`")
)

// forEachLine calls f for the lines of all non-test Go files below a directory, except comments.
func forEachLine(t *testing.T, dir string, f func(file, line string)) {
	t.Helper()
	err := filepath.WalkDir("../../"+dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for line := range strings.Lines(string(source)) {
			if !strings.HasPrefix(strings.TrimSpace(line), "//") {
				f(strings.TrimPrefix(filepath.ToSlash(path), "../../"), line)
			}
		}
		return err
	})
	assert.NoError(t, err)
}

// constants returns the values of the constants in a directory by prefix, which begins their names or is their type.
func constants(t *testing.T, dir string, prefixes []string) map[string][]string {
	t.Helper()
	values := map[string][]string{}
	forEachLine(t, dir, func(_, line string) {
		for _, prefix := range prefixes {
			if c := constant.FindStringSubmatch(line); c != nil && (c[2] == prefix || c[2] == "" && strings.HasPrefix(c[1], prefix)) {
				values[prefix] = append(values[prefix], c[3])
			}
		}
	})
	for _, prefix := range prefixes {
		if len(values[prefix]) < 3 {
			t.Fatalf("%s has only the constants %q of %s", dir, values[prefix], prefix)
		}
	}
	return values
}

// Code that decides by an outcome, a reason, a condition or a phase must use the constant, so that a misspelled one does not
// compile and a search finds all uses. internal/node/trial has constants of its own. No linter of
// golangci-lint compares literals with the constants of another package.
func TestAPIConstantsAreNotRepeatedAsLiterals(t *testing.T) {
	var names []string
	for _, values := range constants(t, "api/v1alpha1", decisive) {
		names = append(names, values...)
	}
	used := map[string]bool{}
	for _, dir := range []string{"internal", "cmd", "config"} {
		forEachLine(t, dir, func(file, line string) {
			if withinAny(file, cores) && constant.MatchString(line) {
				line = "" // a constant of its own
			}
			for _, literal := range text.FindAllString(line, -1) {
				where := file + ": " + literal
				switch {
				case !slices.Contains(names, literal[1:len(literal)-1]):
				case coincidences[where] != "":
					used[where] = true
				default:
					t.Errorf("%s is a literal: use the constant of api/v1alpha1 (in a core, define a constant)", where)
				}
			}
		})
	}
	for where := range coincidences {
		assert.That(t, used[where], "%s is listed in coincidences, but does not exist", where)
	}
}

// People search logs by the attributes that the documentation lists. sloglint forbids their synonyms, but reads no documentation.
func TestDocumentedLogAttributesExist(t *testing.T) {
	used := map[string]bool{}
	for _, dir := range []string{"cmd", "internal/component", "internal/controller", "internal/node"} {
		forEachLine(t, dir, func(_, line string) {
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
		if !used[name[1]] {
			t.Errorf("docs/operating.md documents the attribute %s, but no log line has it", name[1])
		}
	}
}
