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
)

// holdVar names the file that this test binary, started again, is to lock and hold.
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

// hold locks path with the two calls of the kubelet (pkg/util/flock), prints "held" and waits to be killed.
func hold(path string) {
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		err = unix.Flock(fd, unix.LOCK_EX)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("held")
	_, _ = os.Stdin.Read(make([]byte, 1)) // ends with the test, even if that dies
	os.Exit(0)
}

// startHolder starts another process that has the lock on path until stop.
func startHolder(t *testing.T, path string) (pid int, stop func()) {
	t.Helper()
	exe, err := os.Executable()
	do(t, err)
	p := start(t, []string{exe}, holdVar+"="+path)
	p.hears("held")
	return p.pid(), p.kill
}

func acquire(t *testing.T, path string) *Lock {
	t.Helper()
	lock, err := TryAcquire(path)
	if err != nil {
		t.Fatalf("TryAcquire: %v", err)
	}
	t.Cleanup(func() { _ = lock.Release() })
	return lock
}

// wantError checks the kind of an error and the words in it.
func wantError(t *testing.T, err, kind error, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("error %v, want one that is %v", err, kind)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

func TestErrorNamesTheHolder(t *testing.T) {
	path := lockPath(t)
	pid, _ := startHolder(t, path)
	_, err := TryAcquire(path)
	wantError(t, err, ErrHeld)
	var held *HeldError
	want := HeldError{path, Process{pid, "lockfile.test"}}
	if !errors.As(err, &held) || *held != want {
		t.Errorf("got %+v, want %+v", held, want)
	}
	if words := fmt.Sprintf("lock file %s: the lock is held by process %d (lockfile.test)", path, pid); err.Error() != words {
		t.Errorf("it says %q, want %q", err, words)
	}
}

func TestLockHeldByThisProcessIsRefused(t *testing.T) {
	path := lockPath(t)
	acquire(t, path)
	_, err := TryAcquire(path)
	wantError(t, err, ErrHeld, path, fmt.Sprint(os.Getpid()))
}

func TestKilledHolderLosesTheLock(t *testing.T) {
	path := lockPath(t)
	_, kill := startHolder(t, path)
	kill()
	acquire(t, path)
}

func TestReleasedLockCanBeTakenAgain(t *testing.T) {
	path := lockPath(t)
	lock := acquire(t, path)
	if err := lock.Release(); err != nil {
		t.Fatalf("Release: %v", err)
	}
	acquire(t, path)
	if err := lock.Release(); !errors.Is(err, os.ErrClosed) {
		t.Fatalf("Release once more: %v", err)
	}
	if _, err := TryAcquire(path); !errors.Is(err, ErrHeld) {
		t.Errorf("releasing an old lock again released the new one: %v", err)
	}
}

func TestChildDoesNotInheritTheLock(t *testing.T) {
	path := lockPath(t)
	lock := acquire(t, path)
	// The child has execed when it holds its own lock, and it runs on.
	pid, _ := startHolder(t, path+".child")
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(open) == 0 {
		t.Fatalf("cannot see the child's files: %v", err)
	}
	for _, fd := range open {
		if target, _ := os.Readlink(fd); target == path {
			t.Errorf("the child has %s open", path)
		}
	}
	// Closed and not unlocked, so that a copy in the child would keep it.
	do(t, lock.file.Close())
	acquire(t, path)
}

func TestFileIsPrivateAndUnchanged(t *testing.T) {
	path := lockPath(t)
	lock := acquire(t, path)
	info, err := os.Stat(path)
	do(t, err)
	if info.Mode() != 0o600 {
		t.Errorf("mode %v, want 0600", info.Mode())
	}
	do(t, os.WriteFile(path, []byte("not ours"), 0))
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	acquire(t, path)
	if content, err := os.ReadFile(path); err != nil || string(content) != "not ours" {
		t.Errorf("after release and acquire the file holds %q (%v)", content, err)
	}
}

func TestOtherFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	do(t, os.Symlink(filepath.Join(dir, "elsewhere"), link))
	for _, tt := range []struct {
		name, path string
		kind       error
		words      string
	}{
		{"a directory", dir, unix.EISDIR, "is a directory"},
		{"a missing directory", filepath.Join(dir, "no", "lock"), fs.ErrNotExist, "its directory does not exist"},
		{"a symbolic link", link, unix.ELOOP, "it is a symbolic link, which is not followed"},
		{"a file as directory", "/dev/null/lock", unix.ENOTDIR, "not a directory"},
		{"a device", "/dev/null", errNotRegular, "it is not a regular file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := TryAcquire(tt.path)
			wantError(t, err, tt.kind, tt.path, tt.words)
			_, err = Contender{Path: tt.path}.Acquire(t.Context(), nil)
			wantError(t, err, tt.kind, tt.path, tt.words)
		})
	}
	if _, err := os.Lstat(filepath.Join(dir, "elsewhere")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the symbolic link was followed: %v", err)
	}
}

func TestReadOnlyFileSystemIsRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	path := filepath.Join(dir, "lock")
	_, err := TryAcquire(path)
	wantError(t, err, unix.EROFS, path, "read-only file system")
	_, err = Contender{Path: path}.Acquire(t.Context(), nil)
	wantError(t, err, unix.EROFS, path, "read-only file system")
}

func TestUnwritableFileIsRefused(t *testing.T) {
	path := lockPath(t)
	do(t, os.WriteFile(path, nil, 0o400))
	kind := fs.ErrPermission
	if os.Getuid() == 0 { // root can write every file that is not immutable
		if err := setImmutable(path, true); err != nil {
			t.Skipf("cannot make a file that root may not write: %v", err)
		}
		t.Cleanup(func() { _ = setImmutable(path, false) })
	}
	_, err := TryAcquire(path)
	wantError(t, err, kind, path)
	_, err = Contender{Path: path}.Acquire(t.Context(), nil)
	wantError(t, err, kind, path)
}

func setImmutable(path string, on bool) error {
	const immutable = 0x10 // FS_IMMUTABLE_FL
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
	if err != nil {
		return err
	}
	if flags &^= immutable; on {
		flags |= immutable
	}
	return unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, int(flags))
}

func TestFailedFlockIsNotErrHeld(t *testing.T) {
	path := lockPath(t)
	file, err := os.Create(path)
	do(t, err)
	_ = file.Close()
	err = flock(file)
	wantError(t, err, unix.EBADF, path, "flock")
	if errors.Is(err, ErrHeld) {
		t.Errorf("%v is ErrHeld", err)
	}
	if err := (&Lock{file: file}).Release(); !errors.Is(err, unix.EBADF) {
		t.Errorf("Release: %v, want EBADF", err)
	}
	if pid := holderOf(file); pid != 0 {
		t.Errorf("holder %d of a closed file, want none", pid)
	}
}
