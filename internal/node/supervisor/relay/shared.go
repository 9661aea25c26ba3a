// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxText limits the kept lines, in bytes.
const maxText = 16 << 10

// shared is memory of this process and of the one that copies. The copying
// process writes it, and never waits for a reader.
type shared struct {
	busy    atomic.Uint32 // it has not started, or has read output whose lines are not in text yet
	pending atomic.Uint32 // bytes of output that it has read and not written yet
	version atomic.Uint32 // odd while text changes
	length  atomic.Uint32 // of text
	text    [maxText]byte
}

const sharedSize = int(unsafe.Sizeof(shared{}))

// newShared returns new memory, and its file for the copying process.
func newShared() (*os.File, *shared, error) {
	fd, err := unix.MemfdCreate("kubelet-errors", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, nil, fmt.Errorf("memfd_create: %w", err)
	}

	file := os.NewFile(uintptr(fd), "kubelet-errors")
	var s *shared
	if err = file.Truncate(int64(sharedSize)); err == nil {
		s, err = mapShared(fd)
	}

	if err != nil {
		_ = file.Close()
		return nil, nil, err
	}

	return file, s, nil
}

func mapShared(fd int) (*shared, error) {
	memory, err := unix.MmapPtr(fd, 0, nil, uintptr(sharedSize), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}

	return (*shared)(memory), nil
}

func (s *shared) unmap() { _ = unix.MunmapPtr(unsafe.Pointer(s), uintptr(sharedSize)) }

// begin prepares the memory for a new copying process.
func (s *shared) begin() {
	s.busy.Store(1)
	s.pending.Store(0)
}

// read reports whether the lines of everything that was read are in text.
func (s *shared) read() bool { return s.busy.Load() == 0 }

// written reports whether everything that was read has been copied.
func (s *shared) written() bool { return s.pending.Load() == 0 }

// set replaces the lines.
func (s *shared) set(text []byte) {
	s.version.Store(s.version.Load() | 1)
	s.length.Store(uint32(copy(s.text[:], text)))
	s.version.Add(1)
}

// lines returns a copy of the lines, or nil if the copying process died while
// it changed them.
func (s *shared) lines() []byte {
	for range 1000 {
		before := s.version.Load()
		text := append([]byte(nil), s.text[:min(s.length.Load(), maxText)]...)
		if before%2 == 0 && s.version.Load() == before {
			return text
		}
	}

	return nil
}

// queue is the output between the reader and the writer of a copying process.
// It lets the reader see the end of a child's output although the destination
// is slow.
type queue struct {
	mu      sync.Mutex
	changed sync.Cond
	bytes   []byte
	taken   int // bytes that the writer has; with these, at most bufferSize and what was read last
	closed  bool
}

func newQueue() *queue {
	q := &queue{bytes: newBuffer()}
	q.changed.L = &q.mu
	return q
}

func newBuffer() []byte { return make([]byte, 0, bufferSize+readSize) }

// add waits for free space, and adds output.
func (q *queue) add(p []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.bytes)+q.taken >= bufferSize {
		q.changed.Wait()
	}

	q.bytes = append(q.bytes, p...)
	q.changed.Broadcast()
}

// take waits for output and returns all of it, or nothing after close. What was
// taken before has been written, and the queue continues in its buffer.
func (q *queue) take(empty []byte) []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken = 0
	q.changed.Broadcast()
	for len(q.bytes) == 0 && !q.closed {
		q.changed.Wait()
	}

	p := q.bytes
	q.bytes, q.taken = empty[:0], len(p)

	return p
}

// close says that nothing more is added.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.changed.Broadcast()
}
