// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package procs lists processes. It must not know whose they are.
package procs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
)

// Process is a process.
type Process struct {
	PID  int
	Argv []string
	Dir  string // in the proc file system
}

// All returns the processes of a proc file system, such as /proc.
func All(proc string) []Process {
	dirs, _ := filepath.Glob(filepath.Join(proc, "[0-9]*")) // the pattern is valid
	return read(dirs)
}

// Children returns the children of a process.
func Children(proc string, pid int) []Process {
	threads, _ := filepath.Glob(fmt.Sprintf("%s/%d/task/*/children", proc, pid)) // the pattern is valid
	var dirs []string
	for _, file := range threads {
		raw, _ := os.ReadFile(file) // empty if that thread has ended
		for child := range strings.FieldsSeq(string(raw)) {
			dirs = append(dirs, filepath.Join(proc, child))
		}
	}

	return read(dirs)
}

// Parent returns the process ID of the parent of a process; 0 if the process
// has ended.
func Parent(pid int) int {
	s, _ := stat(pid) // zero if it has ended
	return s.PPID
}

// Ended reports whether a process has ended. Its parent may not know yet.
func Ended(pid int) bool {
	s, err := stat(pid)
	return err != nil || s.State == "Z"
}

func stat(pid int) (procfs.ProcStat, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, err
	}

	return process.Stat()
}

// read leaves out processes that have ended.
func read(dirs []string) (found []Process) {
	for _, dir := range dirs {
		pid, numErr := strconv.Atoi(filepath.Base(dir))
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err == nil && numErr == nil {
			found = append(found, Process{pid, strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00"), dir})
		}
	}

	return found
}
