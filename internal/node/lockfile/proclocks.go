// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package lockfile

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/internal/printable"
)

// lockEntry is a flock(2) in /proc/locks.
type lockEntry struct {
	waiting bool
	pid     int    // 0: in another PID namespace
	file    string // see kernelID
}

// parseLocks reads lines such as "5: FLOCK ADVISORY WRITE 4711 fd:01:131078 0
// EOF", or, for a process that waits, "5: -> FLOCK ADVISORY WRITE 4711
// fd:01:131078 0 EOF". It skips other locks.
func parseLocks(locks io.Reader) (entries []lockEntry) {
	for scanner := bufio.NewScanner(locks); scanner.Scan(); {
		field := strings.Fields(scanner.Text())
		waiting := len(field) > 1 && field[1] == "->"
		if waiting {
			field = slices.Delete(field, 1, 2)
		}
		if len(field) < 6 || field[1] != "FLOCK" {
			continue
		}
		if pid, err := strconv.Atoi(field[4]); err == nil {
			entries = append(entries, lockEntry{waiting, max(pid, 0), field[5]})
		}
	}

	return entries
}

// kernelLocks returns the present entries, none if they cannot be read.
func kernelLocks() []lockEntry {
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return nil
	}

	defer locks.Close()

	return parseLocks(locks)
}

// holder returns the process that has the lock on a file; 0 if there is none,
// or it is not visible.
func holder(locks []lockEntry, file string) int {
	for _, l := range locks {
		if !l.waiting && l.pid > 0 && l.file == file {
			return l.pid
		}
	}

	return 0
}

// waiters returns the processes, other than this one, that wait for the lock on
// a file; 0 is one in another PID namespace. The list is complete only for the
// holder: the kernel shows waiters only to processes that can see the holder.
func waiters(locks []lockEntry, file string) (pids []int) {
	for _, l := range locks {
		if l.waiting && l.file == file && l.pid != os.Getpid() {
			pids = append(pids, l.pid)
		}
	}

	return pids
}

func holderOf(file *os.File) int { return holder(kernelLocks(), kernelID(file)) }

func waitersFor(file *os.File) []int { return waiters(kernelLocks(), kernelID(file)) }

// WhoHolds returns the process that has the lock on the file at path, 0 if
// there is none or it is unknown. It does not open the file, so processes that
// watch for that do not notice.
func WhoHolds(path string) int { return holder(kernelLocks(), kernelIDAt(path)) }

// Held reports whether a visible process has the lock on the file at path. It
// does not open the file.
func Held(path string) bool { return WhoHolds(path) > 0 }

// HasWaiters reports whether another process waits for the lock on the file at
// path. Only the holder gets a complete answer. It does not open the file.
func HasWaiters(path string) bool { return len(waiters(kernelLocks(), kernelIDAt(path))) > 0 }

// Waiting reports whether a process waits for any flock(2) of another process;
// false if that is unknown.
func Waiting(pid int) bool {
	return slices.ContainsFunc(kernelLocks(), func(l lockEntry) bool { return l.waiting && l.pid == pid })
}

// unknownFile is the kernelID of a file that cannot be identified. It is not in
// /proc/locks.
const unknownFile = ""

// kernelID returns the name of an open file in /proc/locks.
func kernelID(file *os.File) string { return statID(int(file.Fd()), "", unix.AT_EMPTY_PATH) }

// kernelIDAt returns the name of the file at path in /proc/locks. It does not
// open the file, not even with O_PATH, which older kernels report to processes
// that watch the file.
func kernelIDAt(path string) string { return statID(unix.AT_FDCWD, path, 0) }

// statID combines the inode number with the device number of the file system.
// The latter comes from the mount, because stat(2) returns another device on
// btrfs and overlayfs.
func statID(dir int, path string, flags int) string {
	var stat unix.Statx_t
	if err := unix.Statx(dir, path, flags|unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_INO|unix.STATX_MNT_ID, &stat); err != nil {
		return unknownFile
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

// Process is a process that has a lock, or waits for one.
type Process struct {
	PID  int    // 0: not visible, as in another PID namespace
	Name string // empty: the process has ended; if the lock is still taken, another process inherited the file
}

// process looks up the present name of a process.
func process(pid int) Process {
	p := Process{PID: max(pid, 0)}
	if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.PID)); err == nil {
		p.Name = printable.Line(string(name)) // a process can choose any text
	}

	return p
}

// String describes the process in messages.
func (p Process) String() string {
	switch {
	case p.PID == 0:
		return "another process"
	case p.Name == "":
		return fmt.Sprintf("process %d, which has ended", p.PID)
	}

	return fmt.Sprintf("process %d (%s)", p.PID, p.Name)
}
