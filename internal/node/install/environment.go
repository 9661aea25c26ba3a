// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
)

// EnvironmentFile is an EnvironmentFile= setting of a unit.
type EnvironmentFile struct {
	Path     string // may be a pattern
	Optional bool   // it may be missing
}

// environment returns the variables for a unit's command line. Files override
// Environment=, and later files earlier ones.
func environment(own []string, files []EnvironmentFile) (map[string]string, error) {
	env := map[string]string{}
	for _, v := range own {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}

	for _, f := range files {
		paths, err := filepath.Glob(f.Path)
		if err == nil && len(paths) == 0 {
			err = fs.ErrNotExist
		}

		for _, path := range paths {
			var data []byte
			if data, err = readUnitFile(path); err != nil {
				break
			}

			parseEnvironment(string(data), env)
		}

		if err != nil && !f.Optional {
			return nil, fmt.Errorf("EnvironmentFile=%s: %w: systemd would not start it", f.Path, err)
		}
	}

	return env, nil
}

// maxUnitFile limits unit and environment files, in bytes.
const maxUnitFile = 8 << 20

// readUnitFile returns the content of a file that systemd reads. A link to a
// device, such as /dev/null, is an empty file, as for systemd. It returns an
// error for other files that are not regular.
func readUnitFile(path string) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && info.Mode()&fs.ModeDevice != 0 {
		return nil, nil
	}

	return atomicfile.ReadBounded(path, maxUnitFile)
}

// parseEnvironment reads an environment file as systemd does: both kinds of
// quotes; a backslash at the end joins two lines; comments begin with # or ;.
func parseEnvironment(data string, env map[string]string) {
	for len(data) > 0 {
		data = strings.TrimLeft(data, " \t\r\n")
		if strings.HasPrefix(data, "#") || strings.HasPrefix(data, ";") {
			_, data, _ = strings.Cut(data, "\n")
			continue
		}

		end := strings.IndexAny(data, "=\n")
		if end < 0 || data[end] == '\n' {
			_, data, _ = strings.Cut(data, "\n")
			continue
		}

		name := strings.TrimSpace(data[:end])
		var value string
		value, data = environmentValue(data[end+1:])
		if isVariable(name) {
			env[name] = value
		}
	}
}

// environmentValue reads a value up to the end of its line, and returns the
// rest. A quote counts only at the beginning of a value or after another quoted
// part; blanks there, and at the end, are dropped.
func environmentValue(data string) (value, rest string) {
	var out strings.Builder
	begun, kept := false, 0
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '\n':
			return out.String()[:kept], data[i+1:]
		case c == '\\':
			begun = true
			if i++; i < len(data) && data[i] != '\n' {
				out.WriteByte(data[i])
				kept = out.Len()
			}
		case !begun && (c == '\'' || c == '"'):
			i = quotedValue(data, i, &out)
			kept = out.Len()
		case isBlank(c):
			if begun {
				out.WriteByte(c)
			}
		default:
			begun = true
			out.WriteByte(c)
			kept = out.Len()
		}
	}

	return out.String()[:kept], ""
}

// quotedValue reads the quoted text that begins at i, and returns the index of
// the closing quote.
func quotedValue(data string, i int, out *strings.Builder) int {
	quote := data[i]
	for i++; i < len(data) && data[i] != quote; i++ {
		if quote == '"' && data[i] == '\\' && i+1 < len(data) {
			if i++; data[i] == '\n' {
				continue
			}
			if !strings.ContainsRune("\"\\`$", rune(data[i])) {
				out.WriteByte('\\')
			}
		}

		out.WriteByte(data[i])
	}

	return i
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' }

func isVariable(name string) bool {
	return name != "" && strings.IndexFunc(name, func(r rune) bool { return !nameRune(r) }) < 0 && (name[0] < '0' || name[0] > '9')
}

func nameRune(r rune) bool {
	return r == '_' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
}

// expand expands variables in a command line as systemd does: $NAME as a
// separate word becomes as many words as its value has, ${NAME} becomes its
// value anywhere, and $$ is a $. The program is not expanded.
func expand(argv []string, env map[string]string) []string {
	out := argv[:1:1]
	for _, word := range argv[1:] {
		if name, ok := strings.CutPrefix(word, "$"); ok && isVariable(name) {
			out = append(out, splitWords(env[name])...)
			continue
		}

		out = append(out, expandWord(word, env))
	}

	return out
}

func expandWord(word string, env map[string]string) string {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(word, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}

		if rest, ok := strings.CutPrefix(after, "$"); ok {
			out.WriteByte('$')
			word = rest
			continue
		}

		if name, rest, closed := strings.Cut(strings.TrimPrefix(after, "{"), "}"); closed && after[0] == '{' && isVariable(name) {
			out.WriteString(env[name])
			word = rest
			continue
		}

		out.WriteByte('$')
		word = after
	}
}

// splitWords splits the value of a variable at blanks outside of quotes.
func splitWords(value string) []string {
	var out []string
	var word strings.Builder
	inWord, quoted := false, byte(0)
	for i := 0; i < len(value); i++ {
		c := value[i]
		switch {
		case c == '\\' && quoted != '\'' && i+1 < len(value):
			i++
			word.WriteByte(value[i])
			inWord = true
		case quoted != 0 && c == quoted:
			quoted = 0
		case quoted == 0 && (c == '"' || c == '\''):
			quoted, inWord = c, true
		case quoted == 0 && (isBlank(c) || c == '\n'):
			if inWord {
				out = append(out, word.String())
				word.Reset()
			}

			inWord = false
		default:
			word.WriteByte(c)
			inWord = true
		}
	}

	if inWord {
		out = append(out, word.String())
	}

	return out
}
