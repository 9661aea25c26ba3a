// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package lockfile

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

var (
	// ErrContended means that another process wants the lock, and that this
	// holder yields.
	ErrContended = errors.New("another process wants the lock")
	// ErrLost means that the lock file was replaced, and that another process
	// locked the new file.
	ErrLost = errors.New("the lock file was replaced, and another process has the lock on the new one")
)

// Claim is the lock of a Contender. If its file is deleted or replaced, the
// Claim also locks the file that is at the path then, if possible.
type Claim struct {
	c         Contender
	contended chan struct{}
	release   chan struct{} // closed by Release
	once      sync.Once
	kept      sync.WaitGroup

	mu  sync.Mutex
	why error

	// Used by the goroutine of keep only, until it ends.
	//
	// files are all locked, because other processes may still wait for replaced
	// files. The last one is at the path.
	files   []*os.File
	watch   *watch
	wait    time.Duration // until the next check
	noticed string
}

// claim begins to maintain a lock that was taken on file.
func (c Contender) claim(file *os.File, w *watch) *Claim {
	k := &Claim{c: c, contended: make(chan struct{}), release: make(chan struct{})}
	k.hold(file, w)
	if w.openedWithin(openMemory) {
		k.reportOpened()
	}

	lost := k.check()
	k.kept.Go(func() { k.keep(lost) })

	return k
}

func (k *Claim) hold(file *os.File, w *watch) {
	k.files, k.watch, k.wait = append(k.files, file), w, time.Millisecond
}

// Contended returns a channel that is closed when the holder should release the
// lock: another process wants it (Yield), or has it (ErrLost). Why says which.
func (k *Claim) Contended() <-chan struct{} { return k.contended }

// Why returns ErrContended or ErrLost after Contended is closed, nil before.
func (k *Claim) Why() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.why
}

// Release unlocks the files; further calls do nothing. The files stay, as with
// a Lock.
func (k *Claim) Release() error {
	var errs []error
	k.once.Do(func() {
		close(k.release)
		k.kept.Wait()
		for _, file := range slices.Backward(k.files) { // a process that gets an old file then finds the new one free
			errs = append(errs, unlock(file))
		}
	})

	return errors.Join(errs...)
}

// report closes Contended at the first call. ErrLost replaces another reason.
func (k *Claim) report(why error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.why == nil {
		close(k.contended)
	}
	if k.why == nil || errors.Is(why, ErrLost) {
		k.why = why
	}
}

func (k *Claim) reportOpened() {
	k.report(fmt.Errorf("lock file %s was opened: %w", k.c.Path, ErrContended))
}

// keep maintains the lock until Release.
func (k *Claim) keep(lost bool) {
	defer func() { k.watch.close() }() // k.watch may have been replaced
	for !lost {
		// A process that opened the file before it was watched is visible only
		// when it waits for the lock. So the intervals between checks begin
		// short and double: such a process is found after at most the time that
		// it took from opening to waiting, or at the next check.
		if !k.c.Yield || k.wait > checkInterval {
			k.wait = checkInterval
		}

		select {
		case <-k.release:
			return
		case events := <-k.watch.events():
			if events&opened != 0 && k.c.Yield {
				k.reportOpened()
			}
		case <-time.After(k.wait):
			k.wait *= 2
		}

		lost = k.check()
	}

	<-k.release
}

// check looks for processes that wait for the lock, and checks that the file is
// still at its path. It reports whether the lock is lost.
func (k *Claim) check() (lost bool) {
	for _, file := range k.files {
		if !k.c.Yield {
			break
		}
		if pids := waitersFor(file); len(pids) > 0 {
			k.report(fmt.Errorf("lock file %s: %w: %s waits for it", k.c.Path, ErrContended, process(pids[0])))
		}
	}

	if isAt(k.c.Path, k.files[len(k.files)-1]) {
		return false
	}

	return k.retake()
}

// retake locks the file that is at the path now. It reports whether another
// process has that lock: then this holder must release. Until another process
// has it, there is no need to.
func (k *Claim) retake() (lost bool) {
	if _, unsafe := checkAccess(k.c.Path); unsafe != nil { // not a reason to release
		k.keepOld(unsafe)
		return false
	}

	if pid := WhoHolds(k.c.Path); pid > 0 { // opening the file could make its holder yield to this process, which is about to release
		return k.lose(pid)
	}

	var w *watch
	file, err := open(k.c.Path)
	if err == nil {
		w = k.c.watch(file)
		err = flock(file)
	}

	switch {
	case errors.Is(err, ErrHeld):
		lost = k.lose(holderOf(file))
	case err != nil:
		k.keepOld(err)
	case isAt(k.c.Path, file):
		k.noticed = ""
		k.c.notice(fmt.Errorf("lock file %s was deleted or replaced: the new file was locked too", k.c.Path))
		k.watch.close()
		k.hold(file, w)

		return false
	}

	w.close()
	_ = file.Close()

	return lost
}

func (k *Claim) lose(pid int) bool {
	k.report(fmt.Errorf("lock file %s: %w: %s", k.c.Path, ErrLost, process(pid)))
	return true
}

// keepOld reports why the file that is at the path now was not locked.
func (k *Claim) keepOld(err error) {
	k.notice(fmt.Errorf("%w: the locked file was deleted or replaced; its lock is kept, and this is retried", err))
}

// notice reports a problem once, not at every check.
func (k *Claim) notice(err error) {
	if words := err.Error(); words != k.noticed {
		k.noticed = words
		k.c.notice(err)
	}
}
