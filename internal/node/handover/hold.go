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

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/lockfile"
)

const (
	// directoryLock is held by the agent that works on a directory.
	directoryLock = "agent.lock"
	// kubeletLock is held by the kubelet that it runs.
	kubeletLock = "kubelet.lock"
	// poke is how often a waiting agent that is to stay lets one that gives way know.
	poke = 2 * time.Second
	// predecessorTime is how long an agent that has the node's lock waits for the one before to leave the directory: a
	// kubelet's time to stop, twice. It is hardly ever needed, for the lock is given back last.
	predecessorTime = time.Minute
)

// Lock is the lock that says who may run this node's kubelet (proposal "Self-hosted kubelet").
type Lock struct {
	Flag, Path string // whose flag it is; no path: nobody contends
	Bootstrap  bool   // it is given up when another process opens the file
	Mode       v1alpha1.RunMode
}

// Flags are the agent's flags about the node's lock.
type Flags struct {
	LockFile  string // --lock-file
	Bootstrap bool   // --bootstrap
	Dir       string // --dynamic-config-dir
}

// Lock returns the node's lock: the agent's --lock-file or the kubelet's own, which becomes the agent's, as the
// kubelet's --exit-on-lock-contention becomes --bootstrap: it is the same feature.
func (f Flags) Lock(k *component.Kubelet) (Lock, error) {
	c := Lock{Flag: "--lock-file", Path: f.LockFile, Mode: v1alpha1.RunModeHost}
	c.Bootstrap = f.Bootstrap || k.ExitOnLockContention
	switch {
	case f.LockFile != "" && k.LockFile != "":
		return c, fmt.Errorf("--lock-file is given twice: to the agent, and to its kubelet (%s), whose lock the agent takes: give one",
			k.LockFile)
	case f.LockFile != "" && !filepath.IsAbs(f.LockFile):
		return c, fmt.Errorf("--lock-file must be an absolute path, not %q", f.LockFile)
	case f.LockFile != "":
		c.Mode = v1alpha1.RunModeSelfHosted
	case k.LockFile != "":
		path, err := filepath.Abs(k.LockFile)
		if err != nil {
			return c, err
		}
		c.Flag, c.Path = "the kubelet's --lock-file", path
	case f.Bootstrap:
		return c, fmt.Errorf("--bootstrap needs --lock-file: without a lock nobody could ask this kubelet to leave")
	case k.ExitOnLockContention:
		return c, fmt.Errorf("the kubelet's --exit-on-lock-contention needs a --lock-file, as it does without an agent")
	}
	if c.Bootstrap {
		c.Mode = v1alpha1.RunModeBootstrap
	}
	switch path := filepath.Clean(c.Path); {
	case f.Dir == "" || c.Path == "":
	case path == KubeletLock(f.Dir, c):
		return c, fmt.Errorf("%s %s is the one that the agent gives it: choose another path", c.Flag, c.Path)
	case filepath.Dir(path) == filepath.Clean(f.Dir):
		return c, fmt.Errorf("%s %s is in --dynamic-config-dir, where only who has the lock may write: choose another directory",
			c.Flag, c.Path)
	}
	return c, nil
}

// DirectoryLock is the lock file of the agent that works on a --dynamic-config-dir.
func DirectoryLock(dir string) string { return filepath.Join(dir, directoryLock) }

// KubeletLock is what every kubelet of this node takes, so that the kernel keeps two apart whatever becomes of agents: a
// killed agent's lock is free before its kubelet has gone. Empty: there is no directory for it.
func KubeletLock(dir string, c Lock) string {
	switch {
	case dir != "":
		return filepath.Join(dir, kubeletLock)
	case c.Path != "":
		return filepath.Clean(c.Path) + ".kubelet"
	}
	return ""
}

// Holder takes the locks of one agent.
type Holder struct {
	Lock    Lock
	Dir     string // --dynamic-config-dir; empty: the agent has none
	Service *Service
	Log     *slog.Logger
}

// Hold has do run while this agent, and no other, may run the node's kubelet; do's context ends when the locks are to be
// given up. Locks are given back in reverse, the node's last: who has that one may write, and start a kubelet.
func (h Holder) Hold(ctx context.Context, do func(context.Context) error) error {
	c, log := h.Lock, h.Log
	if c.Path == "" {
		return h.holdDirectory(ctx, 0, do)
	}
	claim, err := h.acquire(ctx)
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
	err = h.holdDirectory(ctx, predecessorTime, do)
	select {
	case <-claim.Wanted():
	default:
		return err
	}
	return c.gaveWay(claim, err)
}

// gaveWay is how an agent ends that was told to let go of the lock; err is what it ended with.
func (c Lock) gaveWay(claim *lockfile.Claim, err error) error {
	switch why := claim.Why(); {
	case errors.Is(why, lockfile.ErrLost):
		return fail(Lost, fmt.Errorf("%s: %w", c.Flag, why))
	case errors.Is(err, context.Canceled):
		return nil // asked to leave before there was anything to stop
	}
	return err
}

// acquire waits for the node's lock.
func (h Holder) acquire(ctx context.Context) (*lockfile.Claim, error) {
	c, log := h.Lock, h.Log
	contender := lockfile.Contender{
		Path: c.Path, Yield: c.Bootstrap,
		Notice: func(err error) { log.Warn("the node's lock", "err", err) },
	}
	if !c.Bootstrap {
		contender.Poke = poke
	}
	q := &queue{path: c.Path, service: h.Service, log: log}
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
		return nil, fail(Unusable, fmt.Errorf("%s cannot be used: %w", c.Flag, err))
	}
	h.Service.Starting("has the lock")
	log.Info("this agent has the node's lock", "file", c.Path, "waited", time.Since(begin).Round(time.Millisecond), "bootstrap", c.Bootstrap)
	return claim, nil
}

// holdDirectory has do run while no other agent works on the directory, and waits as long as patience for one that does.
func (h Holder) holdDirectory(ctx context.Context, patience time.Duration, do func(context.Context) error) error {
	if h.Dir == "" {
		return do(ctx)
	}
	if _, err := os.Stat(h.Dir); errors.Is(err, fs.ErrNotExist) {
		err = atomicfile.MakeDir(atomicfile.OS{}, filepath.Clean(h.Dir), 0o700)
		if err != nil && !errors.Is(err, fs.ErrExist) { // another agent may be as fast
			return fmt.Errorf("--dynamic-config-dir: %w", err)
		}
	}
	path := DirectoryLock(h.Dir)
	lock, err := lockfile.TryAcquire(path)
	if errors.Is(err, lockfile.ErrHeld) && patience > 0 {
		h.Service.Starting("waiting for the agent before to end")
		h.Log.Info("waiting for the agent before to end", "err", err, "atMost", patience)
		lock, err = tryFor(ctx, patience, path)
	}
	switch {
	case errors.Is(err, lockfile.ErrHeld):
		return fail(DirectoryHeld, fmt.Errorf("another agent works on %s: %w", h.Dir, err))
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
