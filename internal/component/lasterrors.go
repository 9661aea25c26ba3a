// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// LastErrors returns the last errors in lines of a component's log, which are
// errors in one of klog's formats, "Error: ..." or other text, as one line of
// at most limit bytes. What ended the process comes first, if a line says so,
// and then the newest error. Errors are separated by "; ", and the oldest ones
// are left out. Credentials are masked.
func LastErrors(log []byte, limit int) string {
	const separator, cut = "; ", "..."
	var found []string // the newest one first
	end := ""          // the one that ended the process
	for _, e := range errorsIn(log) {
		found = slices.Insert(slices.DeleteFunc(found, func(s string) bool { return s == e.text }), 0, e.text)
		if e.ends {
			end = e.text
		}
	}

	if i := slices.Index(found, end); i > 0 {
		found = slices.Insert(slices.Delete(found, i, i+1), 0, end)
	}

	out := ""
	for _, text := range found {
		switch {
		case out == "" && len(text) > limit:
			return cut + strings.ToValidUTF8(text[len(text)-limit+len(cut):], "")
		case out == "":
			out = text
		case len(out)+len(separator)+len(text) > limit:
			return out
		default:
			out += separator + text
		}
	}

	return out
}

// errorsIn returns the errors in lines of a component's log, the oldest one
// first.
func errorsIn(log []byte) (found []loggedError) {
	lines := strings.Split(strings.ToValidUTF8(string(log), "?"), "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSuffix(lines[i], "\r")
		if continues(line) { // the first line of the entry was left out
			continue
		}

		var more []string // the value of `key=<`
		for ; i+1 < len(lines) && continues(lines[i+1]); i++ {
			if value, ok := strings.CutPrefix(lines[i+1], "\t"); ok {
				more = append(more, value)
			}
		}

		if strings.TrimSpace(line) != "" {
			e := errorOf(line, strings.Join(more, "\n"))
			e.text = printable.Line(payload.MaskText(e.text))
			found = append(found, e)
		}
	}

	return found
}

// continues reports whether a line belongs to the entry before it.
func continues(line string) bool {
	return strings.HasPrefix(line, "\t") || strings.HasPrefix(line, " >")
}

// loggedError is an error in a component's log.
type loggedError struct {
	text string // the message and the error
	ends bool   // it ended the process
}

// errorOf returns the error in a line. more are the further lines of a value.
func errorOf(line, more string) loggedError {
	r, ok := parseRecord(line)
	if !ok {
		text, ends := strings.CutPrefix(line, "Error: ")
		return loggedError{text: text, ends: ends || strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")}
	}

	e, err := loggedError{text: r.message, ends: line[0] == 'F'}, ""
	for _, p := range append(r.pairs, pair{r.open, more}) {
		if p.key == "err" || p.key == "panic" {
			err = p.value
		}
	}

	switch {
	case err == "":
		e.text = strings.TrimSuffix(r.text, "=<")
		if r.open != "" && more != "" {
			e.text += "=" + more
		}
	case r.message == "command failed":
		e.text, e.ends = err, true
	default:
		e.text += ": " + err
	}

	return e
}
