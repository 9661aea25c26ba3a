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
	// lookEvery is how often a waiter and a holder look at what the kernel does not tell them.
	lookEvery = 2 * time.Second
	// fresh is how long an open that was seen while waiting counts: several times what the opener needs to be seen in
	// the kernel's queue, or to open the file anew. Who is gone by then wants the lock no more.
	fresh = 10 * time.Second
)

// Contender is a process that wants a lock for long, beside others that want it too (proposal "Self-hosted kubelet").
type Contender struct {
	Path string
	// Yield is for who gives way: once it has the lock, it is told when another process wants it.
	Yield bool
	// Poke is how often the file is opened anew while waiting, so that one who gives way does; 0: it is opened once.
	// Not for who gives way itself: it could not tell its own opens from another's.
	Poke time.Duration
	// Notice, which may be nil, is told what the holder need not act on but its user should know: others could take the lock;
	// the file was replaced and the lock taken on the new one too, or cannot be; there is no inotify. It is called by Acquire,
	// and until Release by a goroutine of the claim.
	Notice func(error)
}

// Acquire waits for the lock, in the kernel's queue, until ctx ends. waiting, which may be nil, is called when it has to
// wait, and again when that changes, with a HeldError, which names the process that has the lock. The error is of opening
// the file, as with TryAcquire, ErrUnsafe, or ctx's.
//
// A file that is replaced meanwhile is still waited for, and then the new one is: who has the old one's lock may not know
// yet, and two would believe to have it.
func (c Contender) Acquire(ctx context.Context, waiting func(error)) (*Claim, error) {
	if c.Yield && c.Poke > 0 {
		return nil, fmt.Errorf("lock file %s: who gives way (Yield) must not open it anew (Poke)", c.Path)
	}
	doubts, unsafe := trust(c.Path)
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
		w := c.watch(file) // before the lock is asked for, so that no open falls between the two
		if err := c.queue(ctx, file, w, waiting); err != nil {
			w.close()
			_ = file.Close() // which gives the lock back, should it come after all
			return nil, err
		}
		_, unsafe = trust(c.Path) // what was made or changed since
		if unsafe == nil && isAt(c.Path, file) {
			return c.claim(file, w), nil
		}
		w.close()
		_ = unlock(file) // of use to nobody any more
	}
}

// watch has a file watched. Without inotify, which is scarce on some nodes, what it would tell is looked for.
func (c Contender) watch(file *os.File) *watch {
	w, err := newWatch(file, c.Yield)
	if err != nil {
		c.notice(fmt.Errorf("%w; looking every %s instead", err, lookEvery))
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
	said := ""
	say := func(err error) {
		if words := err.Error(); words != said && waiting != nil {
			said = words
			waiting(err)
		}
	}
	say(held)
	got := make(chan error, 1)
	go func() { got <- flockWait(file) }()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	var poke <-chan time.Time
	if c.Poke > 0 {
		ticker := time.NewTicker(c.Poke)
		defer ticker.Stop()
		poke = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-got:
			return err
		case <-poke:
			knock(c.Path)
		case <-look.C:
			w.look()
			// Who has it now? If nobody does (the kernel wakes the first in the queue, and that one the next) we do: it is
			// the same open file, so that it makes no difference who of us two gets the lock.
			held := flock(file)
			if !errors.Is(held, ErrHeld) {
				return held
			}
			if !isAt(c.Path, file) {
				held = fmt.Errorf("%w, on a file that was deleted or replaced since: to let others have it, it must end", held)
			}
			say(held)
		}
	}
}

// flockWait waits for the lock. If the file is closed meanwhile, that takes effect when it is back, and the lock is gone
// at once.
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

// knock opens the file at path, if there is one, so that those who watch it see that.
func knock(path string) {
	if fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
		_ = unix.Close(fd)
	}
}

// isAt tells whether file is the one at path.
func isAt(path string, file *os.File) bool {
	ours, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(ours, there)
}
