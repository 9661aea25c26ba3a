package component

import (
	"io/fs"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownGroup gives a process a group of its own, which no interrupt from the terminal reaches.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// dieWithUs does the same, and has the kernel kill the process when the thread that forks it dies.
func dieWithUs(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
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
