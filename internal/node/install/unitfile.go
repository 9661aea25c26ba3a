// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// file is a unit file or drop-in on disk.
type file struct {
	path string
	data []byte
}

// setting is one assignment in a unit file.
type setting struct {
	section, key, value string
	file                string
}

// settings reads a unit file as systemd does: a line that ends in a backslash continues in the next one, comments
// between them are ignored, and so are lines that are not assignments in a section.
func (f file) settings() []setting {
	var out []setting
	section, continued := "", ""
	for line := range strings.SplitSeq(strings.TrimPrefix(string(f.data), "\ufeff"), "\n") {
		line = strings.TrimLeft(strings.TrimSuffix(line, "\r"), " \t")
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		line = continued + line
		if backslashes := len(line) - len(strings.TrimRight(line, `\`)); backslashes%2 == 1 {
			continued = line[:len(line)-1] + " "
			continue
		}
		continued = ""
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]") {
			section = line[1 : len(line)-1]
			continue
		}
		if key, value, found := strings.Cut(line, "="); found && section != "" {
			out = append(out, setting{section, strings.TrimSpace(key), strings.TrimSpace(value), f.path})
		}
	}
	return out
}

// command is the ExecStart= of a unit, as written.
type command struct {
	prefix string // special prefix characters, such as -
	text   string // the program and its arguments, not expanded
	file   string // path of the file
}

// execStartOf returns the only command of the files of a unit, in the order of systemd. An empty assignment clears
// earlier ones.
func execStartOf(files []file) (command, error) {
	var commands []command
	for _, f := range files {
		for _, s := range f.settings() {
			switch {
			case s.section != "Service" || s.key != "ExecStart":
			case s.value == "":
				commands = nil
			default:
				text := strings.TrimLeft(s.value, prefixes)
				commands = append(commands, command{s.value[:len(s.value)-len(text)], text, s.file})
			}
		}
	}
	if len(commands) != 1 {
		return command{}, fmt.Errorf("it has %d ExecStart= commands, not one", len(commands))
	}
	return commands[0], commands[0].check()
}

// prefixes are the characters that systemd accepts before a program.
const prefixes = "-@:+!|"

// check returns an error if the command would mean something else as the arguments of another program.
func (c command) check() error {
	at := "ExecStart= in " + c.file
	switch {
	case c.text == "":
		return fmt.Errorf("%s has no program, only %q", at, c.prefix)
	case strings.ContainsAny(c.prefix, "@|"):
		return fmt.Errorf("%s begins with %q, which gives its program another name or a shell: write it without", at, c.prefix)
	case len(c.text) > 1 && strings.ContainsRune(`"'`, rune(c.text[0])) && strings.ContainsRune(prefixes, rune(c.text[1])):
		return fmt.Errorf("%s has a prefix within quotes: write it before them", at)
	case slices.Contains(strings.Fields(c.text), ";"):
		return fmt.Errorf("%s has more than one command", at)
	}
	return nil
}

// overriders returns the files that systemd reads after a drop-in of this name, and that set what our drop-in must set.
func overriders(files []file, name string) []string {
	ours := map[string]bool{"ExecStart": true, "Type": true, "NotifyAccess": true, "KillMode": true, "Restart": true}
	var out []string
	for _, f := range files {
		base := filepath.Base(f.path)
		if !strings.HasSuffix(base, ".conf") || base <= name {
			continue
		}
		if slices.ContainsFunc(f.settings(), func(s setting) bool { return s.section == "Service" && ours[s.key] }) {
			out = append(out, f.path)
		}
	}
	return out
}

// quote quotes a word so that systemd reads it unchanged. Without expansion (prefix :) a $ needs no escape.
func quote(word string, expands bool) (string, error) {
	if strings.ContainsFunc(word, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", fmt.Errorf("%q has a control character", word)
	}
	word = strings.ReplaceAll(word, "%", "%%")
	if expands {
		word = strings.ReplaceAll(word, "$", "$$")
	}
	if word != "" && word != ";" && !strings.ContainsAny(word, " \"'\\") {
		return word, nil
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(word) + `"`, nil
}
