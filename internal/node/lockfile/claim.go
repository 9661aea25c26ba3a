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
	// ErrWanted says that another process wants the lock, and that the holder gives way.
	ErrWanted = errors.New("another process wants the lock")
	// ErrLost says that the file of a lock was replaced, and that another process has the lock on the new one.
	ErrLost = errors.New("the lock file was replaced, and another process has the lock on the new one")
)

// Claim is a lock that a Contender has. If its file is deleted or replaced, it takes the lock on the one that is there
// then, if it can.
type Claim struct {
	c       Contender
	wanted  chan struct{}
	release chan struct{} // closed by Release
	once    sync.Once
	kept    sync.WaitGroup

	mu  sync.Mutex
	why error

	// Of keep alone, until it has ended.
	// files are locked, all of them: others may still wait for those that were replaced. The last is the one at the path.
	files   []*os.File
	watch   *watch
	wait    time.Duration // until the next look
	noticed string
}

// claim keeps a lock that was taken on file.
func (c Contender) claim(file *os.File, w *watch) *Claim {
	k := &Claim{c: c, wanted: make(chan struct{}), release: make(chan struct{})}
	k.hold(file, w)
	w.look()
	if w.openedWithin(fresh) {
		k.wantOpened()
	}
	lost := k.look()
	k.kept.Go(func() { k.keep(lost) })
	return k
}

func (k *Claim) hold(file *os.File, w *watch) {
	k.files, k.watch, k.wait = append(k.files, file), w, time.Millisecond
}

// Wanted is closed when the holder should let go: another process wants the lock (Yield), or has it (ErrLost). Why says
// which.
func (k *Claim) Wanted() <-chan struct{} { return k.wanted }

// Why says why Wanted is closed, with ErrWanted or ErrLost; before that it is nil.
func (k *Claim) Why() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.why
}

// Release gives the lock back; again, it does nothing. The file stays, as with a Lock.
func (k *Claim) Release() error {
	var errs []error
	k.once.Do(func() {
		close(k.release)
		k.kept.Wait()
		for _, file := range slices.Backward(k.files) { // who gets the lock on an old one finds the new one free
			errs = append(errs, unlock(file))
		}
	})
	return errors.Join(errs...)
}

// want closes Wanted, the first time. ErrLost beats another reason.
func (k *Claim) want(why error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.why == nil {
		close(k.wanted)
	}
	if k.why == nil || errors.Is(why, ErrLost) {
		k.why = why
	}
}

func (k *Claim) wantOpened() {
	k.want(fmt.Errorf("lock file %s was opened: %w", k.c.Path, ErrWanted))
}

// keep looks after the lock until Release.
func (k *Claim) keep(lost bool) {
	defer func() { k.watch.close() }() // the one of then
	for !lost {
		// Who opened the file before it was watched shows only when it waits for the lock. So it is looked for soon, and
		// then less and less often: it is found as long after as it took from opening to waiting, or at the next look.
		if !k.c.Yield || k.wait > lookEvery {
			k.wait = lookEvery
		}
		select {
		case <-k.release:
			return
		case events := <-k.watch.events():
			if events&opened != 0 && k.c.Yield {
				k.wantOpened()
			}
		case <-time.After(k.wait):
			k.wait *= 2
		}
		lost = k.look()
	}
	<-k.release
}

// look looks for those who wait for the lock, and whether its file is still there. It returns whether the lock is lost.
func (k *Claim) look() (lost bool) {
	for _, file := range k.files {
		if !k.c.Yield {
			break
		}
		if pids := waiters(file); len(pids) > 0 {
			k.want(fmt.Errorf("lock file %s: %w: %s waits for it", k.c.Path, ErrWanted, process(pids[0])))
		}
	}
	if isAt(k.c.Path, k.files[len(k.files)-1]) {
		return false
	}
	return k.retake()
}

// retake takes the lock on the file that is at the path now. It returns whether another process has it: then who has
// only the old one's must let go. Before anybody has it there is nothing to let go for.
func (k *Claim) retake() (lost bool) {
	if _, unsafe := trust(k.c.Path); unsafe != nil { // nobody's reason to let go
		k.keepOld(unsafe)
		return false
	}
	if pid := WhoHolds(k.c.Path); pid > 0 { // not opened: its holder might give way to us, who are about to leave
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
		lost = k.lose(holder(file))
	case err != nil:
		k.keepOld(err)
	case isAt(k.c.Path, file):
		k.noticed = ""
		k.c.notice(fmt.Errorf("lock file %s was deleted or replaced: the lock was taken on the new one too", k.c.Path))
		k.watch.close()
		k.hold(file, w)
		return false
	}
	w.close()
	_ = file.Close()
	return lost
}

func (k *Claim) lose(pid int) bool {
	k.want(fmt.Errorf("lock file %s: %w: %s", k.c.Path, ErrLost, process(pid)))
	return true
}

// keepOld says why the lock on the file that is at the path now is not taken.
func (k *Claim) keepOld(err error) {
	k.notice(fmt.Errorf("%w: what was locked there was deleted or replaced; its lock is kept, and this tried again", err))
}

// notice says what goes on, once and not at every look.
func (k *Claim) notice(err error) {
	if words := err.Error(); words != k.noticed {
		k.noticed = words
		k.c.notice(err)
	}
}
