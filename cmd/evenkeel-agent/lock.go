package main

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

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/lockfile"
	"github.com/evenkeel/evenkeel/internal/program"
)

const (
	// agentLock is held by the agent that works on a directory.
	agentLock = "agent.lock"
	// kubeletLock is held by the kubelet that it runs.
	kubeletLock = "kubelet.lock"
	// poke is how often a waiting agent that is to stay lets one that gives way know.
	poke = 2 * time.Second
	// predecessorTime is how long an agent that has the node's lock waits for the one before to leave the directory: a
	// kubelet's time to stop, twice. It is hardly ever needed, for the lock is given back last.
	predecessorTime = time.Minute
)

// contention is the lock that says who may run this node's kubelet (proposal "Self-hosted kubelet").
type contention struct {
	flag, path string // whose flag it is; no path: nobody contends
	bootstrap  bool   // it is given up when another process opens the file
	mode       v1alpha1.RunMode
}

// contention returns the node's lock: the agent's --lock-file or the kubelet's own, which becomes the agent's, as the
// kubelet's --exit-on-lock-contention becomes --bootstrap: it is the same feature.
func (o *options) contention(k *component.Kubelet) (contention, error) {
	c := contention{flag: "--lock-file", path: o.lockFile, mode: v1alpha1.RunModeHost}
	c.bootstrap = o.bootstrap || k.ExitOnLockContention
	switch {
	case o.lockFile != "" && k.LockFile != "":
		return c, program.Usage("--lock-file is given twice: to the agent, and to its kubelet (%s), whose lock the agent takes: give one",
			k.LockFile)
	case o.lockFile != "" && !filepath.IsAbs(o.lockFile):
		return c, program.Usage("--lock-file must be an absolute path, not %q", o.lockFile)
	case o.lockFile != "":
		c.mode = v1alpha1.RunModeSelfHosted
	case k.LockFile != "":
		path, err := filepath.Abs(k.LockFile)
		if err != nil {
			return c, err
		}
		c.flag, c.path = "the kubelet's --lock-file", path
	case o.bootstrap:
		return c, program.Usage("--bootstrap needs --lock-file: without a lock nobody could ask this kubelet to leave")
	case k.ExitOnLockContention:
		return c, program.Usage("the kubelet's --exit-on-lock-contention needs a --lock-file, as it does without an agent")
	}
	if c.bootstrap {
		c.mode = v1alpha1.RunModeBootstrap
	}
	switch path := filepath.Clean(c.path); {
	case o.dynamicConfigDir == "" || c.path == "":
	case path == o.kubeletLock(c):
		return c, program.Usage("%s %s is the one that the agent gives it: choose another path", c.flag, c.path)
	case filepath.Dir(path) == filepath.Clean(o.dynamicConfigDir):
		return c, program.Usage("%s %s is in --dynamic-config-dir, where only who has the lock may write: choose another directory",
			c.flag, c.path)
	}
	return c, nil
}

// kubeletLock is what every kubelet of this node takes, so that the kernel keeps two apart whatever becomes of agents: a
// killed agent's lock is free before its kubelet has gone. Empty: there is no directory for it.
func (o *options) kubeletLock(c contention) string {
	switch {
	case o.dynamicConfigDir != "":
		return filepath.Join(o.dynamicConfigDir, kubeletLock)
	case c.path != "":
		return filepath.Clean(c.path) + ".kubelet"
	}
	return ""
}

// underLock is what is done while locks are held. Its context ends when they are to be given up.
type underLock func(context.Context) error

// hold has do run while this agent, and no other, may run the node's kubelet. Locks are given back in reverse, the
// node's last: who has that one may write, and start a kubelet.
func (o *options) hold(ctx context.Context, c contention, t teller, log *slog.Logger, do underLock) error {
	if c.path == "" {
		return o.holdDirectory(ctx, 0, t, log, do)
	}
	claim, err := c.acquire(ctx, t, log)
	if err != nil {
		return err
	}
	defer func() {
		if err := claim.Release(); err != nil {
			log.Error("cannot give the lock back; it is free when this process has ended", "err", err)
		}
	}()
	select {
	case <-claim.Wanted(): // somebody was in line behind us: there is nothing to stop yet
		log.Info("giving the lock on at once: another is to run this node", "why", claim.Why())
		return c.gaveWay(claim, nil)
	default:
	}
	ctx, letGo := context.WithCancel(ctx)
	defer letGo()
	go func() {
		select {
		case <-claim.Wanted():
			level := slog.LevelInfo
			if errors.Is(claim.Why(), lockfile.ErrLost) {
				level = slog.LevelError
			}
			log.Log(ctx, level, "stopping the kubelet: another is to run this node", "why", claim.Why())
			letGo()
		case <-ctx.Done():
		}
	}()
	err = o.holdDirectory(ctx, predecessorTime, t, log, do)
	select {
	case <-claim.Wanted():
	default:
		return err
	}
	return c.gaveWay(claim, err)
}

// gaveWay is how an agent ends that was told to let go of the lock; err is what it ended with.
func (c contention) gaveWay(claim *lockfile.Claim, err error) error {
	switch why := claim.Why(); {
	case errors.Is(why, lockfile.ErrLost):
		return program.Coded(exitLost, fmt.Errorf("%s: %w", c.flag, why))
	case errors.Is(err, context.Canceled):
		return nil // asked to leave before there was anything to stop
	}
	return err
}

// acquire waits for the node's lock.
func (c contention) acquire(ctx context.Context, t teller, log *slog.Logger) (*lockfile.Claim, error) {
	contender := lockfile.Contender{
		Path: c.path, Yield: c.bootstrap,
		Notice: func(err error) { log.Warn("the node's lock", "err", err) },
	}
	if !c.bootstrap {
		contender.Poke = poke
	}
	q := &queue{path: c.path, teller: t, log: log}
	waiting, served := context.WithCancel(ctx)
	var all sync.WaitGroup
	var once sync.Once
	begin := time.Now()
	claim, err := contender.Acquire(ctx, func(held error) {
		q.look(held)
		once.Do(func() { all.Go(func() { q.watch(waiting) }) })
	})
	served()
	all.Wait()
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, program.Coded(exitLock, fmt.Errorf("%s cannot be used: %w", c.flag, err))
	}
	t.starting("has the lock")
	log.Info("this agent has the node's lock", "file", c.path, "waited", time.Since(begin).Round(time.Millisecond), "bootstrap", c.bootstrap)
	return claim, nil
}

// holdDirectory has do run while no other agent works on the directory, and waits as long as patience for one that does.
func (o *options) holdDirectory(ctx context.Context, patience time.Duration, t teller, log *slog.Logger, do underLock) error {
	if o.dynamicConfigDir == "" {
		return do(ctx)
	}
	if _, err := os.Stat(o.dynamicConfigDir); errors.Is(err, fs.ErrNotExist) {
		err = atomicfile.MakeDir(atomicfile.OS{}, filepath.Clean(o.dynamicConfigDir), 0o700)
		if err != nil && !errors.Is(err, fs.ErrExist) { // another agent may be as fast
			return fmt.Errorf("--dynamic-config-dir: %w", err)
		}
	}
	path := filepath.Join(o.dynamicConfigDir, agentLock)
	lock, err := lockfile.TryAcquire(path)
	if errors.Is(err, lockfile.ErrHeld) && patience > 0 {
		t.starting("waiting for the agent before to end")
		log.Info("waiting for the agent before to end", "err", err, "atMost", patience)
		lock, err = tryFor(ctx, patience, path)
	}
	switch {
	case errors.Is(err, lockfile.ErrHeld):
		return program.Coded(exitHeld, fmt.Errorf("another agent works on %s: %w", o.dynamicConfigDir, err))
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("--dynamic-config-dir: %w", err)
	}
	defer func() { _ = lock.Release() }() // the process ends
	return do(ctx)
}

// tryFor tries a lock until it has it, or time is up; the error is then the last attempt's, or ctx's.
func tryFor(ctx context.Context, patience time.Duration, path string) (*lockfile.Lock, error) {
	const pace = 100 * time.Millisecond
	up, tick := time.NewTimer(patience), time.NewTicker(pace)
	defer up.Stop()
	defer tick.Stop()
	for {
		lock, err := lockfile.TryAcquire(path)
		if !errors.Is(err, lockfile.ErrHeld) {
			return lock, err
		}
		select {
		case <-tick.C:
		case <-up.C:
			return nil, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
