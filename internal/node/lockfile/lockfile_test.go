// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package lockfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// holdVar names the file that this test binary, started again, is to lock and
// hold.
const holdVar = "LOCKFILE_TEST_HOLD"

func TestMain(m *testing.M) {
	if path := os.Getenv(holdVar); path != "" {
		hold(path)
	}
	if text := os.Getenv(contendVar); text != "" {
		contend(text)
	}
	if text := os.Getenv(runVar); text != "" {
		runStandIn(text)
	}

	os.Exit(m.Run())
}

// hold locks path with the two calls of the kubelet (pkg/util/flock), prints
// "held" and waits to be killed.
func hold(path string) {
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		err = unix.Flock(fd, unix.LOCK_EX)
	}

	exitIf(err)
	fmt.Println("held")
	_, _ = os.Stdin.Read(make([]byte, 1)) // ends with the test, even if that dies
	os.Exit(0)
}

// startHolder starts another process that has the lock on path until stop.
func startHolder(t *testing.T, path string) (pid int, stop func()) {
	t.Helper()
	exe := assert.Value(os.Executable())(t)
	p := start(t, []string{exe}, holdVar+"="+path)
	p.hears("held")

	return p.pid(), p.kill
}

func acquire(t *testing.T, path string) *Lock {
	t.Helper()
	lock, err := TryAcquire(path)
	assert.Must(t, err == nil, "TryAcquire: %v", err)
	t.Cleanup(func() { _ = lock.Release() })

	return lock
}

// wantError checks the kind of an error and the words in it.
func wantError(t *testing.T, err, kind error, words ...string) {
	t.Helper()
	assert.Must(t, errors.Is(err, kind), "error %v, want one that is %v", err, kind)
	for _, w := range words {
		assert.That(t, strings.Contains(err.Error(), w), "error %q does not say %q", err, w)
	}
}

func TestErrorNamesTheHolder(t *testing.T) {
	path := lockPath(t)
	pid, _ := startHolder(t, path)
	_, err := TryAcquire(path)
	wantError(t, err, ErrHeld)
	var held *HeldError
	want := HeldError{path, Process{pid, "lockfile.test"}}
	assert.That(t, errors.As(err, &held) && *held == want, "got %+v, want %+v", held, want)
	words := fmt.Sprintf("lock file %s: the lock is held by process %d (lockfile.test)", path, pid)
	assert.That(t, err.Error() == words, "it says %q, want %q", err, words)
	own := lockPath(t)
	acquire(t, own)
	_, err = TryAcquire(own)
	wantError(t, err, ErrHeld, own, fmt.Sprint(os.Getpid()))
}

func TestReleasedLockCanBeTakenAgain(t *testing.T) {
	path := lockPath(t)
	claim := claimed(t, Contender{Path: path, Yield: true})
	assert.NoError(t, errors.Join(claim.Release(), claim.Release())) // the second time it does nothing
	assert.NoError(t, claim.Why())
	lock := acquire(t, path)
	assert.NoError(t, lock.Release())
	acquire(t, path)
	assert.Is(t, lock.Release(), os.ErrClosed, "Release once more")
	assert.Is(t, assert.Err(TryAcquire(path)), ErrHeld, "releasing an old lock again released the new one")
}

func TestChildDoesNotInheritTheLock(t *testing.T) {
	path := lockPath(t)
	lock := acquire(t, path)
	// The child has execed when it holds its own lock, and it runs on.
	pid, _ := startHolder(t, path+".child")
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	assert.Must(t, err == nil && len(open) != 0, "cannot see the child's files: %v", err)
	for _, fd := range open {
		target, _ := os.Readlink(fd)
		assert.That(t, target != path, "the child has %s open", path)
	}

	// Closed and not unlocked, so that a copy in the child would keep it.
	assert.NoError(t, lock.file.Close())
	acquire(t, path)
}

func TestFileIsPrivateAndUnchanged(t *testing.T) {
	path := lockPath(t)
	lock := acquire(t, path)
	info := assert.Value(os.Stat(path))(t)
	assert.That(t, info.Mode() == 0o600, "mode %v, want 0600", info.Mode())
	assert.NoError(t, os.WriteFile(path, []byte("not ours"), 0))
	assert.NoError(t, lock.Release())
	acquire(t, path)
	content, err := os.ReadFile(path)
	assert.That(t, err == nil && string(content) == "not ours", "after release and acquire the file holds %q (%v)", content, err)
}

func TestOtherFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	readOnly := filepath.Join(mounted(t, "read-only"), "lock")
	link := filepath.Join(dir, "link")
	assert.NoError(t, os.Symlink(filepath.Join(dir, "elsewhere"), link))
	for _, tt := range []struct {
		name, path string
		kind       error
		words      string
	}{
		{"a directory", dir, unix.EISDIR, "is a directory"},
		{"a missing directory", filepath.Join(dir, "no", "lock"), fs.ErrNotExist, "its directory does not exist"},
		{"a symbolic link", link, unix.ELOOP, "it is a symbolic link, which is not followed"},
		{"a file as directory", "/dev/null/lock", unix.ENOTDIR, "not a directory"},
		{"on a read-only file system", readOnly, unix.EROFS, "read-only file system"},
		{"an unwritable file", unwritable(t), fs.ErrPermission, ""},
		{"a device", "/dev/null", errNotRegular, "it is not a regular file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.path == "" {
				t.Skip("the file system has no immutable files")
			}

			_, err := TryAcquire(tt.path)
			wantError(t, err, tt.kind, tt.path, tt.words)
			_, err = Contender{Path: tt.path}.Acquire(t.Context(), nil)
			wantError(t, err, tt.kind, tt.path, tt.words)
		})
	}

	assert.Is(t, assert.Err(os.Lstat(filepath.Join(dir, "elsewhere"))), fs.ErrNotExist, "the symbolic link was followed")
}

// unwritable returns a file that not even root can write; "" if the file system
// cannot have one.
func unwritable(t *testing.T) string {
	t.Helper()
	const immutable = 0x10 // FS_IMMUTABLE_FL
	path := lockPath(t)
	assert.NoError(t, os.WriteFile(path, nil, 0o400))
	file := assert.Value(os.Open(path))(t)
	flags, err := unix.IoctlGetUint32(int(file.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, int(flags|immutable))
	}

	t.Cleanup(func() {
		_ = unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, int(flags))
		_ = file.Close()
	})
	if err != nil {
		return ""
	}

	return path
}

func TestClosedFileIsAnErrorAndNotErrHeld(t *testing.T) {
	path := lockPath(t)
	file := assert.Value(open(path))(t)
	_ = file.Close()
	err := flock(file)
	wantError(t, err, unix.EBADF, path, "flock")
	assert.That(t, !errors.Is(err, ErrHeld), "%v is ErrHeld", err)
	assert.Is(t, (&Lock{file: file}).Release(), unix.EBADF, "Release")
	assert.Equal(t, holderOf(file), 0, "holder of a closed file")
	assert.That(t, waitersFor(file) == nil && !isAt(path, file), "waiters %v", waitersFor(file))
	assert.That(t, flockWait(file) != nil, "flockWait locked a closed file")
	assert.That(t, assert.Err(newWatch(file, true)) != nil, "newWatch watches a closed file")
}

// untrusted is a user, and a group, that the tests do not trust.
const untrusted = 54321

// sharedDir is a directory that every user of this machine can enter, with this
// mode.
func sharedDir(t *testing.T, mode os.FileMode) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can give files to other users")
	}

	dir := assert.Value(os.MkdirTemp("/tmp", "lockfile-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	assert.NoError(t, os.Chmod(dir, mode))

	return dir
}

func TestUnsafeLockIsRefusedOrDoubted(t *testing.T) {
	type node struct {
		mode     os.FileMode
		uid, gid int
	}
	const refuse, doubt = "refuse", "doubt"
	for _, c := range []struct {
		name      string
		dir       node
		file      node // no mode: no file
		what      string
		wantWords string // D is the directory, F the file
	}{
		{"only this user", node{0o755, 0, 0}, node{0o600, 0, 0}, "", ""},
		{"only this user, no file", node{0o755, 0, 0}, node{}, "", ""},
		{"root's own group", node{0o775, 0, 0}, node{0o660, 0, 0}, "", ""},
		{"a closed directory", node{0o700, 0, 0}, node{0o666, untrusted, untrusted}, "", ""},
		{"a sticky directory of a group", node{os.ModeSticky | 0o775, 0, untrusted}, node{0o600, 0, 0}, "", ""},

		{"another's directory", node{0o755, untrusted, 0}, node{0o600, 0, 0}, refuse, "its directory D belongs to user 54321, who can replace the file: chown 0 D, or choose another directory"},
		{"another's closed directory", node{0o700, untrusted, 0}, node{}, refuse, "its directory D belongs to user 54321"},
		{"a directory writable for everyone", node{0o777, 0, 0}, node{0o600, 0, 0}, refuse, "everyone can write to its directory D, and replace the file: chmod o-w D, or choose another directory"},
		{"another's file", node{0o755, 0, 0}, node{0o600, untrusted, 0}, refuse, "it belongs to user 54321: stop the processes that have it open and remove it, or choose another directory"},
		{"another's file in a sticky directory", node{os.ModeSticky | 0o777, 0, 0}, node{0o666, untrusted, 0}, refuse, "it belongs to user 54321"},
		{"a file writable for everyone", node{0o755, 0, 0}, node{0o622, 0, 0}, refuse, "everyone can write to it: chmod 600 F"},

		{"a sticky directory", node{os.ModeSticky | 0o777, 0, 0}, node{0o600, 0, 0}, doubt, "everyone can write to its directory D, and create the file first; such a file is refused: choose another directory"},
		{"a group's directory", node{0o775, 0, untrusted}, node{}, doubt, "group 54321 can write to its directory D, and replace the file: chmod g-w D, or choose another directory"},
		{"a file for everybody to read", node{0o755, 0, 0}, node{0o644, 0, 0}, doubt, "everyone can open it, and so take the lock, or make its holder release it: chmod 600 F"},
		{"a file for a group to read", node{0o755, 0, 0}, node{0o640, 0, untrusted}, doubt, "group 54321 can open it, and so take the lock, or make its holder release it: chmod 600 F"},
		{"a file for a group to write", node{0o755, 0, 0}, node{0o620, 0, untrusted}, doubt, "group 54321 can open it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := sharedDir(t, c.dir.mode)
			path := filepath.Join(dir, "lock")
			if c.file.mode != 0 {
				assert.NoError(t, errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, c.file.uid, c.file.gid), os.Chmod(path, c.file.mode)))
			}

			assert.NoError(t, errors.Join(os.Chown(dir, c.dir.uid, c.dir.gid), os.Chmod(dir, c.dir.mode)))
			var noticed []string
			claim, err := Contender{Path: path, Notice: func(err error) { noticed = append(noticed, err.Error()) }}.Acquire(t.Context(), nil)
			if err == nil {
				assert.NoError(t, claim.Release())
			}

			words := strings.NewReplacer("D", dir, "F", path).Replace(c.wantWords)
			switch c.what {
			case refuse:
				wantError(t, err, ErrUnsafe, "lock file "+path+": other users could take it: "+words)
			case doubt:
				assert.That(t, err == nil && len(noticed) == 1 && strings.HasPrefix(noticed[0], "lock file "+path+": "+words), "error %v, notices %q, want the doubt %q", err, noticed, words)
			default:
				assert.That(t, err == nil && noticed == nil, "error %v, noticed %q, want none", err, noticed)
			}
		})
	}
}

func TestClosedDirectoryMakesItsContentSafe(t *testing.T) {
	outer := sharedDir(t, 0o755)
	dir := filepath.Join(outer, "a", "b")
	assert.NoError(t, errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o777), os.Symlink("a/b", filepath.Join(outer, "link"))))
	path := filepath.Join(outer, "link", "lock")
	_, err := Contender{Path: path}.Acquire(t.Context(), nil)
	wantError(t, err, ErrUnsafe, "everyone can write to its directory "+dir)
	assert.Is(t, assert.Err(os.Stat(path)), os.ErrNotExist, "the refused file was created")
	assert.NoError(t, os.Chmod(outer, 0o700))
	claimed(t, Contender{Path: path, Notice: func(err error) { t.Errorf("notice %v", err) }})
}

func TestRefusedContenderDoesNotOpenTheFile(t *testing.T) {
	t.Parallel()
	dir := sharedDir(t, 0o755)
	path := filepath.Join(dir, "lock")
	claim := claimed(t, Contender{Path: path, Yield: true})
	assert.NoError(t, os.Chmod(dir, 0o777))
	_, err := Contender{Path: path}.Acquire(t.Context(), nil)
	wantError(t, err, ErrUnsafe)
	notContended(t, claim)
}

func TestWaiterIsToldWhyItCannotLockTheFile(t *testing.T) {
	for _, tt := range []struct {
		change func(path string) error
		words  []string
	}{
		{func(path string) error { return os.Chmod(filepath.Dir(path), 0o777) }, []string{ErrUnsafe.Error(), "everyone can write to its directory "}},
		{func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) }, []string{"is a directory"}},
	} {
		path := filepath.Join(sharedDir(t, 0o755), "lock")
		_, kill := startHolder(t, path)
		waiter := startWaiting(t, Contender{Path: path})
		assert.NoError(t, tt.change(path))
		kill()
		waiter.hears("failed", append(tt.words, path)...)
		waiter.saidNothingOf("held")
	}
}
