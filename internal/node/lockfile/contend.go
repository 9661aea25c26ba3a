// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package lockfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// checkInterval is the interval in which waiters and holders check what the
	// kernel does not report.
	checkInterval = 2 * time.Second
	// openMemory is how long an open during the wait counts as a request for
	// the lock: several times what the opener needs to enter the queue, or to
	// open the file again.
	openMemory = 10 * time.Second
)

// Contender takes a lock for long, in competition with other processes
// (proposal "Self-hosted kubelet").
type Contender struct {
	Path string
	// Yield says that the holder gives way: Claim.Contended tells it when
	// another process wants the lock.
	Yield bool
	// ReopenEvery is the interval in which a waiter opens the file again, so
	// that a holder with Yield gives way; 0: only once. It excludes Yield: a
	// holder could not tell its own opens from others.
	ReopenEvery time.Duration
	// Notice, which may be nil, receives problems that need no action by the
	// holder: other users could take the lock; the file was replaced, and the
	// new file was locked too or cannot be; inotify is not available. Acquire
	// calls it, and a goroutine of the Claim until Release.
	Notice func(error)
}

// Acquire waits for the lock, in the queue of the kernel, until ctx ends. It
// calls waiting, which may be nil, when it has to wait and when the holder
// changes, with a HeldError. The error comes from opening the file, as with
// TryAcquire, or is ErrUnsafe, or that of ctx.
//
// Acquire still waits for a file that was replaced meanwhile, and then for the
// new file: the holder of the old one may not have noticed yet, and both would
// believe that they have the lock.
func (c Contender) Acquire(ctx context.Context, waiting func(error)) (*Claim, error) {
	if c.Yield && c.ReopenEvery > 0 {
		return nil, fmt.Errorf("lock file %s: Yield and ReopenEvery exclude each other", c.Path)
	}

	doubts, unsafe := checkAccess(c.Path)
	for _, doubt := range doubts {
		c.notice(doubt)
	}

	for {
		if err := cmp.Or(unsafe, ctx.Err()); err != nil {
			return nil, err
		}

		file, err := open(c.Path)
		if err != nil {
			return nil, err
		}

		w := c.watch(file) // before the lock is requested, so that no open is missed
		if err := c.queue(ctx, file, w, waiting); err != nil {
			w.close()
			_ = file.Close() // also unlocks, if the lock arrives later
			return nil, err
		}

		_, unsafe = checkAccess(c.Path) // files may have changed since
		if unsafe == nil && isAt(c.Path, file) {
			return c.claim(file, w), nil
		}

		w.close()
		_ = unlock(file)
	}
}

// watch watches a file. Without inotify, which is scarce on some nodes, the
// periodic checks must do.
func (c Contender) watch(file *os.File) *watch {
	w, err := newWatch(file, c.Yield)
	if err != nil {
		c.notice(fmt.Errorf("%w; checking every %s instead", err, checkInterval))
		return nil
	}

	return w
}

func (c Contender) notice(err error) {
	if c.Notice != nil {
		c.Notice(err)
	}
}

// queue waits for the lock on file.
func (c Contender) queue(ctx context.Context, file *os.File, w *watch, waiting func(error)) error {
	held := flock(file)
	if !errors.Is(held, ErrHeld) {
		return held
	}

	last := ""
	report := func(err error) {
		if words := err.Error(); words != last && waiting != nil {
			last = words
			waiting(err)
		}
	}
	report(held)
	got := make(chan error, 1)
	go func() { got <- flockWait(file) }()
	tick, reopen := time.Tick(checkInterval), time.Tick(c.ReopenEvery) // nil for 0
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-got:
			return err
		case <-reopen:
			openBriefly(c.Path)
		case events := <-w.events():
			if events&opened != 0 {
				w.last = time.Now()
			}
		case <-tick:
			// If the lock is free (the kernel wakes the first waiter, and that
			// one the next), this call takes it: both goroutines use the same
			// open file, so either may get the lock.
			held := flock(file)
			if !errors.Is(held, ErrHeld) {
				return held
			}
			if !isAt(c.Path, file) {
				held = fmt.Errorf("%w, on a file that was deleted or replaced since: it must release the lock or exit", held)
			}

			report(held)
		}
	}
}

// flockWait waits for the lock. If the file is closed meanwhile, the close
// takes effect when flockWait returns, and unlocks the file.
func flockWait(file *os.File) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}

	var failed error
	if err := conn.Control(func(fd uintptr) {
		for {
			if failed = unix.Flock(int(fd), unix.LOCK_EX); !errors.Is(failed, unix.EINTR) {
				return
			}
		}
	}); err != nil {
		return err
	}

	return flockErr(file, failed)
}

// openBriefly opens the file at path, if it exists, so that processes that
// watch it notice.
func openBriefly(path string) {
	if fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
		_ = unix.Close(fd)
	}
}

// isAt reports whether file is the one at path.
func isAt(path string, file *os.File) bool {
	ours, err := file.Stat()
	if err != nil {
		return false
	}

	there, err := os.Lstat(path)

	return err == nil && os.SameFile(ours, there)
}
