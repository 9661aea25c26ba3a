// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/testkit/simapi"
)

// book is the record of a history. It may be used while the server or a machine
// is locked.
type book struct {
	began time.Time

	mu       sync.Mutex
	lines    []entry
	keep     int // lines; 0: all
	failures []string
	stop     func() // ends the history after a failure
	closed   bool   // what follows is not recorded
}

// entry is one line of the record. Most are never read, so changes of the API
// are described only when they are.
type entry struct {
	at     time.Duration
	text   string
	change *simapi.Change
}

func (e entry) String() string {
	text := e.text
	if c := e.change; c != nil {
		text = fmt.Sprintf("api: %s %s by %s%s", c.Kind, c.Name, c.By, summary(*c))
	}

	return fmt.Sprintf("%14s %s\n", e.at, text)
}

// trace adds a line to the record.
func (b *book) trace(format string, args ...any) {
	with(&b.mu, func() { b.add(entry{text: fmt.Sprintf(format, args...)}) })
}

// change adds a change of the API to the record.
func (b *book) change(c simapi.Change) { with(&b.mu, func() { b.add(entry{change: &c}) }) }

// close ends the record: what follows is the end of the simulation.
func (b *book) close() { with(&b.mu, func() { b.closed = true }) }

func (b *book) add(e entry) {
	if b.closed {
		return
	}

	e.at = time.Since(b.began)
	b.lines = append(b.lines, e)
	if b.keep > 0 && len(b.lines) > 2*b.keep {
		b.lines = append([]entry(nil), b.lines[len(b.lines)-b.keep:]...)
	}
}

// must records a violation unless ok is true.
func (b *book) must(ok bool, format string, args ...any) {
	if !ok {
		b.fail(format, args...)
	}
}

// fail records a violation.
func (b *book) fail(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}

	what := fmt.Sprintf(format, args...)
	b.add(entry{text: "VIOLATION " + what})
	b.failures = append(b.failures, fmt.Sprintf("%s at %s", what, time.Since(b.began)))
	if b.stop != nil {
		b.stop()
	}
}

func (b *book) failed() []string { return locked(&b.mu, func() []string { return b.failures }) }

// text returns the last lines of the record.
func (b *book) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines := b.lines
	if b.keep > 0 {
		lines = lines[max(0, len(lines)-b.keep):]
	}

	var out strings.Builder
	for _, e := range lines {
		out.WriteString(e.String())
	}

	return out.String()
}

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
