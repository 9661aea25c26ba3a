// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// flagTables maps the sections that have a table of flags to the command. A
// section with a "partial" table shows selected flags; the others show all
// flags of their command.
var flagTables = map[string]struct {
	command string
	partial bool
}{
	"docs/cli.md#assign":                {command: "kubectl-evenkeel assign"},
	"docs/cli.md#push":                  {command: "kubectl-evenkeel push"},
	"docs/cli.md#preflight":             {command: "kubectl-evenkeel preflight"},
	"docs/cli.md#config validate":       {command: "kubectl-evenkeel config validate"},
	"docs/dashboard.md#":                {command: "kubectl-evenkeel dashboard"},
	"docs/operating.md#Flags":           {command: "evenkeel-agent", partial: true},
	"docs/operating.md#The node's lock": {command: "evenkeel-agent", partial: true},
	"docs/operating.md#The controller":  {command: "evenkeel-controller"},
	"docs/survey.md#Flags":              {command: "kubectl-evenkeel survey"},
	"docs/rehearsal.md#plan --simulate": {command: "kubectl-evenkeel rollout plan", partial: true},
}

// flagRow is a flag in a table of flags; value is empty if the table has no
// column for defaults.
type flagRow struct{ name, value string }

var documentedFlag = regexp.MustCompile("`(--?[a-z][a-z-]*)")

// readFlagTables returns the flags of each section's table.
func readFlagTables(page, text string) map[string][]flagRow {
	tables := map[string][]flagRow{}
	section, header := "", []string(nil)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "##") {
			section = title
		}

		if !strings.HasPrefix(line, "|") {
			header = nil
			continue
		}

		cells := strings.Split(strings.ReplaceAll(strings.Trim(line, "|"), `\|`, "/"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if header == nil {
			header = cells
		}
		if header[0] != "flag" {
			continue
		}

		var values []string
		if header[1] == "default" {
			values = strings.Split(strings.ReplaceAll(cells[1], "`", ""), ", ")
		}

		for i, m := range documentedFlag.FindAllStringSubmatch(cells[0], -1) {
			f := flagRow{name: m[1]}
			if values != nil {
				f.value = values[min(i, len(values)-1)]
			}
			if rows := tables[page+"#"+section]; !slices.Contains(rows, f) {
				tables[page+"#"+section] = append(rows, f)
			}
		}
	}

	return tables
}

// helpFlag matches a flag in a command's help: its short and long names, and
// its text.
var helpFlag = regexp.MustCompile(`(?m)^ +(?:(-\w), )?(--[a-z-]+)(?:\[=true\|false\])?(?: [a-zA-Z=]+(?:\[="[a-z]+"\])?)? {2,}(.*)$`)

var helpDefault = regexp.MustCompile(`\(default "?([^"]*?)"?\)$`)

func TestTablesOfFlagsAgreeWithTheHelpOfTheirCommands(t *testing.T) {
	assert.NoError(t, programs())
	pages := assert.Value(filepath.Glob(filepath.Join(root, "docs", "*.md")))(t)
	found := 0
	for _, page := range pages {
		text := assert.Value(os.ReadFile(page))(t)
		for section, rows := range readFlagTables("docs/"+filepath.Base(page), string(text)) {
			table, ok := flagTables[section]
			if !ok {
				t.Errorf("%s has a table of flags: add its command to flagTables", section)
				continue
			}

			found++
			assert.OK(t, compareFlags(table.command, table.partial, rows), section)
		}
	}

	assert.That(t, found == len(flagTables), "%d tables of flags, want %d", found, len(flagTables))
}

// compareFlags compares the rows of a table with the help of its command.
func compareFlags(command string, partial bool, rows []flagRow) error {
	words := strings.Fields(command)
	help, err := exec.Command(filepath.Join(built, words[0]), append(words[1:], "--help")...).Output()
	if err != nil {
		return fmt.Errorf("%s --help: %w", command, err)
	}

	own, _, _ := strings.Cut(string(help), "\nGlobal Flags:\n")
	for _, m := range helpFlag.FindAllStringSubmatch(string(help), -1) {
		short, long, text := m[1], m[2], m[3]
		i := slices.IndexFunc(rows, func(f flagRow) bool { return f.name == long || f.name == short && short != "" })
		switch {
		case i < 0 && (partial || long == "--help" || long == "--version" || !strings.Contains(own, m[0])):
		case i < 0:
			return fmt.Errorf("the table lacks %s", long)
		case !hasDefault(text, rows[i].value):
			return fmt.Errorf("%s has the default %q, but the help says: %s", long, rows[i].value, text)
		}

		if i >= 0 {
			rows = slices.Delete(rows, i, i+1)
		}
	}

	if len(rows) > 0 {
		return fmt.Errorf("%s --help does not have %v", command, rows)
	}

	return nil
}

// hasDefault reports whether the help of a flag gives this default: in
// parentheses, or in words if it depends on the environment. Help texts omit
// the default 0.
func hasDefault(help, value string) bool {
	if m := helpDefault.FindStringSubmatch(help); m != nil && value != "" {
		return value == m[1] || value+"0s" == m[1]
	}

	return value == "0" || strings.Contains(help, value)
}

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
