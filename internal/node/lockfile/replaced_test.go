// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

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

	"github.com/evenkeel/evenkeel/testkit/assert"
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
	// This causes no inotify event. The directories are exchanged in one step, so
	// that there is a directory whenever the holder looks.
	{"replaced with its directory", func(path string) error {
		dir := filepath.Dir(path)
		next := dir + ".new"
		return errors.Join(os.Mkdir(next, 0o700), os.WriteFile(filepath.Join(next, filepath.Base(path)), nil, 0o600),
			unix.Renameat2(unix.AT_FDCWD, next, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE))
	}},
}

// nestedPath returns a path in a directory that may be replaced.
func nestedPath(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "dir")
	assert.NoError(t, os.Mkdir(dir, 0o700))
	return filepath.Join(dir, "lock")
}

func TestHolderLocksTheReplacedFile(t *testing.T) {
	for _, way := range waysToLoseAFile {
		t.Run(way.name, func(t *testing.T) {
			path := nestedPath(t)
			holder := startHolding(t, Contender{Path: path, Yield: true})
			assert.NoError(t, way.do(path))
			holder.hears("notice", path, "was deleted or replaced", "the new file was locked too")
			wantHolder(t, path, holder)
			holder.saidNothingOf("contended")
			_, err := TryAcquire(path) // which opens the new one
			wantError(t, err, ErrHeld, fmt.Sprint(holder.pid()))
			holder.hears("contended", path, "was opened")
			assert.NoError(t, os.Remove(path)) // again, and while it is about to let go
			holder.hears("notice", "the new file was locked too")
			holder.release()
			acquire(t, path)
		})
	}
}

func TestOldFileStaysLocked(t *testing.T) {
	path := lockPath(t)
	holder := startHolding(t, Contender{Path: path})
	old := assert.Value(os.Open(path))(t)
	defer old.Close()
	assert.NoError(t, os.Remove(path))
	holder.hears("notice", "the new file was locked too")
	assert.Is(t, flock(old), ErrHeld, "the old file")
	holder.release()
	assert.NoError(t, flock(old), "the old file after release")
}

func TestHolderIsToldThatAnotherLockedTheNewFile(t *testing.T) {
	path := lockPath(t)
	holder := startHolding(t, Contender{Path: path})
	other := startHolding(t, Contender{Path: path + ".new", Yield: true})
	assert.NoError(t, os.Rename(path+".new", path))
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
	assert.NoError(t, os.Rename(path+".new", path))
	assert.Eventually(t, "the lock is lost", func() bool { return errors.Is(claim.Why(), ErrLost) })
}

func TestInvisibleHolderHasTheLock(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make a PID namespace")
	}

	unshare := assert.Value(exec.LookPath("unshare"))(t)
	path := lockPath(t)
	exe := assert.Value(os.Executable())(t)
	holder := startPeerAs(t, Contender{Path: path}, []string{unshare, "--pid", "--fork", "--kill-child", "--mount-proc", exe})
	holder.hears("held")
	startHolder(t, path+".new")
	assert.NoError(t, os.Rename(path+".new", path))
	holder.hears("contended", path, ErrLost.Error()+": another process")
	waiter := startPeerAs(t, Contender{Path: path}, []string{unshare, "--pid", "--fork", "--kill-child", "--mount-proc", exe})
	waiter.hears("waiting", ErrHeld.Error()+" by another process")
}

func TestHolderKeepsTheOldLockIfItCannotLockTheNewFile(t *testing.T) {
	for _, tt := range []struct {
		name  string
		put   func(path string) error // makes the new file
		words []string
	}{
		{"a symbolic link", func(path string) error { return os.Symlink(path+".old", path) }, []string{"it is a symbolic link"}},
		{"another's file, which is locked", func(path string) error {
			startHolder(t, path)
			return os.Chown(path, untrusted, 0)
		}, []string{ErrUnsafe.Error(), "it belongs to user 54321"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(sharedDir(t, 0o755), "lock")
			holder := startHolding(t, Contender{Path: path})
			assert.NoError(t, errors.Join(tt.put(path+".new"), os.Rename(path+".new", path)))
			holder.hears("notice", append(tt.words, path, "its lock is kept, and this is retried")...)
			holder.saidNothingOf("contended")
			assert.NoError(t, os.Remove(path))
			holder.hears("notice", "the new file was locked too")
			wantHolder(t, path, holder)
		})
	}
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
			assert.NoError(t, way.do(path))
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
	assert.NoError(t, os.Rename(path+".new", path))
	killOld()
	waiter.hears("waiting", path) // the first
	waiter.hears("waiting", fmt.Sprintf("process %d (", pid))
	queued(t, waiter.pid())
	waiter.saidNothingOf("held")
	killNew()
	waiter.hears("held")
	wantHolder(t, path, waiter)
}
