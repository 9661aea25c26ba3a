// Package docs runs the commands that a page of the documentation shows, in order, as a reader does, and compares what they
// print with what the page says that they print.
//
// It must not know what the commands do, nor prepare anything for them: that is for the test of each page.
//
// A page is Markdown. Its commands are the lines that begin with "$ " in fenced blocks of the language console, with the
// lines that the shell needs to complete each. What follows a command, up to the next one, is what it prints:
//
//   - ages, durations, UIDs and hashes may differ, and so may the width of columns;
//   - "..." at the end of a line is any rest of it, and a line "..." any lines;
//   - after "[y/N] " stands the answer. Every question is answered with y;
//   - nothing says nothing: then only the exit code counts.
//
// A command must end with exit code 0, unless a comment in its line says "exit code N".
//
// Directives are comments in the page's source before a block, which no reader sees:
//
//	<!-- test: skip: REASON -->             the block is not run
//	<!-- test: skip `COMMAND`: REASON -->   commands of the block that begin so are not run
//	<!-- test: keeps running `COMMAND` -->  commands that begin so run until the page ends, or until one of the same
//	                                        program is started again
//
// REASON is one of Reasons. Any other is an error: what a reader can run, a test can.
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
var Reasons = []string{"builds the project", "needs a booted systemd", "needs another machine"}

// Command is one command of a page.
type Command struct {
	Line   int    // in the page, counted from 1
	Text   string // for the shell
	Output []string
	Exit   int
	Skip   string // why it is not run; empty: it is
	Keeps  bool   // it keeps running
}

var (
	fence     = regexp.MustCompile("^( *)```+ *([a-z]*) *$")
	directive = regexp.MustCompile(`^ *<!-- *test: *(.*?) *--> *$`)
	aboutOne  = regexp.MustCompile("^(skip|keeps running) `([^`]+)`(?:: *(.*))?$")
	exitCode  = regexp.MustCompile(`#.*\bexit code ([0-9]+)\b`)
)

// Section returns the lines of a page from a heading to the next one of its level or above, with empty lines for those
// before it, so that numbers of lines stay.
func Section(page, heading string) (string, error) {
	lines := strings.Split(page, "\n")
	from := slices.Index(lines, heading)
	if from < 0 {
		return "", fmt.Errorf("there is no heading %q", heading)
	}
	level := strings.IndexByte(heading, ' ')
	to, fenced := len(lines), false
	for i := from + 1; i < len(lines) && to == len(lines); i++ {
		if fence.MatchString(lines[i]) {
			fenced = !fenced
		}
		marks := len(lines[i]) - len(strings.TrimLeft(lines[i], "#"))
		if !fenced && marks > 0 && marks <= level {
			to = i
		}
	}
	return strings.Repeat("\n", from) + strings.Join(lines[from:to], "\n"), nil
}

// Parse returns the commands of a page. The error names every line that cannot be understood.
func Parse(page string) ([]Command, error) {
	var commands []Command
	var errs []error
	var pending []string // directives for the next block
	var at int           // of the first of them
	lines := strings.Split(page, "\n")
	for i := 0; i < len(lines); i++ {
		if m := directive.FindStringSubmatch(lines[i]); m != nil {
			pending, at = append(pending, m[1]), i+1
			continue
		}
		m := fence.FindStringSubmatch(lines[i])
		if m == nil {
			if strings.TrimSpace(lines[i]) != "" && len(pending) > 0 {
				errs = append(errs, fmt.Errorf("line %d: a directive must stand right before a console block", at))
				pending = nil
			}
			continue
		}
		end := i + 1
		for end < len(lines) && strings.TrimSpace(lines[end]) != "```" {
			end++
		}
		if m[2] == "console" {
			found, err := block(lines[i+1:end], i+2, len(m[1]))
			if err == nil {
				err = direct(found, pending)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("line %d: %w", i+1, err))
			}
			commands = append(commands, found...)
		} else if len(pending) > 0 {
			errs = append(errs, fmt.Errorf("line %d: a directive must stand right before a console block", at))
		}
		pending, i = nil, end
	}
	if len(pending) > 0 {
		errs = append(errs, fmt.Errorf("line %d: a directive must stand right before a console block", at))
	}
	return commands, errors.Join(errs...)
}

// block returns the commands of one block, whose lines are indented as its fence is.
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

// complete reports whether a shell would run this, rather than read on. The error says why it never would.
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
