package lockfile

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// WhoHolds returns the process that took the lock on the file at path, 0 if nobody has it or the kernel does not tell.
// The file is not opened, so that nobody who watches it takes that for wanting the lock.
func WhoHolds(path string) int {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return 0
	}
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return 0
	}
	defer locks.Close()
	return findHolder(locks, fmt.Sprintf("%02x:%02x:%d", unix.Major(uint64(stat.Dev)), unix.Minor(uint64(stat.Dev)), stat.Ino))
}
