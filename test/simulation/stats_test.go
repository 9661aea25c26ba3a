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
	Starts, Changes, Adopted int
	LongestGap               time.Duration  // that a node was without a kubelet while its agent ran
	NodeTime                 time.Duration  // that machines were switched on, in total
	CrashPoints              int            // agents that ended at an operation of their disk, and machines that lost power
	Kills                    int            // of agents and controllers
	Preflights               int            // requests that an agent accepted
	Stops                    int            // of revisions, in fleets in which nothing else went wrong
	Late                     int            // batches of assignments that arrived under the next leader, in fleets in which nothing else went wrong
	Repairs                  int            // statuses that were set back and that an agent wrote again
	Drains, Evictions        int            // of nodes, and of pods
	Actions                  map[string]int // by kind
}

func (s *stats) add(other stats) {
	s.Starts += other.Starts
	s.Changes += other.Changes
	s.Adopted += other.Adopted
	s.LongestGap = max(s.LongestGap, other.LongestGap)
	s.NodeTime += other.NodeTime
	s.CrashPoints += other.CrashPoints
	s.Kills += other.Kills
	s.Preflights += other.Preflights
	s.Stops += other.Stops
	s.Late += other.Late
	s.Repairs += other.Repairs
	s.Drains += other.Drains
	s.Evictions += other.Evictions
	for name, n := range other.Actions {
		s.count(name, n)
	}
}

func (s *stats) count(action string, n int) {
	if s.Actions == nil {
		s.Actions = map[string]int{}
	}
	s.Actions[action] += n
}

func (s *stats) nodeDays() float64 { return s.NodeTime.Hours() / 24 }

func (s *stats) describe() string {
	return fmt.Sprintf("%.1f node-days, %d starts of kubelets, %d crash points, %d kills", s.nodeDays(), s.Starts, s.CrashPoints, s.Kills)
}

// lines returns a name and a number in each line.
func (s *stats) lines() []string {
	out := []string{
		fmt.Sprintf("node-days %.2f", s.nodeDays()), fmt.Sprintf("crash-points %d", s.CrashPoints), fmt.Sprintf("kills %d", s.Kills),
		fmt.Sprintf("kubelet-starts %d", s.Starts), fmt.Sprintf("adoptions %d", s.Adopted),
		fmt.Sprintf("preflights %d", s.Preflights), fmt.Sprintf("stops %d", s.Stops),
		fmt.Sprintf("late-assignments %d", s.Late), fmt.Sprintf("repairs %d", s.Repairs), fmt.Sprintf("drains %d", s.Drains), fmt.Sprintf("evictions %d", s.Evictions),
	}
	for _, name := range slices.Sorted(maps.Keys(s.Actions)) {
		out = append(out, fmt.Sprintf("action-%s %d", strings.ToLower(strings.ReplaceAll(name, " ", "-")), s.Actions[name]))
	}
	return out
}
