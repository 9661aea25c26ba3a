// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/internal/printable"
)

// outputReader parses the output of a component, line by line, and keeps
// possible dumps of the effective configuration, errors of strict decoding, and
// the error that ended the process. maxEntry and maxDumps limit its memory.
type outputReader struct {
	dumps []string // logged values that holdsDump accepted, at most maxDumps
	// truncated: a line or value exceeded the limit, so dumps may be
	// incomplete.
	truncated   bool
	strictError string // error of strict decoding
	failure     string // error of the component that ended the process
	failures    int    // number of records with such an error; only one can be genuine
	panic       string
	overrun     string   // first message that is one of overrunMarks
	fileFlags   []string // flags that should be set via the configuration file, according to the component

	overrunMarks []string // messages that are logged only after the end of the dry run
	// holdsDump reports whether a value may be the effective configuration;
	// nil: keep no values.
	holdsDump func(value string) bool
	onOverrun func(message string)

	last    string // last line, without klog header
	partial []byte
	tooLong bool
	entry   *entry // an unfinished multi-line value
}

// entry is a record with a multi-line value: `"message" key=<`, lines that
// start with a tab, ` >`. More keys and values may follow.
type entry struct {
	message, key string
	value        bytes.Buffer
}

const (
	// maxEntry limits a line or a value, in bytes. The dump of a 1 MiB payload
	// has a few MiB.
	maxEntry = 16 << 20
	// maxDumps limits the kept values. With more than one, no dump is
	// recognized.
	maxDumps = 4
)

// fileFlag is the warning of a kubelet about a flag that is nothing but a field
// of its configuration.
var fileFlag = regexp.MustCompile(`^Flag --(\S+) has been deprecated, This parameter should be set via the config file`)

// Write implements io.Writer; it never fails.
func (t *outputReader) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		piece := p
		if i >= 0 {
			piece = p[:i]
		}

		if !t.tooLong && len(t.partial)+len(piece) <= maxEntry {
			t.partial = append(t.partial, piece...)
		} else {
			t.tooLong, t.truncated = true, true
		}

		if i < 0 {
			break
		}

		t.flush()
		p = p[i+1:]
	}

	return n, nil
}

// flush processes the pending text as a line, even without a newline.
func (t *outputReader) flush() {
	if len(t.partial) == 0 && !t.tooLong {
		return
	}

	line := string(t.partial)
	t.partial, t.tooLong = t.partial[:0], false
	if cap(t.partial) > 64<<10 {
		t.partial = nil
	}

	t.line(strings.TrimSuffix(line, "\r"))
}

func (t *outputReader) line(line string) {
	if t.entry != nil {
		if value, ok := strings.CutPrefix(line, "\t"); ok {
			if t.entry.value.Len()+len(value) < maxEntry {
				t.entry.value.WriteString(value + "\n")
			} else {
				t.truncated = true
			}

			return
		}

		closed := t.entry
		t.entry = nil
		t.add(closed.message, closed.key, strings.TrimSuffix(closed.value.String(), "\n"))
		if more, ok := strings.CutPrefix(line, " >"); ok {
			pairs, open := parsePairs(more)
			t.addAll(closed.message, pairs, open)
			return
		}
	}

	if strings.TrimSpace(line) == "" {
		return
	}

	if r, ok := parseRecord(line); ok {
		t.last = r.text
		t.checkOverrun(r.message)
		t.addAll(r.message, r.pairs, r.open)
		return
	}

	t.last = line
	switch {
	case strings.HasPrefix(line, "Flag --"):
		if found := fileFlag.FindStringSubmatch(line); found != nil {
			t.fileFlags = append(t.fileFlags, found[1])
		}
	case strings.HasPrefix(line, "Error: "):
		t.failure = strings.TrimPrefix(line, "Error: ")
	case t.panic == "" && (strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")):
		t.panic = line
	}
}

// addAll handles the values of a record. The one with the key open continues on
// the following lines.
func (t *outputReader) addAll(message string, pairs []pair, open string) {
	for _, p := range pairs {
		t.add(message, p.key, p.value)
	}
	if open != "" {
		t.entry = &entry{message: message, key: open}
	}
}

// add handles one value of a record.
func (t *outputReader) add(message, key, value string) {
	if len(t.dumps) < maxDumps && t.holdsDump != nil && t.holdsDump(value) {
		t.dumps = append(t.dumps, value)
	}

	switch {
	case key == "err" && t.strictError == "" && strings.HasPrefix(message, "Using lenient decoding as strict decoding failed"):
		t.strictError = value
	case key == "err" && message == "command failed":
		t.failure = value
		t.failures++
	}
}

func (t *outputReader) checkOverrun(message string) {
	if t.overrun == "" && slices.Contains(t.overrunMarks, message) {
		t.overrun = message
		t.onOverrun(message)
	}
}

// failureText returns the error that ended the process, or its last line.
func (t *outputReader) failureText() string {
	switch {
	case t.failure != "":
		return t.failure
	case t.panic != "":
		return t.panic
	default:
		return t.last
	}
}

// clip truncates text to n bytes and keeps it valid UTF-8.
func clip(text string, n int) string { return printable.Truncate(strings.ToValidUTF8(text, "?"), n) }
