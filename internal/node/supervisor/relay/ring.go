// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package relay

import "sync"

// ring is the output between the reader and the writer of a copying process. It lets the reader see the end of a child's output
// although the destination is slow. It holds the same number of bytes however small the pieces are that the child writes.
type ring struct {
	mu      sync.Mutex
	changed sync.Cond
	bytes   []byte
	start   int // of what is to be written
	used    int
	closed  bool
}

func newRing(size int) *ring {
	r := &ring{bytes: make([]byte, size)}
	r.changed.L = &r.mu
	return r
}

// room waits for free space and returns a contiguous part of it. The reader fills it, and calls added.
func (r *ring) room() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.used == len(r.bytes) {
		r.changed.Wait()
	}
	if end := r.start + r.used; end < len(r.bytes) {
		return r.bytes[end:]
	}
	return r.bytes[r.start+r.used-len(r.bytes) : r.start]
}

// added says that the first n bytes of the room are to be written.
func (r *ring) added(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used += n
	r.changed.Broadcast()
}

// next waits for output and returns a contiguous part of it, or nothing after close when all is written. The writer writes it, and
// calls written.
func (r *ring) next() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.used == 0 && !r.closed {
		r.changed.Wait()
	}
	return r.bytes[r.start:min(r.start+r.used, len(r.bytes))]
}

// written says that n bytes have been written: their space is free.
func (r *ring) written(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.start = (r.start + n) % len(r.bytes)
	r.used -= n
	r.changed.Broadcast()
}

// close says that nothing more is added.
func (r *ring) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.changed.Broadcast()
}
