// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs executes the commands of the documentation's pages, in order and
// as written, and compares their output with the output on the page.
//
// The package itself must not know what the commands do, nor prepare anything
// for them: pages_test.go does.
//
// A page is Markdown. Its commands are the lines that begin with "$ " in fenced
// blocks of the language console, with the lines that the shell needs to
// complete each. A command anywhere else, and a block of another language than
// Languages, is an error, so that no command hides from the test. What follows
// a command, up to the next one, is what it prints:
//
//   - ages, times, durations, UIDs, hashes, tokens and Go's version may differ, and so may the width of columns;
//   - "..." at the end of a line is any rest of it, and a line "..." any lines;
//   - after "[y/N] " stands the answer. Every question is answered with y;
//   - nothing says nothing: then only the exit code counts.
//
// A command must end with exit code 0, unless a comment in its line says "exit
// code N".
//
// Directives are comments in the page's source before a block, which no reader
// sees:
//
//	<!-- test: skip: REASON -->             the block is not run
//	<!-- test: skip `COMMAND`: REASON -->   commands of the block that begin so are not run
//	<!-- test: keeps running `COMMAND` -->  commands that begin so run until the page ends, or until one of the same
//	                                        program is started again. What they print until then is compared
//	<!-- test: new cluster -->              the block, and what follows, is executed in an empty cluster, for a page that
//	                                        shows another way to do the same
//
// REASON is one of Reasons. Any other is an error.
package docs

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// Reasons are all that a command may be skipped for.
var Reasons = []string{"builds the project", "needs a booted systemd", "needs another machine or vendor"}

// Languages are those that a block may have: console for commands, text for
// what is printed or drawn, others for files.
var Languages = []string{"console", "text", "yaml", "json", "go", "ini"}

// Command is one command of a page.
type Command struct {
	Line   int    // in the page, counted from 1
	Text   string // for the shell
	Output []string
	Exit   int
	Skip   string // why it is not run; empty: it is
	Keeps  bool   // it keeps running
	// NewCluster says that the command, and those after it, need a cluster that
	// has nothing yet.
	NewCluster bool
}

var (
	fence     = regexp.MustCompile("^( *)```+ *(.*?) *$")
	prompt    = regexp.MustCompile(`^ *\$ `)
	directive = regexp.MustCompile(`^ *<!-- *test: *(.*?) *--> *$`)
	aboutOne  = regexp.MustCompile("^(skip|keeps running) `([^`]+)`(?:: *(.*))?$")
	exitCode  = regexp.MustCompile(`#.*\bexit code ([0-9]+)\b`)
)

// Parse returns the commands of a page. The error names the first line that
// cannot be understood.
func Parse(page string) (commands []Command, err error) {
	defer must.Catch(&err)

	var pending []string // directives for the next block
	var at int           // the line of the last of them
	const stray = "line %d: a directive must stand right before a console block"
	const outside = "line %d: a command outside a console block"
	lines := strings.Split(page, "\n")
	for i := 0; i < len(lines); i++ {
		if m := directive.FindStringSubmatch(lines[i]); m != nil {
			pending, at = append(pending, m[1]), i+1
			continue
		}

		m := fence.FindStringSubmatch(lines[i])
		if m == nil {
			must.That(!prompt.MatchString(lines[i]), outside, i+1)
			must.That(len(pending) == 0 || strings.TrimSpace(lines[i]) == "", stray, at)
			continue
		}

		language, begin := m[2], i+1
		must.That(slices.Contains(Languages, language),
			"line %d: the language of a block is %q: it must be one of %q", begin, language, Languages)
		must.That(len(pending) == 0 || language == "console", stray, at)
		for i++; i < len(lines) && strings.TrimSpace(lines[i]) != "```"; i++ {
			must.That(language == "console" || !prompt.MatchString(lines[i]), outside, i+1)
		}

		if language == "console" {
			must.About(fmt.Sprintf("line %d", begin), func() {
				found := block(lines[begin:i], begin+1, len(m[1]))
				direct(found, pending)
				commands, pending = append(commands, found...), nil
			})
		}
	}

	must.That(len(pending) == 0, stray, at)

	return commands, nil
}

// block returns the commands of one block, whose lines are indented as its
// fence is.
func block(lines []string, first, indent int) (commands []Command) {
	outdented := func(line string) string { return line[min(indent, len(line)-len(strings.TrimLeft(line, " "))):] }
	for i := 0; i < len(lines); i++ {
		line := outdented(lines[i])
		text, is := strings.CutPrefix(line, "$ ")
		if !is {
			must.That(len(commands) > 0 || strings.TrimSpace(line) == "",
				"%q comes before any command: a console block begins with a line \"$ COMMAND\"", line)
			if len(commands) > 0 {
				last := &commands[len(commands)-1]
				last.Output = append(last.Output, line)
			}

			continue
		}

		c := Command{Line: first + i}
		for !complete(text) {
			i++
			must.That(i < len(lines), "%q is not complete", text)
			text += "\n" + outdented(lines[i])
		}

		c.Text = text
		if m := exitCode.FindStringSubmatch(text); m != nil {
			c.Exit, _ = strconv.Atoi(m[1]) // digits
		}

		commands = append(commands, c)
	}

	for i := range commands { // blank lines between commands are nobody's output
		out := commands[i].Output
		for len(out) > 0 && strings.TrimSpace(out[len(out)-1]) == "" {
			out = out[:len(out)-1]
		}

		commands[i].Output = out
	}

	return commands
}

// complete reports whether a shell would run this, rather than read on. It
// fails if it never would.
func complete(text string) bool {
	if strings.HasSuffix(text, `\`) {
		return false
	}

	cmd := exec.Command("bash", "-n", "-c", text)
	cmd.Env = []string{"LC_ALL=C"}
	out, err := cmd.CombinedOutput()
	for _, words := range []string{"unexpected EOF", "unexpected end of file", "delimited by end-of-file"} {
		if strings.Contains(string(out), words) {
			return false
		}
	}

	must.That(err == nil, "%q: %w: %s", text, err, out)

	return true
}

// direct carries out the directives of a block.
func direct(commands []Command, directives []string) {
	for _, d := range directives {
		if d == "new cluster" && len(commands) > 0 {
			commands[0].NewCluster = true
			continue
		}

		verb, prefix, reason := "", "", ""
		if m := aboutOne.FindStringSubmatch(d); m != nil {
			verb, prefix, reason = m[1], m[2], m[3]
		} else if rest, is := strings.CutPrefix(d, "skip:"); is {
			verb, reason = "skip", strings.TrimSpace(rest)
		}

		must.That(verb != "", "unknown directive %q", d)
		must.That(verb != "skip" || slices.Contains(Reasons, reason), "%q is no reason to skip a command: it must be one of %q", reason, Reasons)
		must.That(verb == "skip" || reason == "", "directive %q takes no reason", d)
		met := false
		for i := range commands {
			if strings.HasPrefix(commands[i].Text, prefix) {
				met = true
				commands[i].Keeps = commands[i].Keeps || verb == "keeps running"
				if verb == "skip" {
					commands[i].Skip = reason
				}
			}
		}

		must.That(met, "directive %q: no command of the block begins with that", d)
	}
}

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
