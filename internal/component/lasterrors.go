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
// or other text, as one line of at most limit bytes. Errors are separated by "; ", and the oldest ones are left out.
// Credentials are masked.
func LastErrors(log []byte, limit int) string {
	const separator, cut = "; ", "..."
	var found []string
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
		text := printable.Line(payload.MaskText(errorText(line, strings.Join(more, "\n"))))
		found = append(slices.DeleteFunc(found, func(s string) bool { return s == text }), text)
	}
	out := ""
	for _, text := range slices.Backward(found) {
		switch {
		case out == "" && len(text) > limit:
			return cut + strings.ToValidUTF8(text[len(text)-limit+len(cut):], "")
		case out == "":
			out = text
		case len(text)+len(separator)+len(out) > limit:
			return out
		default:
			out = text + separator + out
		}
	}
	return out
}

// continues reports whether a line belongs to the entry before it.
func continues(line string) bool {
	return strings.HasPrefix(line, "\t") || strings.HasPrefix(line, " >")
}

// errorText returns the message and the error of a line. more are the further lines of a value.
func errorText(line, more string) string {
	r, ok := parseRecord(line)
	if !ok {
		return strings.TrimPrefix(line, "Error: ")
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
		return message
	case message == "command failed":
		return err
	default:
		return message + ": " + err
	}
}
