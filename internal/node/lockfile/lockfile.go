// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lockfile opens and locks a file with flock(2), refuses one that other
// users could have tampered with (owner and permissions of the file and its
// directory), waits for the lock, and notices other processes that wait for it.
// It is the lock of the stock kubelet (--lock-file), so an agent and a kubelet
// exclude each other.
//
// It must not know who takes a lock, or why. It never reads or writes the
// content of the file.
package lockfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrHeld means that another process has the lock, or this one through another
// Lock. It is always a HeldError.
var ErrHeld = errors.New("the lock is held")

// HeldError is ErrHeld with the holder, which was looked up for the open file:
// the path may name another file by now.
type HeldError struct {
	Path string
	By   Process
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("lock file %s: %v by %s", e.Path, ErrHeld, e.By)
}
func (e *HeldError) Unwrap() error { return ErrHeld }

// Lock is held until Release, or until the process ends, however it ends.
type Lock struct{ file *os.File }

// TryAcquire locks the file at path without waiting, and creates the file if
// needed. If the lock is taken the error is a HeldError, which names the file
// and, if the kernel shows it, the holder.
//
// Other errors come from opening the file: fs.ErrNotExist for a missing
// directory, EISDIR, ELOOP for a symbolic link (not followed, so that a user
// who can write the directory cannot choose another file), EROFS,
// fs.ErrPermission, or that it is not a regular file.
//
// Processes that watch the file see that it was opened, even if the lock was
// taken: a kubelet with --exit-on-lock-contention then exits.
func TryAcquire(path string) (*Lock, error) {
	file, err := open(path)
	if err != nil {
		return nil, err
	}

	if err := flock(file); err != nil {
		_ = file.Close() // nothing was written or locked
		return nil, err
	}

	return &Lock{file}, nil
}

// open opens a lock file.
func open(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock file: %w", describeOpenError(err))
	}

	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() { // pipes and devices block and close in other ways
		err = &os.PathError{Op: "open", Path: path, Err: errNotRegular}
	}

	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock file: %w", err)
	}

	return file, nil
}

var errNotRegular = errors.New("it is not a regular file")

// Release unlocks the file; call it once. The file stays: if it were deleted,
// two processes could lock different files of the same name.
func (l *Lock) Release() error { return unlock(l.file) }

// unlock unlocks and closes the file.
func unlock(file *os.File) error {
	// Unlock before close: a child between fork and exec shares the open file,
	// and would keep the lock for that moment.
	return errors.Join(flockErr(file, unix.Flock(int(file.Fd()), unix.LOCK_UN)), file.Close())
}

func flock(file *os.File) error {
	for again := true; ; again = false {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return flockErr(file, err)
		}

		pid := holderOf(file)
		if again && pid == os.Getpid() {
			continue // the holder ended, and another thread of this process, which waited on this file, may have the lock
		}

		return &HeldError{Path: file.Name(), By: process(pid)}
	}
}

func flockErr(file *os.File, err error) error {
	if err == nil {
		return nil
	}

	return fmt.Errorf("lock file %s: flock: %w", file.Name(), err)
}

// describeOpenError explains bare error numbers.
func describeOpenError(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("its directory does not exist: %w", err)
	case errors.Is(err, unix.ELOOP):
		return fmt.Errorf("it is a symbolic link, which is not followed: %w", err)
	}

	return err // the other errors are clear: "is a directory", "read-only file system", "permission denied"
}

// ErrUnsafe means that untrusted users could take the lock.
var ErrUnsafe = errors.New("other users could take it")

// checkAccess checks which users, besides this one and root, could take the
// lock on the file at path. It returns ErrUnsafe if the file or its directory
// belongs to another user, or is writable for everyone, and doubts for lesser
// risks. It ignores a missing file, and whatever is below a directory that no
// one else can enter.
//
// It runs before the file is opened: an open makes another process release the
// lock, and in a sticky directory the kernel refuses the file of another user
// with a less clear error.
func checkAccess(path string) (doubts []error, unsafe error) {
	dir, _ := filepath.EvalSymlinks(filepath.Dir(path))
	for above := dir; ; above = filepath.Dir(above) {
		if stat := lstat(above); trusted(stat) && stat.Mode&0o011 == 0 {
			return nil, nil
		}
		if above == filepath.Dir(above) {
			break
		}
	}

	refuse := func(format string, args ...any) error {
		return fmt.Errorf("lock file %s: %w: %s", path, ErrUnsafe, fmt.Sprintf(format, args...))
	}
	doubt := func(format string, args ...any) {
		doubts = append(doubts, fmt.Errorf("lock file %s: %s", path, fmt.Sprintf(format, args...)))
	}
	parent := lstat(dir)
	switch sticky := parent.Mode&unix.S_ISVTX != 0; { // only the owner of a file can replace it
	case !trusted(parent):
		return nil, refuse("its directory %s belongs to user %d, who can replace the file: chown %d %[1]s, or choose another directory",
			dir, parent.Uid, os.Geteuid())
	case parent.Mode&0o002 != 0 && !sticky:
		return nil, refuse("everyone can write to its directory %s, and replace the file: chmod o-w %[1]s, or choose another directory", dir)
	case parent.Mode&0o002 != 0:
		doubt("everyone can write to its directory %s, and create the file first; such a file is refused: choose another directory", dir)
	case parent.Mode&0o020 != 0 && !sticky && parent.Gid != 0:
		doubt("group %d can write to its directory %s, and replace the file: chmod g-w %[2]s, or choose another directory", parent.Gid, dir)
	}

	switch file := lstat(path); {
	case file.Mode&unix.S_IFMT != unix.S_IFREG:
	case !trusted(file):
		return nil, refuse("it belongs to user %d: stop the processes that have it open and remove it, or choose another directory", file.Uid)
	case file.Mode&0o002 != 0:
		return nil, refuse("everyone can write to it: chmod 600 %s", path)
	case file.Mode&0o004 != 0:
		doubt("everyone can open it, and so take the lock, or make its holder release it: chmod 600 %s", path)
	case file.Mode&0o060 != 0 && file.Gid != 0:
		doubt("group %d can open it, and so take the lock, or make its holder release it: chmod 600 %s", file.Gid, path)
	}

	return doubts, nil
}

// lstat returns zero for a missing file: owned by root, and closed to other
// users.
func lstat(path string) (stat unix.Stat_t) {
	if err := unix.Lstat(path, &stat); err != nil {
		return unix.Stat_t{}
	}

	return stat
}

// trusted reports whether the owner is the user of this process, or root, who
// can do anything.
func trusted(stat unix.Stat_t) bool { return stat.Uid == 0 || int(stat.Uid) == os.Geteuid() }
