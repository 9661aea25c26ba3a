// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/lockfile"
)

const (
	// knockInterval is how often a waiting agent without --bootstrap opens the
	// lock file, which requests the node from a bootstrap kubelet.
	knockInterval = 2 * time.Second
	// predecessorTimeout is how long an agent that has the node's lock waits
	// for its predecessor to release the directory: twice the time that a
	// kubelet has to stop. The wait is rarely needed, because the node's lock
	// is released last.
	predecessorTimeout = time.Minute
)

// Holder takes the locks of one agent.
type Holder struct {
	Lock    Lock
	Dir     string // --dynamic-config-dir; empty: the agent has none
	Service *Service
	Log     *slog.Logger
}

// Hold waits for the locks, and calls run while this agent, and no other, may
// run the node's kubelet. The context of run ends when the node's lock must be
// released. Hold returns the error of run, an Error, or that of ctx.
//
// The locks are released in reverse order, the node's last: its holder may
// write to the directory, and start a kubelet.
func (h Holder) Hold(ctx context.Context, run func(context.Context) error) error {
	if h.Lock.Path == "" {
		return h.holdDirectory(ctx, 0, run)
	}

	claim, err := h.acquire(ctx)
	if err != nil {
		return err
	}

	defer func() {
		if err := claim.Release(); err != nil {
			h.Log.Error("cannot release the node's lock; it is released when this process ends", "err", err)
		}
	}()
	if why := claim.Why(); why != nil { // another process was behind this one in the queue: no kubelet runs yet
		h.Log.Info("releasing the lock: another process requested the node", "why", why)
		return h.released(claim, nil)
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-claim.Contended():
			level, message := slog.LevelInfo, "stopping the kubelet: another process requested the node"
			if errors.Is(claim.Why(), lockfile.ErrLost) {
				level, message = slog.LevelError, "stopping the kubelet: another process has the node's lock"
			}

			h.Log.Log(ctx, level, message, "why", claim.Why())
			cancel()
		case <-ctx.Done():
		}
	}()

	return h.released(claim, h.holdDirectory(ctx, predecessorTimeout, run))
}

// released returns the error of an agent that releases the node's lock; err is
// the error of what it ran.
func (h Holder) released(claim *lockfile.Claim, err error) error {
	switch why := claim.Why(); {
	case errors.Is(why, lockfile.ErrLost):
		return fail(Lost, fmt.Errorf("%s: %w", h.Lock.Flag, why))
	case why != nil && errors.Is(err, context.Canceled):
		return nil // another process requested the node before this one started a kubelet
	}

	return err
}

// acquire waits for the node's lock.
func (h Holder) acquire(ctx context.Context) (*lockfile.Claim, error) {
	contender := lockfile.Contender{
		Path: h.Lock.Path, Yield: h.Lock.Bootstrap,
		Notice: func(err error) { h.Log.Warn("the node's lock", "err", err) },
	}
	if !h.Lock.Bootstrap {
		contender.ReopenEvery = knockInterval
	}

	q := &queue{path: h.Lock.Path, service: h.Service, log: h.Log}
	waiting, acquired := context.WithCancel(ctx)
	var watch sync.WaitGroup
	var once sync.Once
	begin := time.Now()
	claim, err := contender.Acquire(ctx, func(held error) {
		q.report(held)
		once.Do(func() { watch.Go(func() { q.watch(waiting) }) })
	})
	acquired()
	watch.Wait()
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, fail(Unusable, fmt.Errorf("%s cannot be used: %w", h.Lock.Flag, err))
	}

	h.Service.Starting("has the lock")
	h.Log.Info("this agent has the node's lock", "file", h.Lock.Path, "waited", time.Since(begin).Round(time.Millisecond), "bootstrap",
		h.Lock.Bootstrap)

	return claim, nil
}

// holdDirectory calls run while no other agent works on the directory. It waits
// at most timeout for an agent that does.
func (h Holder) holdDirectory(ctx context.Context, timeout time.Duration, run func(context.Context) error) error {
	if h.Dir == "" {
		return run(ctx)
	}

	if _, err := os.Stat(h.Dir); errors.Is(err, fs.ErrNotExist) {
		if err := atomicfile.MakeDir(atomicfile.OS{}, filepath.Clean(h.Dir), 0o700); err != nil {
			return fmt.Errorf("--dynamic-config-dir: %w", err)
		}
	}

	path := checkpoint.AgentLock(h.Dir)
	lock, err := lockfile.TryAcquire(path)
	if errors.Is(err, lockfile.ErrHeld) && timeout > 0 {
		h.Service.Starting("waiting for the previous agent to end")
		h.Log.Info("waiting for the previous agent to end", "err", err, "atMost", timeout)
		_ = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, timeout, false, func(context.Context) (bool, error) {
			lock, err = lockfile.TryAcquire(path)
			return !errors.Is(err, lockfile.ErrHeld), nil
		}) // err has the cause
	}

	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, lockfile.ErrHeld):
		return fail(DirectoryHeld, fmt.Errorf("another agent works on %s: %w", h.Dir, err))
	case err != nil:
		return fmt.Errorf("--dynamic-config-dir: %w", err)
	}

	defer func() { _ = lock.Release() }() // the end of the process releases it, too

	return run(ctx)
}
