// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package hostns

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// CommandLine is a command line with programs of the image of a container:
// AGENT [FLAGS] -- KUBELET [FLAGS], or AGENT COMMAND [ARGS]. Its programs are
// open, so that they can be copied to the host.
type CommandLine struct {
	args     []string
	at       []int // indexes of the programs in args
	programs []*Program
}

// programsOf returns the indexes of the programs in a command line; none if it
// is not a CommandLine.
func programsOf(args []string) []int {
	second := slices.Index(args, "--")
	if second != 0 && len(args) > 1 && args[1] != "" && args[1][0] != '-' {
		return []int{0}
	}
	if second >= 1 && second+1 < len(args) {
		return []int{0, second + 1}
	}

	return nil
}

// IsCommandLine reports whether OpenCommandLine accepts these arguments.
func IsCommandLine(args []string) bool { return programsOf(args) != nil }

// OpenCommandLine opens the programs of a command line. The error names the
// program that cannot be used.
func OpenCommandLine(args []string) (*CommandLine, error) {
	c := &CommandLine{args: slices.Clone(args), at: programsOf(args)}
	for _, i := range c.at {
		p, err := OpenProgram(args[i])
		if err != nil {
			c.Close()
			return nil, err
		}

		c.programs = append(c.programs, p)
	}

	return c, nil
}

// Close closes the programs.
func (c *CommandLine) Close() {
	for _, p := range c.programs {
		_ = p.Close()
	}
}

// startDelay is the time for the container runtime to report to the kubelet
// that this container has started. If a bootstrap kubelet is asked to release
// the node earlier, it exits during that request, and the runtime removes the
// container.
const startDelay = 2 * time.Second

// Target says how to run a command line on the host.
type Target struct {
	BinDir string // directory on the host for the copies of the programs
	Keep   int    // how many copies of each program to keep
	// Needed returns a function that reports whether an older copy must stay,
	// for example because a unit names it.
	Needed func() (needed func(path string) bool, err error)
	Log    *slog.Logger
}

// Become moves to the namespaces of the host, copies the programs there, and
// replaces this process by the command line. It returns only on an error.
func (c *CommandLine) Become(t Target) error {
	begin := time.Now()
	if err := enterFirst(); err != nil {
		return err
	}

	bin, err := OpenBin(filepath.Clean(t.BinDir))
	if err != nil {
		return err
	}

	defer bin.Close()
	args := slices.Clone(c.args)
	for k, i := range c.at {
		if args[i], err = bin.Put(c.programs[k]); err != nil {
			return err
		}
	}

	needed, err := t.Needed()
	if err == nil {
		err = bin.Prune(t.Keep, needed, c.programs...)
	}
	if err != nil {
		t.Log.Warn("cannot remove old copies of programs", "err", err)
	}

	if len(c.at) > 1 {
		t.Log.Info("moved to the host", "agent", args[0], "kubelet", args[c.at[1]])
		time.Sleep(startDelay - time.Since(begin)) // the agent will ask the bootstrap kubelet to release the node
	} else {
		t.Log.Info("moved to the host", "agent", args[0], "command", args[1])
	}

	err = syscall.Exec(args[0], args, Environ(os.Environ()))

	return fmt.Errorf("run %s on the host (it must not depend on libraries of the image): %w", args[0], err)
}

// enterFirst moves this goroutine to the namespaces of the host's first
// process.
func enterFirst() error {
	if err := CheckPIDs(os.Getenv("KUBERNETES_SERVICE_HOST") != ""); err != nil {
		return err
	}

	host, err := Open(First)
	if err != nil {
		return err
	}

	defer host.Close()

	return host.Enter()
}

// nobody is the user and the group without rights of their own.
const nobody = 65534

// Drop gives up all privileges of this process for good: it becomes an
// unprivileged user without groups and capabilities, and no program that it
// executes has more. What it has open stays open. After an error, part of the
// privileges may be gone. A program that uses cgo cannot do this.
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
