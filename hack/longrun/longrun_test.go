// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// hours returns the samples of a run in which only one figure changes, from value(0) to value(1).
func hours(run float64, column string, value func(part float64) float64) []sample {
	const count = 240
	var out []sample
	for i := range count {
		s := sample{}
		for _, c := range columns {
			s[c] = 1000
		}
		s["run"], s["seconds"], s["kills"] = run, float64(i*30), max(0, float64(i-count/2))
		s["agent_log"], s["controller_log"] = float64(i), float64(i)
		s[column] = value(float64(i) / count)
		out = append(out, s)
	}
	return out
}

func TestOnlyAFigureThatGrowsFailsARun(t *testing.T) {
	for _, tt := range []struct {
		what, column string
		value        func(float64) float64
		want         string // empty: flat
	}{
		{"all is constant", "agent_anon", func(float64) float64 { return 10000 }, ""},
		{"memory grows all the time", "controller_anon", func(part float64) float64 { return 20000 + 40000*part }, "controller_anon from"},
		{"memory grows in the warm-up only", "controller_anon", func(part float64) float64 { return min(60000, 20000+400000*part) }, ""},
		{"one sample in ten is large", "agent_fds", func(part float64) float64 {
			if int(part*240)%10 == 0 {
				return 5000
			}
			return 20
		}, ""},
		{"the agent is small after kills", "agent_goroutines", func(part float64) float64 {
			if part > 0.5 {
				return 3000
			}
			return 30
		}, ""},
		{"files stay", "state_files", func(part float64) float64 { return 10 + 100*part }, "state_files from"},
		{"the log grows evenly", "agent_log", func(part float64) float64 { return 10000 * part }, ""},
		{"the log grows faster and faster", "agent_log", func(part float64) float64 { return 10000 * part * part }, "agent_log from"},
	} {
		err := flat(hours(1, tt.column, tt.value))
		assert.That(t, (err == nil) == (tt.want == "") && (err == nil || strings.Contains(err.Error(), tt.want)),
			"%s: %v, want %q", tt.what, err, tt.want)
	}
}
