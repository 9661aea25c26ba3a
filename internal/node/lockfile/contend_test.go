// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package lockfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// claimed acquires a free lock in this process.
func claimed(t *testing.T, c Contender) *Claim {
	t.Helper()
	claim, err := c.Acquire(t.Context(), func(err error) { t.Errorf("waits: %v", err) })
	assert.NoError(t, err)
	t.Cleanup(func() { _ = claim.Release() })

	return claim
}

// contended waits until the holder is told to release the lock, and checks why.
func contended(t *testing.T, claim *Claim, kind error, words ...string) {
	t.Helper()
	select {
	case <-claim.Contended():
	case <-time.After(patience):
		t.Fatal("the holder was not told to release the lock")
	}

	wantError(t, claim.Why(), kind, words...)
}

// notContended checks that the holder is not told to release the lock at its
// next check.
func notContended(t *testing.T, claim *Claim) {
	t.Helper()
	select {
	case <-claim.Contended():
		t.Errorf("contended: %v", claim.Why())
	case <-time.After(checkInterval + checkInterval/2): // nothing to poll for: no change is expected
	}

	assert.OK(t, claim.Why(), "why")
}

func TestWaiterGetsTheLockWhenItsHolderEnds(t *testing.T) {
	path := lockPath(t)
	pid, kill := startHolder(t, path)
	waiter := startPeer(t, Contender{Path: path})
	waiter.hears("waiting", path, ErrHeld.Error(), fmt.Sprintf("by process %d (lockfile.test)", pid))
	queued(t, waiter.pid()) // in the kernel, which gives the lock to the waiter without polling
	waiter.saidNothingOf("held")
	kill()
	waiter.hears("held")
	assert.Is(t, assert.Err(TryAcquire(path)), ErrHeld, "the lock is not held")
	waiter.release()
	acquire(t, path)
}

func TestWaiterIsToldOfAnotherHolder(t *testing.T) {
	path := lockPath(t)
	first := startHolding(t, Contender{Path: path})
	waiter := startPeer(t, Contender{Path: path})
	waiter.hears("waiting", fmt.Sprint(first.pid()))
	queued(t, waiter.pid())
	waiter.signal(unix.SIGSTOP) // so that it cannot be the next
	second := startPeer(t, Contender{Path: path})
	second.hears("waiting", fmt.Sprint(first.pid()))
	first.kill()
	second.hears("held")
	waiter.signal(unix.SIGCONT)
	waiter.hears("waiting", fmt.Sprint(second.pid()))
	waiter.saidNothingOf("held")
}

func TestWaiterIsToldOncePerHolder(t *testing.T) {
	t.Parallel()
	path := lockPath(t)
	startHolder(t, path)
	ctx, cancel := context.WithTimeout(t.Context(), 2*checkInterval+checkInterval/2)
	defer cancel()
	said := 0
	_, err := Contender{Path: path}.Acquire(ctx, func(error) { said++ })
	assert.That(t, errors.Is(err, context.DeadlineExceeded) && said == 1, "%v, and said %d times", err, said)
}

func TestCancelledWaiterLeavesTheLockToOthers(t *testing.T) {
	path := lockPath(t)
	_, kill := startHolder(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Contender{Path: path}.Acquire(ctx, func(error) {
		go func() {
			queued(t, os.Getpid())
			cancel()
		}()
	})
	assert.Must(t, errors.Is(err, context.Canceled), "got %v", err)
	assert.Is(t, assert.Err((Contender{Path: path}).Acquire(ctx, nil)), context.Canceled, "with a context that has ended")
	kill()
	assert.Eventually(t, "the lock is free", func() bool {
		lock, err := TryAcquire(path)
		return err == nil && lock.Release() == nil
	})
}

func TestYieldingHolderIsToldOfAnOpen(t *testing.T) {
	t.Parallel()
	path := lockPath(t)
	claim := claimed(t, Contender{Path: path, Yield: true})
	notContended(t, claim) // neither its own open nor Held counts
	assert.That(t, Held(path), "not held")
	notContended(t, claim)
	touchOpen(t, path)
	contended(t, claim, ErrContended, path, "was opened")
}

// An open during the wait counts for a while: the process that opened the file
// may not have entered the queue yet.
func TestAnOpenDuringTheWaitCountsForAWhile(t *testing.T) {
	localcluster.SkipShort(t)
	for _, old := range []bool{false, true} {
		t.Run(fmt.Sprintf("old %t", old), func(t *testing.T) {
			t.Parallel()
			path := lockPath(t)
			_, kill := startHolder(t, path)
			waiter := startPeer(t, Contender{Path: path, Yield: true})
			waiter.hears("waiting")
			touchOpen(t, path)
			if old {
				<-time.After(openMemory + 2*checkInterval) // nothing to poll for: this is about time
			}

			kill()
			waiter.hears("held")
			if old {
				<-time.After(checkInterval + checkInterval/2) // as above
				waiter.saidNothingOf("contended")
			} else {
				waiter.hears("contended", path, ErrContended.Error(), "was opened")
			}
		})
	}
}

func TestPokeOpensTheFileAgain(t *testing.T) {
	t.Parallel()
	path := lockPath(t)
	holder := claimed(t, Contender{Path: path})
	for _, tt := range []struct {
		reopen time.Duration
		again  bool
	}{{50 * time.Millisecond, true}, {0, false}} {
		waiter := startWaiting(t, Contender{Path: path, ReopenEvery: tt.reopen})
		w := assert.Value(newWatch(holder.files[0], true))(t)
		for n := range 3 {
			select {
			case events := <-w.events():
				assert.That(t, events&unix.IN_OPEN != 0 && tt.again, "every %s: events %#x", tt.reopen, events)
			case <-time.After(checkInterval + checkInterval/2):
				assert.That(t, !tt.again, "every %s: not opened a %d. time", tt.reopen, n)
			}

			if !tt.again {
				break
			}
		}

		w.close()
		waiter.kill()
	}
}

func TestYieldExcludesPoke(t *testing.T) {
	path := lockPath(t)
	_, err := Contender{Path: path, Yield: true, ReopenEvery: time.Second}.Acquire(t.Context(), nil)
	assert.That(t, err != nil && strings.Contains(err.Error(), "exclude each other") && strings.Contains(err.Error(), path), "got %v", err)
	assert.Is(t, assert.Err(os.Stat(path)), os.ErrNotExist, "the file was made")
}

func TestStoppedWaiterDoesNotBlockOthers(t *testing.T) {
	path := lockPath(t)
	_, kill := startHolder(t, path)
	var stopped []*peer
	for range 2 {
		p := startWaiting(t, Contender{Path: path})
		p.signal(unix.SIGSTOP)
		stopped = append(stopped, p)
	}

	next := startWaiting(t, Contender{Path: path}) // behind them; the kernel wakes only the first
	kill()
	next.hears("held")
	for _, p := range stopped {
		p.signal(unix.SIGCONT)
		queued(t, p.pid())
		p.saidNothingOf("held")
	}

	next.release() // although its waiting thread may still wait
	stopped[0].kill()
	stopped[1].hears("held")
}

func TestWaitersAreSeenWithoutInotify(t *testing.T) {
	path := lockPath(t)
	_, kill := startHolder(t, path)
	bootstrap := startPeer(t, Contender{Path: path, Yield: true}, starveVar+"=1")
	bootstrap.hears("notice", path, "inotify: too many open files", "checking every 2s instead")
	bootstrap.hears("waiting", "by another process") // it cannot open /proc/locks
	queued(t, bootstrap.pid())
	kill()
	bootstrap.hears("held")
	bootstrap.saidNothingOf("contended")
	waiter := startPeer(t, Contender{Path: path})
	bootstrap.hears("contended", fmt.Sprintf("process %d (", waiter.pid()))
}

func TestWaiterIsSeenOnEveryFileSystem(t *testing.T) {
	for _, kind := range []string{"tmpfs", "overlay"} {
		t.Run(kind, func(t *testing.T) {
			path := filepath.Join(mounted(t, kind), "lock")
			holder := startHolding(t, Contender{Path: path, Yield: true})
			_, err := TryAcquire(path)
			wantError(t, err, ErrHeld, fmt.Sprintf("process %d (", holder.pid()))
			holder.hears("contended")
			assert.That(t, Held(path), "not held")
			holder.kill()
			claim := claimed(t, Contender{Path: path})
			waiter := startPeer(t, Contender{Path: path})
			assert.Eventually(t, "the waiter is seen", func() bool { return len(waitersFor(claim.files[0])) == 1 })
			assert.Equal(t, waitersFor(claim.files[0])[0], waiter.pid(), "process waits")
			assert.That(t, HasWaiters(path), "not waited for")
			waiter.kill()
			assert.Eventually(t, "no waiter is left", func() bool { return !HasWaiters(path) })
		})
	}
}

// mounted returns a new directory on a file system of this kind. A file in an
// overlay has another device than its lower file.
func mounted(t *testing.T, kind string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can mount")
	}

	mount := func(kind, options string, flags uintptr) string {
		dir := t.TempDir()
		assert.NoError(t, unix.Mount(kind, dir, kind, flags, options))
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		return dir
	}
	if kind == "read-only" {
		return mount("tmpfs", "size=64k", unix.MS_RDONLY)
	}

	below := mount("tmpfs", "size=1m", 0)
	if kind == "tmpfs" {
		return below
	}

	for _, dir := range []string{"lower", "upper", "work"} {
		assert.NoError(t, os.Mkdir(filepath.Join(below, dir), 0o700))
	}

	return mount("overlay", fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", below), 0)
}

// ran returns the processor time of all threads of a process, and how often
// they have waited for something: a busy machine interrupts them more often.
func ran(t *testing.T, pid int) (cpu time.Duration, waits int) {
	t.Helper()
	for _, thread := range assert.Value(procfs.AllThreads(pid))(t) {
		stat := assert.Value(thread.Schedstat())(t)
		status := assert.Value(thread.NewStatus())(t)
		cpu, waits = cpu+time.Duration(stat.RunningNanoseconds), waits+int(status.VoluntaryCtxtSwitches)
	}

	return cpu, waits
}

func TestWaitingAndHoldingAreCheap(t *testing.T) {
	localcluster.SkipShort(t)
	path := lockPath(t)
	holder := startHolding(t, Contender{Path: path})
	waiter := startWaiting(t, Contender{Path: path, ReopenEvery: 2 * time.Second})
	<-time.After(checkInterval / 2) // after the start of the process
	for name, pid := range map[string]int{"waiting": waiter.pid(), "holding": holder.pid()} {
		isCheap(t, name, pid)
	}
}

// isCheap requires one period in which a process does almost nothing. There are
// several tries, because Go's own threads have work now and then.
func isCheap(t *testing.T, name string, pid int) {
	t.Helper()
	const looks, tries = 4, 5
	for range tries {
		before, timesBefore := ran(t, pid)
		<-time.After(looks * checkInterval)
		cpu, times := ran(t, pid)
		cpu, times = cpu-before, times-timesBefore
		t.Logf("%s for %s: %s of CPU, woken %d times", name, looks*checkInterval, cpu, times)
		if cpu <= 10*time.Millisecond && times <= 50*looks { // a tick; some threads of Go's, a few times each
			return
		}
	}

	t.Errorf("%s: always more than a tick of CPU, or more than %d wakeups", name, 50*looks)
}
