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
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
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

// Parse returns the commands of a page. The error names every line that cannot
// be understood.
func Parse(page string) ([]Command, error) {
	var commands []Command
	var errs []error
	var pending []string // directives for the next block
	var at int           // of the first of them
	stray := func() {
		if len(pending) > 0 {
			errs = append(errs, fmt.Errorf("line %d: a directive must stand right before a console block", at))
			pending = nil
		}
	}
	lines := strings.Split(page, "\n")
	for i := 0; i < len(lines); i++ {
		if m := directive.FindStringSubmatch(lines[i]); m != nil {
			pending, at = append(pending, m[1]), i+1
			continue
		}

		m := fence.FindStringSubmatch(lines[i])
		if m == nil {
			if prompt.MatchString(lines[i]) {
				errs = append(errs, fmt.Errorf("line %d: a command outside a console block", i+1))
			}

			if strings.TrimSpace(lines[i]) != "" {
				stray()
			}

			continue
		}

		end := i + 1
		for end < len(lines) && strings.TrimSpace(lines[end]) != "```" {
			if m[2] != "console" && prompt.MatchString(lines[end]) {
				errs = append(errs, fmt.Errorf("line %d: a command outside a console block", end+1))
			}

			end++
		}

		if !slices.Contains(Languages, m[2]) {
			errs = append(errs, fmt.Errorf("line %d: the language of a block is %q: it must be one of %q", i+1, m[2], Languages))
		}

		if m[2] == "console" {
			found, err := block(lines[i+1:end], i+2, len(m[1]))
			if err == nil {
				err = direct(found, pending)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("line %d: %w", i+1, err))
			}

			commands, pending = append(commands, found...), nil
		}

		stray()
		i = end
	}

	stray()

	return commands, errors.Join(errs...)
}

// block returns the commands of one block, whose lines are indented as its
// fence is.
func block(lines []string, first, indent int) ([]Command, error) {
	var commands []Command
	for i := 0; i < len(lines); i++ {
		line := lines[i][min(indent, len(lines[i])-len(strings.TrimLeft(lines[i], " "))):]
		text, is := strings.CutPrefix(line, "$ ")
		if !is {
			if len(commands) > 0 {
				last := &commands[len(commands)-1]
				last.Output = append(last.Output, line)
			} else if strings.TrimSpace(line) != "" {
				return nil, fmt.Errorf("%q comes before any command: a console block begins with a line \"$ COMMAND\"", line)
			}

			continue
		}

		c := Command{Line: first + i}
		for {
			whole, err := complete(text)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", text, err)
			}
			if whole {
				break
			}
			if i++; i == len(lines) {
				return nil, fmt.Errorf("%q is not complete", text)
			}

			line = lines[i]
			text += "\n" + line[min(indent, len(line)-len(strings.TrimLeft(line, " "))):]
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

	return commands, nil
}

// complete reports whether a shell would run this, rather than read on. The
// error says why it never would.
func complete(text string) (bool, error) {
	if strings.HasSuffix(text, `\`) {
		return false, nil
	}

	cmd := exec.Command("bash", "-n", "-c", text)
	cmd.Env = []string{"LC_ALL=C"}
	out, err := cmd.CombinedOutput()
	for _, words := range []string{"unexpected EOF", "unexpected end of file", "delimited by end-of-file"} {
		if strings.Contains(string(out), words) {
			return false, nil
		}
	}

	if err != nil {
		return false, fmt.Errorf("%w: %s", err, out)
	}

	return true, nil
}

// direct carries out the directives of a block.
func direct(commands []Command, directives []string) error {
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

		switch {
		case verb == "":
			return fmt.Errorf("unknown directive %q", d)
		case verb == "skip" && !slices.Contains(Reasons, reason):
			return fmt.Errorf("%q is no reason to skip a command: it must be one of %q", reason, Reasons)
		case verb != "skip" && reason != "":
			return fmt.Errorf("directive %q takes no reason", d)
		}

		met := false
		for i := range commands {
			if !strings.HasPrefix(commands[i].Text, prefix) {
				continue
			}

			met = true
			commands[i].Keeps = commands[i].Keeps || verb == "keeps running"
			if verb == "skip" {
				commands[i].Skip = reason
			}
		}

		if !met {
			return fmt.Errorf("directive %q: no command of the block begins with that", d)
		}
	}

	return nil
}
