// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/testkit/figures"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// A leak is a figure of the last quarter that is larger than that of the first one, by more than its noise and, if it is an amount of
// memory or output, this part of it.
const tolerance = 0.25

// judged are the figures that must stay flat, and the amount of each that is noise. Those without a unit are counts.
var judged = []struct {
	column string
	unit   string
	noise  float64
}{
	{"agent_rss", "KiB", 3 << 10},
	{"agent_anon", "KiB", 2 << 10},
	{"agent_fds", "", 3},
	{"agent_threads", "", 4},
	{"agent_goroutines", "", 4},
	{"relay_rss", "KiB", 3 << 10},
	{"relay_anon", "KiB", 2 << 10},
	{"relay_fds", "", 3},
	{"relay_threads", "", 4},
	{"controller_rss", "KiB", 6 << 10},
	{"controller_anon", "KiB", 6 << 10},
	{"controller_fds", "", 3},
	{"controller_threads", "", 4},
	{"controller_goroutines", "", 8},
	{"state_size", "KiB", 16},
	{"state_files", "", 8},
	{"run_files", "", 4},
	{"agent_log", "KiB/min", 4},
	{"controller_log", "KiB/min", 10},
}

// flat compares the first and the last quarter of each figure of one run after the warm-up, prints both, and returns an error that
// names what has grown.
//
// The agent, and what the kills would change (the rate of the logs), are judged in the first half, in which one agent lives.
func flat(samples []sample) error {
	if len(samples) == 0 {
		return errors.New("there are no samples")
	}
	fmt.Printf("%-24s %14s %14s\n", "", "first quarter", "last quarter")
	warm := min(15*60, samples[len(samples)-1]["seconds"]/5)
	var grown []string
	for _, j := range judged {
		rate := strings.HasSuffix(j.unit, "/min")
		quiet := rate || strings.HasPrefix(j.column, "agent_")
		var chosen []sample
		for _, s := range samples {
			if _, ok := s[j.column]; ok && s["seconds"] >= warm && (!quiet || s["kills"] == 0) {
				chosen = append(chosen, s)
			}
		}
		quarter := len(chosen) / 4
		if quarter < 2 {
			return fmt.Errorf("only %d samples of %s after the warm-up", len(chosen), j.column)
		}
		of := median
		if rate {
			of = perMinute
		}
		first, last := of(chosen[:quarter], j.column), of(chosen[len(chosen)-quarter:], j.column)
		verdict := ""
		most := first + j.noise
		if j.unit != "" {
			most += first * tolerance
		}
		if last > most {
			verdict = "   GROWS"
			grown = append(grown, fmt.Sprintf("%s from %.0f to %.0f %s", j.column, first, last, j.unit))
		}
		fmt.Printf("%-24s %14.1f %14.1f %s%s\n", j.column, first, last, j.unit, verdict)
	}
	if len(grown) > 0 {
		return fmt.Errorf("not flat: %s", strings.Join(grown, "; "))
	}
	return nil
}

func median(samples []sample, column string) float64 {
	var values []float64
	for _, s := range samples {
		values = append(values, s[column])
	}
	return figures.Median(values)
}

// perMinute returns by how much a figure grows.
func perMinute(samples []sample, column string) float64 {
	first, last := samples[0], samples[len(samples)-1]
	return (last[column] - first[column]) / (last["seconds"] - first["seconds"]) * 60
}

// report judges all runs of the file, and draws the picture.
func report(data, picture string) (err error) {
	defer must.Catch(&err)

	samples := must.Get(readData(data))
	var errs []error
	for len(samples) > 0 {
		number := samples[0]["run"]
		end := slices.IndexFunc(samples, func(s sample) bool { return s["run"] != number })
		if end < 0 {
			end = len(samples)
		}
		last := samples[end-1]
		fmt.Printf("run %.0f: %.2f hours, %.0f changes, %.0f kills\n", number, last["seconds"]/3600, last["changes"], last["kills"])
		if err := flat(samples[:end]); err != nil {
			errs = append(errs, fmt.Errorf("run %.0f: %w", number, err))
		}
		samples = samples[end:]
	}
	return errors.Join(append(errs, redraw(data, picture))...)
}

// print prints what the run did, with the lines that hack/soak adds up.
func (r *longRun) print() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.settled) > 0 {
		fmt.Printf("good changes, from push to promotion: median %s\n", figures.Median(r.settled))
	}
	if len(r.gaps) > 0 {
		median := figures.Median(r.gaps)
		fmt.Printf("without a healthy kubelet: %d times, median %s, longest %s\n", len(r.gaps), median, r.gaps[len(r.gaps)-1])
	}
	hours := 0.0
	if n := len(r.samples); n > 0 {
		hours = r.samples[n-1]["seconds"] / 3600
	}
	fmt.Printf("soak: node-hours %.2f\nsoak: node-changes %d\nsoak: node-bad-changes %d\nsoak: node-kills %d\nsoak: node-api-restarts %d\nsoak: node-kubelet-starts %d\n",
		hours, r.changes.Load(), r.bad.Load(), r.kills.Load(), r.apiRestarts.Load(), r.seen)
}
