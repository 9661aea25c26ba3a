package component

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownGroup gives a process a group of its own, which no interrupt from the terminal reaches.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// dieWithUs does the same, and has the kernel kill the process when the thread that forks it dies.
func dieWithUs(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// confine gives a process a network of its own, with nothing in it, where we may: a configuration can name endpoints.
// Sockets in the file system are reached all the same.
func confine(cmd *exec.Cmd) {
	if os.Geteuid() == 0 && mayUnshare() {
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNET
	}
}

// mayUnshare reports whether this process may make network namespaces; root in a container may not.
var mayUnshare = sync.OnceValue(func() bool {
	cmd := exec.Command("/proc/self/exe")
	cmd.Path = "/nonexistent" // cloned, and never run
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	return errors.Is(cmd.Start(), fs.ErrNotExist)
})

// limit bounds a process's data, in bytes, and makes it the first that the OOM killer takes, where /proc lets us. The
// error is nil if the process has ended.
func limit(pid int, memory uint64) error {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("1000"), 0o644)
	data := unix.Rlimit{Cur: memory, Max: memory}
	err := errors.Join(
		unix.Prlimit(pid, unix.RLIMIT_DATA, &data, nil),
		unix.Prlimit(pid, unix.RLIMIT_CORE, &unix.Rlimit{}, nil),
	)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// keepDescriptors keeps what this process was given by its own parent from those that it starts. What Go opens is kept
// anyway.
func keepDescriptors() {
	const first = 3
	if unix.CloseRange(first, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	entries, _ := os.ReadDir("/proc/self/fd") // before Linux 5.11
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= first {
			unix.CloseOnExec(fd)
		}
	}
}

// killed reports whether a process died of SIGKILL, which others send: a person, or the kernel when memory is short.
func killed(exit *exec.ExitError) bool {
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// killGroup kills a process that was given a group, and what it has started.
func killGroup(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// numbers are what tells a file from another that was put in its place.
func numbers(info fs.FileInfo) (device, inode uint64) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev), st.Ino
	}
	return 0, 0
}

// renameNew renames a file; fs.ErrExist if there is one of the new name.
func renameNew(from, to string) error {
	return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
}
