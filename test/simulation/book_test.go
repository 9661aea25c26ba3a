// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
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

func newBook(keep int) *book {
	return &book{began: time.Now(), keep: keep}
}

// trace adds a line to the record.
func (b *book) trace(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(entry{text: fmt.Sprintf(format, args...)})
}

// change adds a change of the API to the record.
func (b *book) change(c simapi.Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(entry{change: &c})
}

// close ends the record: what follows is the end of the simulation.
func (b *book) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

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
