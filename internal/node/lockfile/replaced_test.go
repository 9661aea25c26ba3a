package lockfile

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// waysToLoseAFile take the file away from path, and may put another there.
var waysToLoseAFile = []struct {
	name string
	do   func(path string) error
}{
	{"deleted", os.Remove},
	{"moved away", func(path string) error { return os.Rename(path, path+".old") }},
	{"replaced", func(path string) error {
		return errors.Join(os.WriteFile(path+".new", nil, 0o600), os.Rename(path+".new", path))
	}},
	// inotify tells nothing of it
	{"replaced with its directory", func(path string) error {
		dir := filepath.Dir(path)
		return errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o700), os.WriteFile(path, nil, 0o600))
	}},
}

// nestedPath is in a directory that may be replaced.
func nestedPath(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "dir")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "lock")
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAHolderWhoseFileIsGoneHasTheLockOnTheNewOneToo(t *testing.T) {
	for _, way := range waysToLoseAFile {
		t.Run(way.name, func(t *testing.T) {
			path := nestedPath(t)
			holder := startPeer(t, Contender{Path: path, Yield: true})
			holder.hears("held")
			do(t, way.do(path))
			holder.hears("notice", path, "was deleted or replaced", "the lock was taken on the new one too")
			if pid := WhoHolds(path); pid != holder.pid() {
				t.Errorf("process %d has the lock, want %d", pid, holder.pid())
			}
			holder.saidNothingOf("wanted")
			_, err := TryAcquire(path) // which opens the new one
			wantError(t, err, ErrHeld, fmt.Sprint(holder.pid()))
			holder.hears("wanted", path, "was opened")
			do(t, os.Remove(path)) // again, and while it is about to let go
			holder.hears("notice", "the lock was taken on the new one too")
			holder.release()
			acquire(t, path)
		})
	}
}

func TestTheOldFileStaysLockedForThoseWhoWaitForIt(t *testing.T) {
	path := lockPath(t)
	holder := startPeer(t, Contender{Path: path})
	holder.hears("held")
	old, err := os.Open(path)
	do(t, err)
	defer old.Close()
	do(t, os.Remove(path))
	holder.hears("notice", "taken on the new one too")
	if err := flock(old); !errors.Is(err, ErrHeld) {
		t.Errorf("the old file: %v", err)
	}
	holder.release()
	if err := flock(old); err != nil {
		t.Errorf("the old file after release: %v", err)
	}
}

func TestAHolderIsToldThatAnotherHasTheLockOnTheNewFile(t *testing.T) {
	path := lockPath(t)
	holder := startPeer(t, Contender{Path: path})
	holder.hears("held")
	other := startPeer(t, Contender{Path: path + ".new", Yield: true})
	other.hears("held")
	do(t, os.Rename(path+".new", path))
	holder.hears("wanted", path, ErrLost.Error(), fmt.Sprintf("process %d (", other.pid()))
	holder.saidNothingOf("notice")
	holder.release()
	other.saidNothingOf("wanted") // the other must not make way for one who leaves
	if pid := WhoHolds(path); pid != other.pid() {
		t.Errorf("process %d has the lock, want %d", pid, other.pid())
	}
}

func TestThatTheLockIsLostBeatsAnotherReason(t *testing.T) {
	path := lockPath(t)
	claim := claimed(t, Contender{Path: path, Yield: true})
	touchOpen(t, path)
	wanted(t, claim, ErrWanted)
	startHolder(t, path+".new")
	do(t, os.Rename(path+".new", path))
	eventually(t, "the lock is lost", func() bool { return errors.Is(claim.Why(), ErrLost) })
}

func TestAHolderThatIsNotToBeSeenHasTheLockAllTheSame(t *testing.T) {
	unshare, err := exec.LookPath("unshare")
	if err != nil || os.Getuid() != 0 {
		t.Skip("needs another PID namespace")
	}
	path := lockPath(t)
	exe, err := os.Executable()
	do(t, err)
	holder := startPeerAs(t, Contender{Path: path}, []string{unshare, "--pid", "--fork", "--kill-child", "--mount-proc", exe})
	holder.hears("held")
	startHolder(t, path+".new")
	do(t, os.Rename(path+".new", path))
	holder.hears("wanted", path, ErrLost.Error()+": another process")
	waiter := startPeerAs(t, Contender{Path: path}, []string{unshare, "--pid", "--fork", "--kill-child", "--mount-proc", exe})
	waiter.hears("waiting", ErrHeld.Error()+" by another process")
}

func TestAHolderKeepsTheOldLockWhereItCannotHaveTheNewOne(t *testing.T) {
	path := lockPath(t)
	holder := startPeer(t, Contender{Path: path})
	holder.hears("held")
	do(t, os.Rename(path, path+".old"))
	holder.hears("notice", "taken on the new one too") // there is one again
	do(t, os.Symlink(path+".old", path+".link"))
	do(t, os.Rename(path+".link", path))
	holder.hears("notice", path, "it is a symbolic link", "its lock is kept, and this tried again")
	holder.saidNothingOf("wanted")
	do(t, os.Remove(path))
	holder.hears("notice", "taken on the new one too")
	if pid := WhoHolds(path); pid != holder.pid() {
		t.Errorf("process %d has the lock, want %d", pid, holder.pid())
	}
}

func TestTwoNeverHaveTheLockBecauseItsFileIsReplaced(t *testing.T) {
	for _, way := range waysToLoseAFile {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			path := nestedPath(t)
			holder := startPeer(t, Contender{Path: path})
			holder.hears("held")
			waiters := []*peer{
				startPeer(t, Contender{Path: path, Yield: true}), startPeer(t, Contender{Path: path, Poke: 50 * time.Millisecond}),
			}
			for _, w := range waiters {
				queued(t, w.pid())
			}
			holder.signal(unix.SIGSTOP) // it cannot notice
			do(t, way.do(path))
			for _, w := range waiters {
				w.hears("waiting", fmt.Sprint(holder.pid())) // the first
				w.hears("waiting", fmt.Sprint(holder.pid()), "on a file that was deleted or replaced since", "it must end")
				w.saidNothingOf("held")
			}
			holder.signal(unix.SIGCONT)
			holder.hears("notice", "taken on the new one too")
			holder.saidNothingOf("wanted")
			holder.kill()
			waiters[0].kill()
			waiters[1].hears("held") // what is at the path, not what it waited for
			if pid := WhoHolds(path); pid != waiters[1].pid() {
				t.Errorf("process %d has the lock, want %d", pid, waiters[1].pid())
			}
		})
	}
}

func TestAWaiterGoesOnToWaitForTheNewFile(t *testing.T) {
	path := lockPath(t)
	_, killOld := startHolder(t, path)
	waiter := startPeer(t, Contender{Path: path})
	queued(t, waiter.pid())
	pid, killNew := startHolder(t, path+".new")
	do(t, os.Rename(path+".new", path))
	killOld()
	waiter.hears("waiting", path) // the first
	waiter.hears("waiting", fmt.Sprintf("process %d (", pid))
	queued(t, waiter.pid())
	waiter.saidNothingOf("held")
	killNew()
	waiter.hears("held")
	if got := WhoHolds(path); got != waiter.pid() {
		t.Errorf("process %d has the lock, want %d", got, waiter.pid())
	}
}

func TestAWaiterIsToldWhyItCannotLockWhatIsAtThePathThen(t *testing.T) {
	path := lockPath(t)
	_, kill := startHolder(t, path)
	waiter := startPeer(t, Contender{Path: path})
	queued(t, waiter.pid())
	do(t, errors.Join(os.Remove(path), os.Mkdir(path, 0o700)))
	kill()
	waiter.hears("failed", path, "is a directory")
}
