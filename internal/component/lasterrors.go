// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// LastErrors returns the last errors in lines of a component's log, which are errors in one of klog's formats, "Error: ..."
// or other text, as one line of at most limit bytes. What ended the process comes first, if a line says so, and then the
// newest error. Errors are separated by "; ", and the oldest ones are left out. Credentials are masked.
func LastErrors(log []byte, limit int) string {
	const separator, cut = "; ", "..."
	var found []string // the newest one first
	end := ""          // the one that ended the process
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
		if strings.TrimSpace(line) == "" {
			continue
		}
		message, ends := errorText(line, strings.Join(more, "\n"))
		text := printable.Line(payload.MaskText(message))
		found = slices.Insert(slices.DeleteFunc(found, func(s string) bool { return s == text }), 0, text)
		if ends {
			end = text
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

// continues reports whether a line belongs to the entry before it.
func continues(line string) bool {
	return strings.HasPrefix(line, "\t") || strings.HasPrefix(line, " >")
}

// errorText returns the message and the error of a line, and whether it is what ended the process. more are the further lines of
// a value.
func errorText(line, more string) (text string, ends bool) {
	r, ok := parseRecord(line)
	if !ok {
		text, ends = strings.CutPrefix(line, "Error: ")
		return text, ends || strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
	}
	message, err := r.message, ""
	for _, p := range append(r.pairs, pair{r.open, more}) {
		if p.key == "err" || p.key == "panic" {
			err = p.value
		}
	}
	if err == "" {
		message = strings.TrimSuffix(r.text, "=<")
		if r.open != "" && more != "" {
			message += "=" + more
		}
	}
	switch {
	case err == "":
		return message, line[0] == 'F'
	case message == "command failed":
		return err, true
	default:
		return message + ": " + err, line[0] == 'F'
	}
}
