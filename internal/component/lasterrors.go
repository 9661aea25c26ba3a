// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"iter"
	"regexp"
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
	for e := range errorsIn(log) {
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

// errorsIn returns the errors in lines of a component's log, the oldest one first.
func errorsIn(log []byte) iter.Seq[loggedError] {
	return func(yield func(loggedError) bool) {
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
			e := errorOf(line, strings.Join(more, "\n"))
			e.text = printable.Line(payload.MaskText(e.text))
			if !yield(e) {
				return
			}
		}
	}
}

// Limits of what Errors and NewErrors return.
const maxKeptErrors, maxNewErrors, maxErrorWords = 200, 5, 200

// objectKeys are keys of records about a pod, its containers, its volumes or another object, which no two runs of a kubelet share.
var objectKeys = []string{"pod", "pods", "podUID", "podSandboxID", "sandboxID", "containerID", "containerName", "volumeName", "node",
	"image"}

// passing are words about what a kubelet waits for at each start, or tries again: which of them a run logs is chance.
var passing = regexp.MustCompile(`(?i)may not have completed yet|not found|not yet|connection re(fused|set)|dial tcp|timeout|` +
	`deadline exceeded|context canceled|api ?server|\*v1\.|\blease|in memory cache|forbidden|unauthorized|summary stats|too long|` +
	`retry|try again`)

// Errors adds to known the errors in lines of a kubelet's log that are about the kubelet itself, and not about an object or a state that
// passes: at most maxKeptErrors, each once, without credentials.
func Errors(known []string, log []byte) []string {
	for e := range errorsIn(log) {
		if !e.object && !passing.MatchString(e.text) && !slices.Contains(known, e.text) && len(known) < maxKeptErrors {
			known = append(known, e.text)
		}
	}
	return known
}

// variable is what can differ in the same error of two runs.
var variable = regexp.MustCompile(`\S*[0-9]\S*`)

// NewErrors returns at most maxNewErrors of the errors that no earlier run had, apart from words with digits, each in at most maxErrorWords
// columns.
func NewErrors(before, now []string) (found []string) {
	known := map[string]bool{}
	for _, text := range before {
		known[variable.ReplaceAllString(text, "#")] = true
	}
	for _, text := range now {
		if form := variable.ReplaceAllString(text, "#"); !known[form] && len(found) < maxNewErrors {
			known[form] = true
			found = append(found, printable.Truncate(text, maxErrorWords))
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
	text   string // the message and the error
	ends   bool   // it ended the process
	object bool   // it is about an object that the kubelet manages
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
		e.object = e.object || slices.Contains(objectKeys, p.key)
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
