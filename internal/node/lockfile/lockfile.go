// Package lockfile takes an exclusive lock on a file with flock(2), so that one process at a time works on what the
// file stands for. It is the lock that the stock kubelet takes for --lock-file, and the two exclude each other.
//
// It must not know who locks what, or why. The file's content means nothing and is never touched.
package lockfile

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrHeld says that the lock is taken: by another process, or by this one through another Lock. It is always a HeldError.
var ErrHeld = errors.New("the lock is held")

// HeldError is ErrHeld with who has the lock. That was looked up in passing: to look at the path of the file once more
// could find another file.
type HeldError struct {
	Path string
	By   Process
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("lock file %s: %v by %s", e.Path, ErrHeld, e.By)
}
func (e *HeldError) Unwrap() error { return ErrHeld }

// Lock is a lock that is held until Release, or until the process is gone, however it ends.
type Lock struct {
	mu   sync.Mutex
	file *os.File // nil once released
}

// TryAcquire takes the lock on the file at path, creating the file if there is none, and does not wait. If the lock
// is taken the error is a HeldError, which names the file and, where the kernel tells it, the process that took it.
//
// Any other error is one of opening the file: fs.ErrNotExist for a directory that is missing, EISDIR, ELOOP for a
// symbolic link (which is not followed: who may write the directory must not choose another file to lock), EROFS,
// fs.ErrPermission, or that it is not a regular file.
//
// A process that watches the file sees it being opened, also when the lock was not to be had: a kubelet with
// --exit-on-lock-contention gives way on that.
func TryAcquire(path string) (*Lock, error) {
	file, err := open(path)
	if err != nil {
		return nil, err
	}
	if err := flock(file); err != nil {
		_ = file.Close() // nothing was written and nothing is locked
		return nil, err
	}
	return &Lock{file: file}, nil
}

// open is how every file to lock is opened.
func open(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock file: %w", explain(err))
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() { // a pipe or a device: their descriptors wait and close in other ways
		err = &os.PathError{Op: "open", Path: path, Err: errNotRegular}
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock file: %w", err)
	}
	return file, nil
}

var errNotRegular = errors.New("it is not a regular file")

// Release gives the lock back; again, it does nothing. The file stays: to unlink it would let two processes hold
// locks on two files of the same name.
func (l *Lock) Release() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	file := l.file
	l.file = nil
	return unlock(file)
}

// unlock gives the lock back and closes the file.
func unlock(file *os.File) error {
	// Unlocked before it is closed: a child between its fork and its exec still has the descriptor, and closing ours
	// alone would leave the lock with it for that moment.
	return errors.Join(flockErr(file, unix.Flock(int(file.Fd()), unix.LOCK_UN)), file.Close())
}

func flock(file *os.File) error {
	for again := true; ; again = false {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return flockErr(file, err)
		}
		pid := holder(file)
		if again && pid == os.Getpid() {
			continue // who had it is gone, and a thread of ours that waited on this file may have it now
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

// explain adds what the bare error number leaves to guess.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("its directory does not exist: %w", err)
	case errors.Is(err, unix.ELOOP):
		return fmt.Errorf("it is a symbolic link, and that is not followed: %w", err)
	}
	return err // "is a directory", "read-only file system" and "permission denied" say it themselves
}
