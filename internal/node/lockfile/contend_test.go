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

	"golang.org/x/sys/unix"
)

// claimed acquires a lock that is free, in this process.
func claimed(t *testing.T, c Contender) *Claim {
	t.Helper()
	claim, err := c.Acquire(t.Context(), func(err error) { t.Errorf("waits: %v", err) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = claim.Release() })
	return claim
}

// wanted waits until the holder is told to let go, and checks why.
func wanted(t *testing.T, claim *Claim, kind error, words ...string) {
	t.Helper()
	select {
	case <-claim.Wanted():
	case <-time.After(patience):
		t.Fatal("the holder was never told")
	}
	wantError(t, claim.Why(), kind, words...)
}

// notWanted checks that nobody wants the lock after the holder has looked again.
func notWanted(t *testing.T, claim *Claim) {
	t.Helper()
	select {
	case <-claim.Wanted():
		t.Errorf("wanted: %v", claim.Why())
	case <-time.After(lookEvery + lookEvery/2): // nothing to poll for: it is to stay as it is
	}
	if why := claim.Why(); why != nil {
		t.Errorf("why: %v", why)
	}
}

func TestAWaiterHasTheLockAsSoonAsItsHolderIsGone(t *testing.T) {
	path := lockPath(t)
	pid, kill := startHolder(t, path)
	waiter := startPeer(t, Contender{Path: path})
	waiter.hears("waiting", path, ErrHeld.Error(), fmt.Sprintf("by process %d (lockfile.test)", pid))
	queued(t, waiter.pid())
	waiter.saidNothingOf("held")
	begin := time.Now()
	kill()
	waiter.hears("held")
	if took := time.Since(begin); took >= lookEvery {
		t.Errorf("took %s: it is looked for and not waited for", took)
	}
	if _, err := TryAcquire(path); !errors.Is(err, ErrHeld) {
		t.Errorf("the lock is not held: %v", err)
	}
	waiter.release()
	acquire(t, path)
}

func TestAWaiterIsToldWhenAnotherHasTheLock(t *testing.T) {
	path := lockPath(t)
	first := startPeer(t, Contender{Path: path})
	first.hears("held")
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

func TestAWaiterSaysItOnceForOneHolder(t *testing.T) {
	t.Parallel()
	path := lockPath(t)
	startHolder(t, path)
	ctx, cancel := context.WithTimeout(t.Context(), 2*lookEvery+lookEvery/2)
	defer cancel()
	said := 0
	_, err := Contender{Path: path}.Acquire(ctx, func(error) { said++ })
	if !errors.Is(err, context.DeadlineExceeded) || said != 1 {
		t.Errorf("%v, and said %d times", err, said)
	}
}

func TestAWaiterThatIsCancelledReturnsAtOnceAndLeavesTheLockToOthers(t *testing.T) {
	path := lockPath(t)
	_, kill := startHolder(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Contender{Path: path}.Acquire(ctx, func(error) {
		go func() {
			queued(t, os.Getpid())
			cancel()
		}()
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if _, err := (Contender{Path: path}).Acquire(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	kill()
	eventually(t, "the lock is free", func() bool {
		lock, err := TryAcquire(path)
		if err != nil {
			return false
		}
		return lock.Release() == nil
	})
}

func TestAClaimIsReleasedOnce(t *testing.T) {
	path := lockPath(t)
	claim := claimed(t, Contender{Path: path, Yield: true})
	for range 2 { // the second time it does nothing
		if err := claim.Release(); err != nil {
			t.Fatal(err)
		}
	}
	acquire(t, path)
	if claim.Why() != nil {
		t.Errorf("why: %v", claim.Why())
	}
}

func TestWhoGivesWayIsToldOfAnOpen(t *testing.T) {
	t.Parallel()
	path := lockPath(t)
	claim := claimed(t, Contender{Path: path, Yield: true})
	notWanted(t, claim) // its own open does not count, nor does a look at who has it
	if !Held(path) {
		t.Error("not held")
	}
	notWanted(t, claim)
	touchOpen(t, path)
	wanted(t, claim, ErrWanted, path, "was opened")
}

func TestWhoDoesNotGiveWayIsToldNothing(t *testing.T) {
	t.Parallel()
	path := lockPath(t)
	claim := claimed(t, Contender{Path: path})
	touchOpen(t, path)
	other := startPeer(t, Contender{Path: path, Poke: 50 * time.Millisecond})
	queued(t, other.pid())
	notWanted(t, claim)
}

func TestAWaiterThatOpenedBeforeTheHolderWatchedIsSeenAtOnce(t *testing.T) {
	path := lockPath(t)
	_, kill := startHolder(t, path)
	early := startPeer(t, Contender{Path: path})
	queued(t, early.pid())
	early.signal(unix.SIGSTOP) // so that it waits on, whoever gets the lock
	bootstrap := startPeer(t, Contender{Path: path, Yield: true})
	queued(t, bootstrap.pid())
	kill()
	bootstrap.hears("held")
	early.signal(unix.SIGCONT) // the kernel shows it when it has asked again
	bootstrap.hears("wanted", path, ErrWanted.Error(), fmt.Sprintf("process %d (", early.pid()))
	bootstrap.kill()
	early.hears("held")
}

func TestAnOpenWhileWaitingCounts(t *testing.T) {
	path := lockPath(t)
	_, kill := startHolder(t, path)
	bootstrap := startPeer(t, Contender{Path: path, Yield: true})
	queued(t, bootstrap.pid())
	touchOpen(t, path)
	kill()
	bootstrap.hears("held")
	bootstrap.hears("wanted", "was opened")
}

func TestAnOpenOfLongAgoCountsNoMore(t *testing.T) {
	t.Parallel()
	path := lockPath(t)
	_, kill := startHolder(t, path)
	waits := make(chan struct{})
	got := make(chan *Claim, 1)
	go func() {
		claim, err := Contender{Path: path, Yield: true}.Acquire(t.Context(), func(error) { close(waits) })
		if err != nil {
			t.Error(err)
		}
		got <- claim
	}()
	<-waits
	touchOpen(t, path)
	<-time.After(fresh + 2*lookEvery) // nothing to poll for: time is what it is about
	kill()
	claim := <-got
	notWanted(t, claim)
	if err := claim.Release(); err != nil {
		t.Error(err)
	}
}

func TestAWaiterMakesOneWhoGivesWayLeave(t *testing.T) {
	path := lockPath(t)
	bootstrap := startPeer(t, Contender{Path: path, Yield: true})
	bootstrap.hears("held")
	hosted := startPeer(t, Contender{Path: path, Poke: 50 * time.Millisecond})
	bootstrap.hears("wanted", path, ErrWanted.Error())
	hosted.saidNothingOf("held")
	bootstrap.release()
	hosted.hears("held")
}

func TestAWaiterOpensTheFileAnewAsOftenAsItIsTold(t *testing.T) {
	t.Parallel()
	path := lockPath(t)
	holder := claimed(t, Contender{Path: path})
	for _, tt := range []struct {
		poke time.Duration
		anew bool
	}{{50 * time.Millisecond, true}, {0, false}} {
		waiter := startPeer(t, Contender{Path: path, Poke: tt.poke})
		queued(t, waiter.pid())
		w, err := newWatch(holder.files[0], true)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 3 {
			select {
			case events := <-w.events():
				if events&unix.IN_OPEN == 0 || !tt.anew {
					t.Errorf("every %s: events %#x", tt.poke, events)
				}
			case <-time.After(lookEvery + lookEvery/2):
				if tt.anew {
					t.Errorf("every %s: not opened a %d. time", tt.poke, n)
				}
			}
			if !tt.anew {
				break
			}
		}
		w.close()
		waiter.kill()
	}
}

func TestWhoGivesWayMustNotOpenTheFileAnew(t *testing.T) {
	path := lockPath(t)
	_, err := Contender{Path: path, Yield: true, Poke: time.Second}.Acquire(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "must not open it anew") || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file was made: %v", err)
	}
}

func TestAStoppedWaiterKeepsTheLockFromNobody(t *testing.T) {
	path := lockPath(t)
	_, kill := startHolder(t, path)
	var stopped []*peer
	for range 2 {
		p := startPeer(t, Contender{Path: path})
		queued(t, p.pid())
		p.signal(unix.SIGSTOP)
		stopped = append(stopped, p)
	}
	next := startPeer(t, Contender{Path: path})
	queued(t, next.pid()) // behind them, and the kernel wakes the first alone
	kill()
	next.hears("held")
	for _, p := range stopped {
		p.signal(unix.SIGCONT)
		queued(t, p.pid())
		p.saidNothingOf("held")
	}
	next.release() // though the thread of it that waited may wait still
	stopped[0].kill()
	stopped[1].hears("held")
}

func TestAKilledWaiterKeepsTheLockFromNobody(t *testing.T) {
	path := lockPath(t)
	_, kill := startHolder(t, path)
	var waiters []*peer
	for range 3 {
		p := startPeer(t, Contender{Path: path})
		queued(t, p.pid())
		waiters = append(waiters, p)
	}
	waiters[0].kill()
	waiters[1].kill()
	kill()
	waiters[2].hears("held")
}

func TestWithoutInotifyWaitersAreStillSeen(t *testing.T) {
	path := lockPath(t)
	_, kill := startHolder(t, path)
	bootstrap := startPeer(t, Contender{Path: path, Yield: true}, starveVar+"=1")
	bootstrap.hears("notice", path, "inotify: too many open files", "looking every 2s instead")
	bootstrap.hears("waiting", "by another process") // it cannot look who
	queued(t, bootstrap.pid())
	kill()
	bootstrap.hears("held")
	bootstrap.saidNothingOf("wanted")
	waiter := startPeer(t, Contender{Path: path})
	bootstrap.hears("wanted", fmt.Sprintf("process %d (", waiter.pid()))
}

func TestAWaiterIsSeenWhateverTheFileSystemCallsTheFile(t *testing.T) {
	for _, kind := range []string{"tmpfs", "overlay"} {
		t.Run(kind, func(t *testing.T) {
			path := filepath.Join(mounted(t, kind), "lock")
			holder := startPeer(t, Contender{Path: path, Yield: true})
			holder.hears("held")
			_, err := TryAcquire(path)
			wantError(t, err, ErrHeld, fmt.Sprintf("process %d (", holder.pid()))
			holder.hears("wanted")
			if !Held(path) {
				t.Error("not held")
			}
			holder.kill()
			claim := claimed(t, Contender{Path: path})
			waiter := startPeer(t, Contender{Path: path})
			eventually(t, "the waiter is seen", func() bool { return len(waiters(claim.files[0])) == 1 })
			if pid := waiters(claim.files[0])[0]; pid != waiter.pid() {
				t.Errorf("process %d waits, want %d", pid, waiter.pid())
			}
			if !Waited(path) {
				t.Error("not waited for")
			}
			waiter.kill()
			eventually(t, "nobody waits", func() bool { return !Waited(path) })
		})
	}
}

// mounted returns a new directory of a file system of this kind. An overlay's lower file has another device than it.
func mounted(t *testing.T, kind string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs to mount")
	}
	mount := func(kind, options string) string {
		dir := t.TempDir()
		if err := unix.Mount(kind, dir, kind, 0, options); err != nil {
			t.Skipf("cannot mount: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		return dir
	}
	below := mount("tmpfs", "size=1m")
	if kind == "tmpfs" {
		return below
	}
	for _, dir := range []string{"lower", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(below, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return mount("overlay", fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", below))
}

func TestOnlyThoseWhoWaitForThisFileAreWaiters(t *testing.T) {
	const locks = `1: FLOCK  ADVISORY  WRITE 11 fd:01:7 0 EOF
1: -> FLOCK  ADVISORY  WRITE 12 fd:01:7 0 EOF
1:  -> FLOCK  ADVISORY  WRITE 13 fd:01:7 0 EOF
1: -> FLOCK  ADVISORY  WRITE 99 fd:01:7 0 EOF
1: -> FLOCK  ADVISORY  WRITE -1 fd:01:7 0 EOF
1: -> POSIX  ADVISORY  WRITE 14 fd:01:7 0 EOF
2: -> FLOCK  ADVISORY  WRITE 15 fd:01:70 0 EOF
1: -> FLOCK
`
	if got := fmt.Sprint(findWaiters(strings.NewReader(locks), "fd:01:7", 99)); got != "[12 13 0]" {
		t.Errorf("waiters %s", got)
	}
	for pid, want := range map[int]string{
		0: "another process", -1: "another process", 1 << 30: "process 1073741824, which has ended",
		os.Getpid(): fmt.Sprintf("process %d (lockfile.test)", os.Getpid()),
	} {
		if got := process(pid).String(); got != want {
			t.Errorf("process %d is called %q, want %q", pid, got, want)
		}
	}
}

func TestNothingIsKnownOfAClosedFile(t *testing.T) {
	file, err := open(lockPath(t))
	if err != nil {
		t.Fatal(err)
	}
	_ = file.Close()
	if pids := waiters(file); pids != nil || isAt(file.Name(), file) {
		t.Errorf("waiters %v", pids)
	}
	if err := flockWait(file); err == nil {
		t.Error("it was locked")
	}
	if _, err := newWatch(file, true); err == nil {
		t.Error("it is watched")
	}
}
