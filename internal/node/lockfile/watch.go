// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package lockfile

import (
	"encoding/binary"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// moved are events after which the file may not be at its path any more.
	// IN_ATTRIB: its last name was deleted while it is open.
	moved = unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	// opened are opens by any process; an overflow may hide one.
	opened = unix.IN_OPEN | unix.IN_Q_OVERFLOW
)

// watch receives inotify events of a file, from newWatch until close. A nil
// watch receives none.
type watch struct {
	file   *os.File
	told   chan uint32
	closed chan struct{}
	last   time.Time // when queue received the last open
}

// newWatch watches an open file: so it is the locked file, and its own open is
// not an event.
func newWatch(file *os.File, opens bool) (*watch, error) {
	wrap := func(err error) error { return fmt.Errorf("lock file %s: inotify: %w", file.Name(), err) }
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, wrap(err)
	}

	w := &watch{file: os.NewFile(uintptr(fd), "inotify"), told: make(chan uint32), closed: make(chan struct{})}
	mask := uint32(moved)
	if opens {
		mask |= unix.IN_OPEN
	}

	if _, err = unix.InotifyAddWatch(fd, fmt.Sprintf("/proc/self/fd/%d", file.Fd()), mask); err != nil {
		_ = w.file.Close()
		return nil, wrap(err)
	}

	go w.run()

	return w, nil
}

func (w *watch) close() {
	if w != nil {
		close(w.closed)
		_ = w.file.Close() // nothing was written
	}
}

// events returns the channel of the events. Several may arrive combined.
func (w *watch) events() <-chan uint32 {
	if w == nil {
		return nil
	}

	return w.told
}

// run sends the events until close.
func (w *watch) run() {
	var buf [64 * unix.SizeofInotifyEvent]byte // the events of a file have no names
	for {
		n, err := w.file.Read(buf[:])
		if err != nil {
			return
		}

		var events uint32
		for at := 0; at+unix.SizeofInotifyEvent <= n; at += unix.SizeofInotifyEvent {
			events |= binary.NativeEndian.Uint32(buf[at+int(unsafe.Offsetof(unix.InotifyEvent{}.Mask)):])
		}

		select {
		case w.told <- events:
		case <-w.closed:
			return
		}
	}
}

// openedWithin reports whether queue received an open within the last d.
func (w *watch) openedWithin(d time.Duration) bool {
	return w != nil && !w.last.IsZero() && time.Since(w.last) <= d
}
