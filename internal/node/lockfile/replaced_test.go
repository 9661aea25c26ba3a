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

// waysToLoseAFile remove the file at path, and may put another one there.
var waysToLoseAFile = []struct {
	name string
	do   func(path string) error
}{
	{"deleted", os.Remove},
	{"moved away", func(path string) error { return os.Rename(path, path+".old") }},
	{"replaced", func(path string) error {
		return errors.Join(os.WriteFile(path+".new", nil, 0o600), os.Rename(path+".new", path))
	}},
	// no inotify event
	{"replaced with its directory", func(path string) error {
		dir := filepath.Dir(path)
		return errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o700), os.WriteFile(path, nil, 0o600))
	}},
}

// nestedPath returns a path in a directory that may be replaced.
func nestedPath(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "dir")
	do(t, os.Mkdir(dir, 0o700))
	return filepath.Join(dir, "lock")
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestHolderLocksTheReplacedFile(t *testing.T) {
	for _, way := range waysToLoseAFile {
		t.Run(way.name, func(t *testing.T) {
			path := nestedPath(t)
			holder := startHolding(t, Contender{Path: path, Yield: true})
			do(t, way.do(path))
			holder.hears("notice", path, "was deleted or replaced", "the new file was locked too")
			wantHolder(t, path, holder)
			holder.saidNothingOf("contended")
			_, err := TryAcquire(path) // which opens the new one
			wantError(t, err, ErrHeld, fmt.Sprint(holder.pid()))
			holder.hears("contended", path, "was opened")
			do(t, os.Remove(path)) // again, and while it is about to let go
			holder.hears("notice", "the new file was locked too")
			holder.release()
			acquire(t, path)
		})
	}
}

func TestOldFileStaysLocked(t *testing.T) {
	path := lockPath(t)
	holder := startHolding(t, Contender{Path: path})
	old, err := os.Open(path)
	do(t, err)
	defer old.Close()
	do(t, os.Remove(path))
	holder.hears("notice", "the new file was locked too")
	if err := flock(old); !errors.Is(err, ErrHeld) {
		t.Errorf("the old file: %v", err)
	}
	holder.release()
	if err := flock(old); err != nil {
		t.Errorf("the old file after release: %v", err)
	}
}

func TestHolderIsToldThatAnotherLockedTheNewFile(t *testing.T) {
	path := lockPath(t)
	holder := startHolding(t, Contender{Path: path})
	other := startHolding(t, Contender{Path: path + ".new", Yield: true})
	do(t, os.Rename(path+".new", path))
	holder.hears("contended", path, ErrLost.Error(), fmt.Sprintf("process %d (", other.pid()))
	holder.saidNothingOf("notice")
	holder.release()
	other.saidNothingOf("contended") // the other holder must not release for a process that exits
	wantHolder(t, path, other)
}

func TestErrLostReplacesErrContended(t *testing.T) {
	path := lockPath(t)
	claim := claimed(t, Contender{Path: path, Yield: true})
	touchOpen(t, path)
	contended(t, claim, ErrContended)
	startHolder(t, path+".new")
	do(t, os.Rename(path+".new", path))
	eventually(t, "the lock is lost", func() bool { return errors.Is(claim.Why(), ErrLost) })
}

func TestInvisibleHolderHasTheLock(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make a PID namespace")
	}
	unshare, err := exec.LookPath("unshare")
	do(t, err)
	path := lockPath(t)
	exe, err := os.Executable()
	do(t, err)
	holder := startPeerAs(t, Contender{Path: path}, []string{unshare, "--pid", "--fork", "--kill-child", "--mount-proc", exe})
	holder.hears("held")
	startHolder(t, path+".new")
	do(t, os.Rename(path+".new", path))
	holder.hears("contended", path, ErrLost.Error()+": another process")
	waiter := startPeerAs(t, Contender{Path: path}, []string{unshare, "--pid", "--fork", "--kill-child", "--mount-proc", exe})
	waiter.hears("waiting", ErrHeld.Error()+" by another process")
}

func TestHolderKeepsTheOldLockIfItCannotLockTheNewFile(t *testing.T) {
	path := lockPath(t)
	holder := startHolding(t, Contender{Path: path})
	do(t, os.Rename(path, path+".old"))
	holder.hears("notice", "the new file was locked too") // the file exists again
	do(t, os.Symlink(path+".old", path+".link"))
	do(t, os.Rename(path+".link", path))
	holder.hears("notice", path, "it is a symbolic link", "its lock is kept, and this is retried")
	holder.saidNothingOf("contended")
	do(t, os.Remove(path))
	holder.hears("notice", "the new file was locked too")
	wantHolder(t, path, holder)
}

func TestReplacedFileNeverGivesTwoHolders(t *testing.T) {
	for _, way := range waysToLoseAFile {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			path := nestedPath(t)
			holder := startHolding(t, Contender{Path: path})
			waiters := []*peer{
				startPeer(t, Contender{Path: path, Yield: true}), startPeer(t, Contender{Path: path, ReopenEvery: 50 * time.Millisecond}),
			}
			for _, w := range waiters {
				queued(t, w.pid())
			}
			holder.signal(unix.SIGSTOP) // it cannot notice
			do(t, way.do(path))
			for _, w := range waiters {
				w.hears("waiting", fmt.Sprint(holder.pid())) // the first
				w.hears("waiting", fmt.Sprint(holder.pid()), "on a file that was deleted or replaced since", "it must release the lock or exit")
				w.saidNothingOf("held")
			}
			holder.signal(unix.SIGCONT)
			holder.hears("notice", "the new file was locked too")
			holder.saidNothingOf("contended")
			holder.kill()
			waiters[0].kill()
			waiters[1].hears("held") // the file at the path, not the one that it waited for
			wantHolder(t, path, waiters[1])
		})
	}
}

func TestWaiterWaitsForTheNewFile(t *testing.T) {
	path := lockPath(t)
	_, killOld := startHolder(t, path)
	waiter := startWaiting(t, Contender{Path: path})
	pid, killNew := startHolder(t, path+".new")
	do(t, os.Rename(path+".new", path))
	killOld()
	waiter.hears("waiting", path) // the first
	waiter.hears("waiting", fmt.Sprintf("process %d (", pid))
	queued(t, waiter.pid())
	waiter.saidNothingOf("held")
	killNew()
	waiter.hears("held")
	wantHolder(t, path, waiter)
}

func TestWaiterIsToldWhyItCannotLockTheNewFile(t *testing.T) {
	path := lockPath(t)
	_, kill := startHolder(t, path)
	waiter := startWaiting(t, Contender{Path: path})
	do(t, errors.Join(os.Remove(path), os.Mkdir(path, 0o700)))
	kill()
	waiter.hears("failed", path, "is a directory")
}
