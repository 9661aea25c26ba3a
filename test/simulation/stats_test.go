// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// stats says how much happened in a history, or in several.
type stats struct {
	Counts   map[string]int // by name: those below, and kinds of actions
	NodeTime time.Duration  // that machines were switched on, in total
}

// What is counted.
const (
	crashPoints = "crash-points"   // agents that ended at an operation of their disk, and machines that lost power
	kills       = "kills"          // of agents and controllers
	starts      = "kubelet-starts" // of kubelets
	adoptions   = "adoptions"
	preflights  = "preflights"       // requests that an agent accepted
	late        = "late-assignments" // batches of assignments that arrived under the next leader, in fleets in which nothing else went wrong
	drains      = "drains"           // of nodes
	evictions   = "evictions"        // of pods
	changes     = "changes"          // of the API
)

func (s *stats) add(other stats) {
	s.NodeTime += other.NodeTime
	for name, n := range other.Counts {
		s.count(name, n)
	}
}

func (s *stats) count(name string, n int) {
	if s.Counts == nil {
		s.Counts = map[string]int{}
	}

	s.Counts[name] += n
}

func (s *stats) nodeDays() float64 { return s.NodeTime.Hours() / 24 }

func (s *stats) describe() string {
	return fmt.Sprintf("%.1f node-days, %d starts of kubelets, %d crash points, %d kills", s.nodeDays(), s.Counts[starts], s.Counts[crashPoints], s.Counts[kills])
}

// lines returns a name and a number in each line.
func (s *stats) lines() []string {
	out := []string{fmt.Sprintf("node-days %.2f", s.nodeDays())}
	for _, name := range []string{crashPoints, kills, starts, adoptions, preflights, late, drains, evictions} {
		out = append(out, fmt.Sprintf("%s %d", name, s.Counts[name]))
	}

	for _, name := range slices.Sorted(maps.Keys(s.Counts)) {
		if strings.HasPrefix(name, "action-") {
			out = append(out, fmt.Sprintf("%s %d", name, s.Counts[name]))
		}
	}

	return out
}
