package simulation

import (
	"fmt"
	"hash"
	"hash/fnv"
	"strings"
	"sync"
	"time"
)

// book is the record of a history. It may be used while the server or a machine is locked.
type book struct {
	began time.Time

	mu       sync.Mutex
	hash     hash.Hash64
	lines    []string
	keep     int // lines
	count    int
	failures []string
	stop     func() // ends the history after a failure
	closed   bool   // what follows is not recorded
}

func newBook(keep int) *book {
	return &book{began: time.Now(), hash: fnv.New64a(), keep: keep}
}

// trace adds a line to the record.
func (b *book) trace(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(fmt.Sprintf(format, args...))
}

// close ends the record: what follows is the end of the simulation.
func (b *book) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

func (b *book) add(line string) {
	if b.closed {
		return
	}
	line = fmt.Sprintf("%14s %s\n", time.Since(b.began), line)
	b.hash.Write([]byte(line))
	b.count++
	if b.keep > 0 {
		b.lines = append(b.lines, line)
		if len(b.lines) > 2*b.keep {
			b.lines = append([]string(nil), b.lines[len(b.lines)-b.keep:]...)
		}
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
	b.add("VIOLATION " + what)
	b.failures = append(b.failures, fmt.Sprintf("%s at %s", what, time.Since(b.began)))
	if b.stop != nil {
		b.stop()
	}
}

func (b *book) failed() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failures
}

func (b *book) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.lines[max(0, len(b.lines)-b.keep):], "")
}

func (b *book) sum() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hash.Sum64()
}
