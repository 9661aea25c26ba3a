package lockfile

import (
	"context"
	"errors"
	"time"
)

// ErrLost says that the file of a lock was replaced, and that another process has the lock on the new one.
var ErrLost = errors.New("the lock file was replaced, and another process has the lock on the new one")

// Contender is a process that wants a lock for long, beside others that want it too (proposal "Self-hosted kubelet").
type Contender struct {
	Path string
	// Yield is for who gives way: once it has the lock, it is told when another process opens the file.
	Yield bool
	// Poke is how often the file is opened anew while waiting, so that one who gives way does; 0: it is opened once.
	Poke time.Duration
}

// Claim is a lock that a Contender has.
type Claim struct{}

// Acquire waits for the lock, in the kernel's queue, until ctx ends. waiting is called when it has to wait, and again when
// the holder changes, with ErrHeld, which names the process that has it. The error is of opening the file, as with
// TryAcquire, or ctx's.
func (c Contender) Acquire(ctx context.Context, waiting func(error)) (*Claim, error) {
	return nil, errors.New("not yet")
}

// Wanted is closed when the holder should let go: another process wants the lock (Yield), or ErrLost. Why says which.
func (c *Claim) Wanted() <-chan struct{} { return nil }

// Why says why Wanted is closed: which file was opened, or ErrLost.
func (c *Claim) Why() error { return nil }

// Release gives the lock back; again, it does nothing.
func (c *Claim) Release() error { return nil }
