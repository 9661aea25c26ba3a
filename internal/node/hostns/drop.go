// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package hostns

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// nobody is the user and the group without rights of their own.
const nobody = 65534

// Drop gives up all privileges of this process for good: it becomes an unprivileged user without groups and capabilities, and no
// program that it executes has more. What it has open stays open. After an error, part of the privileges may be gone. A program
// that uses cgo cannot do this.
func Drop() error {
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); errno != 0 {
		return fmt.Errorf("set no_new_privs: %w", errno)
	}
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("leave all groups: %w", err)
	}
	if err := syscall.Setresgid(nobody, nobody, nobody); err != nil {
		return fmt.Errorf("become group %d: %w", nobody, err)
	}
	if err := syscall.Setresuid(nobody, nobody, nobody); err != nil { // the kernel also drops all capabilities
		return fmt.Errorf("become user %d: %w", nobody, err)
	}
	return nil
}
