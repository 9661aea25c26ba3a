package main

import (
	"fmt"
	"strings"

	"github.com/evenkeel/evenkeel/testkit/figures"
)

// A leak is a median of the last quarter that is larger than that of the first one, by more than this part of it and this amount.
const tolerance = 0.25

// judged are the figures that must stay flat, and the amount of each that is noise.
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
	{"agent_log", "KiB/min", 2},
	{"controller_log", "KiB/min", 4},
}

// flat compares the first and the last quarter of each figure after the warm-up, prints both, and returns an error that names
// what has grown.
//
// The agent, and what the kills would change (the rate of the logs), are judged in the first half, in which one agent lives.
func flat(samples []sample) error {
	if len(samples) < 4 {
		return fmt.Errorf("only %d samples", len(samples))
	}
	fmt.Printf("%-24s %12s %12s\n", "median", "first", "last quarter")
	end := samples[len(samples)-1]["seconds"]
	warm := min(15*60, end/5)
	var grown []string
	for _, j := range judged {
		rate := strings.HasSuffix(j.unit, "/min")
		quiet := rate || strings.HasPrefix(j.column, "agent_")
		var values []float64
		for i, s := range samples {
			v, ok := s[j.column]
			if quiet && s["kills"] > 0 || s["seconds"] < warm || !ok {
				continue
			}
			if rate {
				if i == 0 {
					continue
				}
				before := samples[i-1]
				v = (v - before[j.column]) / (s["seconds"] - before["seconds"]) * 60
			}
			values = append(values, v)
		}
		if len(values) < 4 {
			return fmt.Errorf("only %d samples of %s after the warm-up", len(values), j.column)
		}
		quarter := len(values) / 4
		last := figures.Median(append([]float64{}, values[len(values)-quarter:]...))
		first := figures.Median(append([]float64{}, values[:quarter]...))
		verdict := ""
		if last > first*(1+tolerance)+j.noise {
			verdict = "   GROWS"
			grown = append(grown, fmt.Sprintf("%s from %.0f to %.0f %s", j.column, first, last, j.unit))
		}
		fmt.Printf("%-24s %12.1f %12.1f %s%s\n", j.column, first, last, j.unit, verdict)
	}
	if len(grown) > 0 {
		return fmt.Errorf("not flat: %s", strings.Join(grown, "; "))
	}
	return nil
}

// print prints what the run did, with the lines that test/soak adds up.
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
