// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"slices"
)

const (
	maxLine  = 4 << 10 // the rest of a longer line is not kept
	maxEntry = 2 << 10 // of the further lines of an entry
)

// selector keeps the last lines of a log that can say why its writer exited:
// errors of klog in both formats with their further lines, "Error: ...", and
// the head of a panic. It leaves out the dump of the goroutines. If there is no
// such line, it keeps the last line that is not one of klog: a wrapper or a
// loader wrote it.
type selector struct {
	kept  []byte // whole lines
	plain []byte // the last other line
	line  []byte // the beginning of the present line
	entry int    // bytes that the present entry may still add; 0: it is not kept
	dump  bool   // goroutines follow

	out [2][]byte // for text, so that copying allocates no memory
}

// add adds output.
func (s *selector) add(p []byte) {
	for len(p) > 0 {
		piece, rest, ended := bytes.Cut(p, []byte("\n"))
		if room := maxLine - len(s.line); room > 0 && len(piece) > 0 {
			s.line = append(s.line, piece[:min(room, len(piece))]...)
		}
		if !ended {
			break
		}

		s.end()
		s.line, p = s.line[:0], rest
	}
}

// text returns the kept lines, with the present line as if it had ended. They
// are valid until the next call.
func (s *selector) text() []byte {
	now := *s
	now.kept, now.plain = append(s.out[0][:0], s.kept...), append(s.out[1][:0], s.plain...)
	now.end()
	s.out = [2][]byte{now.kept, now.plain}
	if len(now.kept) == 0 {
		return now.plain
	}

	return now.kept
}

// end processes the present line.
func (s *selector) end() {
	line := bytes.TrimRight(s.line, "\r")
	switch {
	case len(line) == 0:
	case line[0] == '\t' || bytes.HasPrefix(line, []byte(" >")): // further lines of an entry
		if s.entry > 0 {
			s.entry = max(0, s.entry-len(line))
			s.keep(line)
		}
	case isError(line):
		s.entry, s.dump = 0, s.dump || startsDump(line)
		s.keep(line)
		if bytes.HasSuffix(line, []byte("=<")) && !bytes.HasSuffix(line, []byte("stacktrace=<")) {
			s.entry = maxEntry
		}
	case isKlog(line) || line[0] == '{':
		s.entry, s.dump = 0, false
	case startsDump(line):
		s.entry, s.dump = 0, true
	case !s.dump && !bytes.HasPrefix(line, []byte("Flag --")): // a warning about a deprecated flag is no reason
		s.entry, s.plain = 0, append(s.plain[:0], line...)
	}
}

// keep adds a line, and removes the oldest ones while there are too many.
func (s *selector) keep(line []byte) {
	s.kept = append(append(s.kept, line...), '\n')
	for len(s.kept) > maxText {
		s.kept = s.kept[:copy(s.kept, s.kept[bytes.IndexByte(s.kept, '\n')+1:])]
	}
}

// isKlog reports whether a line begins like klog's text format, "E1122 ".
func isKlog(line []byte) bool {
	if len(line) < 6 || !bytes.ContainsRune([]byte("IWEF"), rune(line[0])) || line[5] != ' ' {
		return false
	}

	for _, c := range line[1:5] {
		if c < '0' || c > '9' {
			return false
		}
	}

	return true
}

// isError reports whether a line is an error, or the head of a panic. In klog's
// JSON format, only errors have no "v". A kubelet writes that a field is
// invalid, and goes on, at another level.
func isError(line []byte) bool {
	if isKlog(line) {
		return line[0] == 'E' || line[0] == 'F' || bytes.Contains(line, []byte(`] "Invalid `))
	}

	if line[0] == '{' {
		return bytes.Contains(line, []byte(`"msg":`)) && (bytes.Contains(line, []byte(`"err":`)) ||
			bytes.Contains(line, []byte(`"msg":"Invalid `)) || !bytes.Contains(line, []byte(`"v":`)))
	}

	return beginsWith(line, "Error: ", "error: ", "panic: ", "fatal error: ", "[signal ", "SIGABRT: ", "SIGQUIT: ")
}

// startsDump reports whether the goroutines follow a line.
func startsDump(line []byte) bool {
	return beginsWith(line, "goroutine ", "panic: ", "fatal error: ", "[signal ", "SIGABRT: ", "SIGQUIT: ", "runtime stack:")
}

func beginsWith(line []byte, heads ...string) bool {
	return slices.ContainsFunc(heads, func(head string) bool { return bytes.HasPrefix(line, []byte(head)) })
}
