package lockfile

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// holder is the process that took the lock on file, 0 if that is not to be found.
func holder(file *os.File) int {
	id := kernelID(file)
	locks, err := os.Open("/proc/locks")
	if id == "" || err != nil {
		return 0
	}
	defer locks.Close()
	return findHolder(locks, id)
}

// waiters are the processes, other than this one, that wait for the lock on file; 0 is one in another PID namespace.
// Only who has the lock can rely on it: the kernel shows no waiters to those that do not see the holder.
func waiters(file *os.File) []int {
	id := kernelID(file)
	locks, err := os.Open("/proc/locks")
	if id == "" || err != nil {
		return nil
	}
	defer locks.Close()
	return findWaiters(locks, id, os.Getpid())
}

// Waited tells whether another process waits for the lock on the file at path. It is for the one that has it: others are
// shown no waiters.
func Waited(path string) bool {
	file, err := os.OpenFile(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer file.Close()
	return len(waiters(file)) > 0
}

// kernelID is what a file is called in /proc/locks: device and inode number as the file system itself has them, which
// on btrfs and overlayfs is not what stat(2) says. "" if that cannot be told.
func kernelID(file *os.File) string {
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return ""
	}
	major, minor, ino := unix.Major(uint64(stat.Dev)), unix.Minor(uint64(stat.Dev)), stat.Ino
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", file.Fd()))
	if err != nil {
		return fmt.Sprintf("%02x:%02x:%d", major, minor, ino)
	}
	mount := ""
	for line := range strings.Lines(string(info)) {
		_, _ = fmt.Sscanf(line, "mnt_id: %s", &mount)
		_, _ = fmt.Sscanf(line, "ino: %d", &ino) // since Linux 5.14
	}
	if mounts, err := os.Open("/proc/self/mountinfo"); err == nil {
		defer mounts.Close()
		for scanner := bufio.NewScanner(mounts); scanner.Scan(); {
			if field := strings.Fields(scanner.Text()); len(field) > 2 && field[0] == mount {
				_, _ = fmt.Sscanf(field[2], "%d:%d", &major, &minor)
				break
			}
		}
	}
	return fmt.Sprintf("%02x:%02x:%d", major, minor, ino)
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

// process is what a process is called in a message, by its number and its name.
func process(pid int) string {
	if pid <= 0 {
		return "another process"
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return fmt.Sprintf("process %d", pid)
	}
	return fmt.Sprintf("process %d (%s)", pid, printable(strings.TrimSuffix(string(name), "\n")))
}

// printable is a name without what a process could put there to spoil a log or a terminal.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return '?'
	}, name)
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

// WhoHolds returns the process that has the lock on the file at path, 0 if nobody has it or the kernel does not tell. It does
// not open the file.
func WhoHolds(path string) int {
	file, err := os.OpenFile(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer file.Close()
	return holder(file)
}
