// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

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

// newProcessGroup starts a process in its own group, so that it does not
// receive interrupts from the terminal.
func newProcessGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// dieWithParent also makes the kernel kill the process when the thread that
// started it exits.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// confine gives a process an empty network namespace, if permitted, because a
// configuration can name endpoints. Unix sockets stay reachable. It has no
// mounts of its own: a copy of the host's would keep volumes in use that the
// host unmounts.
func confine(cmd *exec.Cmd) {
	if os.Geteuid() == 0 && mayUnshare() {
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNET
	}
}

// mayUnshare reports whether this process may create network namespaces; root
// in a container may not.
var mayUnshare = sync.OnceValue(func() bool {
	cmd := exec.Command("/proc/self/exe")
	cmd.Path = "/nonexistent" // cloned, but never executed
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	return errors.Is(cmd.Start(), fs.ErrNotExist)
})

// unmount detaches everything that is mounted on a directory; nothing, if it is
// a link.
func unmount(dir string) {
	for unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil {
	}
}

// limitMemory limits the data segment of a process, in bytes, and makes it the
// first choice of the OOM killer, if permitted. It returns nil if the process
// has exited.
func limitMemory(pid int, memory uint64) error {
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

// keepDescriptors keeps child processes from inheriting descriptors that this
// process inherited. Go's own files are never inherited.
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

// sigkilled reports whether a process died of SIGKILL, which comes from
// outside: from a person, or from the OOM killer.
func sigkilled(exit *exec.ExitError) bool {
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// killGroup kills the process group of a process.
func killGroup(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// deviceInode returns the numbers that change when a file is replaced.
func deviceInode(info fs.FileInfo) (device, inode uint64) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Dev, st.Ino
	}

	return 0, 0
}

// renameNew renames a file, or returns fs.ErrExist if the new name is in use.
func renameNew(from, to string) error {
	return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
}
