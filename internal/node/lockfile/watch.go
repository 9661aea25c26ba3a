// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package lockfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// moved are events after which the file may not be at its path any more. IN_ATTRIB: its last name was deleted while
	// it is open.
	moved = unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	// opened are opens by any process; an overflow may hide one.
	opened = unix.IN_OPEN | unix.IN_Q_OVERFLOW
)

// watch receives inotify events of a file. A nil watch receives none.
type watch struct {
	file *os.File
	conn syscall.RawConn
	last time.Time // when the last open was seen

	told   chan uint32 // nil until the first call of events
	closed chan struct{}
}

// newWatch watches an open file: so it is the locked file, and its own open is not an event.
func newWatch(file *os.File, opens bool) (*watch, error) {
	wrap := func(err error) error { return fmt.Errorf("lock file %s: inotify: %w", file.Name(), err) }
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, wrap(err)
	}
	w := &watch{file: os.NewFile(uintptr(fd), "inotify"), closed: make(chan struct{})}
	mask := uint32(moved)
	if opens {
		mask |= unix.IN_OPEN
	}
	if _, err = unix.InotifyAddWatch(fd, fmt.Sprintf("/proc/self/fd/%d", file.Fd()), mask); err == nil {
		w.conn, err = w.file.SyscallConn()
	}
	if err != nil {
		_ = w.file.Close()
		return nil, wrap(err)
	}
	return w, nil
}

func (w *watch) close() {
	if w != nil {
		close(w.closed)
		_ = w.file.Close() // nothing was written
	}
}

// events returns a channel of the events from now on, until close. Do not call look after events.
func (w *watch) events() <-chan uint32 {
	if w == nil {
		return nil
	}
	if w.told == nil {
		w.told = make(chan uint32)
		go func() {
			for {
				events, err := w.read(true)
				if err != nil {
					return
				}
				select {
				case w.told <- events:
				case <-w.closed:
					return
				}
			}
		}()
	}
	return w.told
}

// look records the events so far.
func (w *watch) look() {
	if w == nil {
		return
	}
	for {
		events, err := w.read(false)
		if events&opened != 0 {
			w.last = time.Now()
		}
		if err != nil || events == 0 {
			return
		}
	}
}

// openedWithin reports whether an open was seen within the last d.
func (w *watch) openedWithin(d time.Duration) bool {
	return w != nil && !w.last.IsZero() && time.Since(w.last) <= d
}

// read returns all pending events combined, or 0 if there is none and wait is false. It fails when the watch is closed.
func (w *watch) read(wait bool) (events uint32, err error) {
	var buf [64 * unix.SizeofInotifyEvent]byte // the events of a file have no names
	var n int
	var failed error
	err = w.conn.Read(func(fd uintptr) bool {
		for {
			n, failed = unix.Read(int(fd), buf[:])
			if !errors.Is(failed, unix.EINTR) {
				return !wait || !errors.Is(failed, unix.EAGAIN)
			}
		}
	})
	if err == nil && failed != nil && !errors.Is(failed, unix.EAGAIN) {
		err = failed
	}
	for at := 0; at+unix.SizeofInotifyEvent <= n; at += unix.SizeofInotifyEvent {
		events |= binary.NativeEndian.Uint32(buf[at+int(unsafe.Offsetof(unix.InotifyEvent{}.Mask)):])
	}
	return events, err
}
