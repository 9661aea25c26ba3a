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
	// moved is what may mean that the file is no longer the one at its path. IN_ATTRIB: its last name is gone, while
	// it is open.
	moved = unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	// opened is an open by whomever. An overflow may have been one.
	opened = unix.IN_OPEN | unix.IN_Q_OVERFLOW
)

// watch is told by the kernel what happens to a file. A nil one is told nothing.
type watch struct {
	file *os.File
	conn syscall.RawConn
	last time.Time // when the file was last seen to have been opened

	told   chan uint32 // nil until events is called
	closed chan struct{}
}

// newWatch watches a file that is open already: neither can it be another one than is locked, nor does our own open
// count.
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

// events returns what happens from now on, until the watch is closed. look is not for use after it.
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

// look takes in what has happened so far.
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

// openedWithin tells whether the file was seen to be opened within the last d.
func (w *watch) openedWithin(d time.Duration) bool {
	return w != nil && !w.last.IsZero() && time.Since(w.last) <= d
}

// read returns what has happened: all kinds of events together, 0 if it need not wait and there is none. It fails when
// the watch is closed.
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
