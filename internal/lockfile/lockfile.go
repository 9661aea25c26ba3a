// Package lockfile takes an exclusive lock on a file with flock(2), so that one process at a time works on what the
// file stands for. It is the lock that the stock kubelet takes for --lock-file, and the two exclude each other.
//
// It must not know who locks what, or why. The file's content means nothing and is never touched.
package lockfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrHeld says that the lock is taken: by another process, or by this one through another Lock.
var ErrHeld = errors.New("the lock is held")

// Lock is a lock that is held until Release, or until the process is gone, however it ends.
type Lock struct {
	mu   sync.Mutex
	file *os.File // nil once released
}

// TryAcquire takes the lock on the file at path, creating the file if there is none, and does not wait. If the lock
// is taken the error is ErrHeld and names the file and, where the kernel tells it, the process that took it.
//
// Any other error is one of opening the file: fs.ErrNotExist for a directory that is missing, EISDIR, ELOOP for a
// symbolic link (which is not followed: who may write the directory must not choose another file to lock), EROFS,
// fs.ErrPermission.
//
// A process that watches the file sees it being opened, also when the lock was not to be had: a kubelet with
// --exit-on-lock-contention gives way on that.
func TryAcquire(path string) (*Lock, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock file: %w", explain(err))
	}
	if err := flock(file); err != nil {
		_ = file.Close() // nothing was written and nothing is locked
		return nil, err
	}
	return &Lock{file: file}, nil
}

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
	// Unlocked before it is closed: a child between its fork and its exec still has the descriptor, and closing ours
	// alone would leave the lock with it for that moment.
	return errors.Join(flockErr(file, unix.Flock(int(file.Fd()), unix.LOCK_UN)), file.Close())
}

func flock(file *os.File) error {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return flockErr(file, err)
	}
	if pid := holder(file); pid > 0 {
		return fmt.Errorf("lock file %s: %w by process %d", file.Name(), ErrHeld, pid)
	}
	return fmt.Errorf("lock file %s: %w by another process", file.Name(), ErrHeld)
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

// holder is the process that took the lock on file, 0 if that is not to be found.
func holder(file *os.File) int {
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return 0
	}
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return 0
	}
	defer locks.Close()
	id := fmt.Sprintf("%02x:%02x:%d", unix.Major(uint64(stat.Dev)), unix.Minor(uint64(stat.Dev)), stat.Ino)
	return findHolder(locks, id)
}

// findHolder reads lines such as "5: FLOCK  ADVISORY  WRITE 4711 fd:01:131078 0 EOF". Those who wait have "->" in
// the second field. The process is 0 or negative where it lives in another PID namespace.
func findHolder(locks io.Reader, id string) int {
	for scanner := bufio.NewScanner(locks); scanner.Scan(); {
		field := strings.Fields(scanner.Text())
		if len(field) < 6 || field[1] != "FLOCK" || field[5] != id {
			continue
		}
		if pid, err := strconv.Atoi(field[4]); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}

// Waiting tells whether a process waits for some flock(2) that another one has. It says no when that cannot be told.
func Waiting(pid int) bool {
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return false
	}
	defer locks.Close()
	return findWaiter(locks, strconv.Itoa(pid))
}

// findWaiter reads lines such as "5: -> FLOCK  ADVISORY  WRITE 4711 fd:01:131078 0 EOF".
func findWaiter(locks io.Reader, pid string) bool {
	for scanner := bufio.NewScanner(locks); scanner.Scan(); {
		field := strings.Fields(scanner.Text())
		if len(field) > 5 && field[1] == "->" && field[2] == "FLOCK" && field[5] == pid {
			return true
		}
	}
	return false
}

// Held tells whether a process has the lock on the file at path, without taking it. It says no when that cannot be told.
func Held(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	return holder(file) > 0
}
