package lockfile

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/internal/printable"
)

// holder is the process that took the lock on file, 0 if that is not to be found.
func holder(file *os.File) int { return holderOf(kernelID(file)) }

func holderOf(id string) int {
	locks, err := os.Open("/proc/locks")
	if id == "" || err != nil {
		return 0
	}
	defer locks.Close()
	return findHolder(locks, id)
}

// waiters are the processes, other than this one, that wait for the lock on file; 0 is one in another PID namespace.
// Only who has the lock can rely on it: the kernel shows no waiters to those that do not see the holder.
func waiters(file *os.File) []int { return waitersFor(kernelID(file)) }

func waitersFor(id string) []int {
	locks, err := os.Open("/proc/locks")
	if id == "" || err != nil {
		return nil
	}
	defer locks.Close()
	return findWaiters(locks, id, os.Getpid())
}

// Waited tells whether another process waits for the lock on the file at path. It is for the one that has it: others are
// shown no waiters. It does not open the file.
func Waited(path string) bool { return len(waitersFor(kernelIDAt(path))) > 0 }

// kernelID is what an open file is called in /proc/locks; "" if that cannot be told.
func kernelID(file *os.File) string { return statID(int(file.Fd()), "", unix.AT_EMPTY_PATH) }

// kernelIDAt is what the file at path is called there. The file is not opened: not with O_PATH either, which older kernels
// tell those of who watch it.
func kernelIDAt(path string) string { return statID(unix.AT_FDCWD, path, 0) }

// statID has the inode number and the device, as the file system itself has them: stat(2) says another device on btrfs
// and overlayfs, so that the mount is asked.
func statID(dir int, path string, flags int) string {
	var stat unix.Statx_t
	if err := unix.Statx(dir, path, flags|unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_INO|unix.STATX_MNT_ID, &stat); err != nil {
		return ""
	}
	major, minor := stat.Dev_major, stat.Dev_minor
	mounts, err := os.Open("/proc/self/mountinfo")
	if stat.Mask&unix.STATX_MNT_ID != 0 && err == nil { // since Linux 5.8
		defer mounts.Close()
		mount := strconv.FormatUint(stat.Mnt_id, 10)
		for scanner := bufio.NewScanner(mounts); scanner.Scan(); {
			if field := strings.Fields(scanner.Text()); len(field) > 2 && field[0] == mount {
				_, _ = fmt.Sscanf(field[2], "%d:%d", &major, &minor)
				break
			}
		}
	}
	return fmt.Sprintf("%02x:%02x:%d", major, minor, stat.Ino)
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

// findWaiters reads lines such as "5: -> FLOCK  ADVISORY  WRITE 4711 fd:01:131078 0 EOF".
func findWaiters(locks io.Reader, id string, self int) []int {
	var pids []int
	for scanner := bufio.NewScanner(locks); scanner.Scan(); {
		field := strings.Fields(scanner.Text())
		if len(field) < 7 || field[1] != "->" || field[2] != "FLOCK" || field[6] != id {
			continue
		}
		if pid, err := strconv.Atoi(field[5]); err == nil && pid != self {
			pids = append(pids, max(pid, 0))
		}
	}
	return pids
}

// Process is one that has a lock, or waits for one.
type Process struct {
	PID  int    // 0: it is not to be seen, as in another PID namespace
	Name string // empty: there is no such process any more; if the lock stays taken, another one has the file from it
}

// process adds the name that a process has now.
func process(pid int) Process {
	p := Process{PID: max(pid, 0)}
	if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.PID)); err == nil {
		p.Name = printable.Line(string(name)) // a process can put there what it likes
	}
	return p
}

// String is what the process is called in a message.
func (p Process) String() string {
	switch {
	case p.PID == 0:
		return "another process"
	case p.Name == "":
		return fmt.Sprintf("process %d, which has ended", p.PID)
	}
	return fmt.Sprintf("process %d (%s)", p.PID, p.Name)
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

// Held tells whether a process has the lock on the file at path, without taking it, and without a word to those who
// watch for the file being opened. It says no when that cannot be told.
func Held(path string) bool { return WhoHolds(path) > 0 }

// WhoHolds returns the process that has the lock on the file at path, 0 if nobody has it or the kernel does not tell. It
// does not open the file.
func WhoHolds(path string) int { return holderOf(kernelIDAt(path)) }
