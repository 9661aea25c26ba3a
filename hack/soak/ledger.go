// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strings"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// ledger is what all runs together have done.
type ledger struct {
	Totals   map[string]*total  `json:"totals"`
	Fuzzing  map[string]*target `json:"fuzzing"` // by package and function, such as internal/payload.FuzzDecode
	Next     map[string]uint64  `json:"next"`    // the seed with which a part continues
	Findings []finding          `json:"findings"`
}

// run is a day and a commit, such as "2026-01-31 0123456789ab". A commit that
// ends with + had changes that were not committed.
type run string

// total is the sum of a figure over all runs.
type total struct {
	Sum    float64 `json:"sum"`
	First  run     `json:"first"`
	Latest run     `json:"latest"`
}

// target is a fuzz target, with the CPU time that it was given.
type target struct {
	CPUHours   float64 `json:"cpuHours"`
	Executions int64   `json:"executions"`
	First      run     `json:"first"`
	Latest     run     `json:"latest"`
}

// finding is a failure. What repairs it is written by people.
type finding struct {
	Part     string `json:"part"`
	What     string `json:"what"`
	Command  string `json:"command"`
	First    run    `json:"first"`
	Latest   run    `json:"latest"`
	Repaired string `json:"repaired"`
}

func (l *ledger) add(figure string, n float64, r run) {
	t := l.Totals[figure]
	if t == nil {
		t = &total{First: r}
		l.Totals[figure] = t
	}

	t.Sum, t.Latest = rounded(t.Sum+n), r
}

func (l *ledger) addFuzzing(f *fuzzed, r run) {
	t := l.Fuzzing[f.name]
	if t == nil {
		t = &target{First: r}
		l.Fuzzing[f.name] = t
	}

	t.CPUHours, t.Executions, t.Latest = rounded(t.CPUHours+f.cpuHours), t.Executions+f.executions, r
}

// rounded keeps four decimals, so that sums stay readable.
func rounded(n float64) float64 { return math.Round(n*1e4) / 1e4 }

// addFinding adds a failure, or notes that a known one has happened again.
func (l *ledger) addFinding(f finding) {
	f.What = oneLine(f.What)
	for i, known := range l.Findings {
		if known.Part == f.Part && known.Command == f.Command && known.Repaired == "" {
			l.Findings[i].Latest = f.Latest
			return
		}
	}

	l.Findings = append(l.Findings, f)
}

// oneLine returns the beginning of a text in one line.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:300], "") + "..."
	}

	return text
}

// errLedger is an error of the ledger: nothing can be recorded any more.
var errLedger = errors.New("the run ends")

// readLedger refuses a file that people have damaged.
func readLedger(path string) (*ledger, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errLedger, err)
	}

	l := &ledger{Totals: map[string]*total{}, Fuzzing: map[string]*target{}, Next: map[string]uint64{}}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(l); err != nil {
		return nil, fmt.Errorf("%w: %s is damaged: %w; correct it, or restore it with git checkout", errLedger, path, err)
	}

	return l, nil
}

// write replaces the file atomically.
func (l *ledger) write(fsys atomicfile.FS, path string) (err error) {
	defer must.Catch(&err)

	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	must.OK(e.Encode(l))

	if err := atomicfile.Write(fsys, path, out.Bytes(), fs.FileMode(0o644)); err != nil {
		return fmt.Errorf("%w: %w", errLedger, err)
	}

	return nil
}
