// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package figures measures processes for the benchmarks and the demo (CPU time,
// memory, times without an answer), and prints results: each figure beside its
// floor and its limit.
//
// The package must not know what is measured.
package figures

import (
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/procfs"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// PrintRow prints one figure with its floor and its limit.
func PrintRow(what, figure, floor, limit string, ok bool) {
	verdict := "within"
	if !ok {
		verdict = "OVER"
	}

	fmt.Printf("%-58s %12s   floor %-12s limit %-22s %s\n", what, figure, floor, limit, verdict)
}

// Median sorts the values and returns the middle one.
func Median[T int | int64 | float64 | time.Duration](values []T) T {
	slices.Sort(values)
	return values[len(values)/2]
}

// CPUTime returns the user and system time that a process has used.
func CPUTime(pid int) (_ time.Duration, err error) {
	defer must.Catch(&err)

	stat := must.Get(must.Get(procfs.NewProc(pid)).Stat())

	return time.Duration(stat.CPUTime() * float64(time.Second)), nil
}

// Memory returns the resident memory of a process (VmRSS) and its maximum so
// far (VmHWM), in bytes.
func Memory(pid int) (now, most int64, err error) {
	s, err := status(pid)
	return int64(s.VmRSS), int64(s.VmHWM), err
}

// FileMemory returns how much of the resident memory of a process are pages of
// files, such as its program (RssFile), in bytes. The kernel can drop them.
func FileMemory(pid int) (int64, error) {
	s, err := status(pid)
	return int64(s.RssFile), err
}

// OwnMemory returns how much of the resident memory of a process is its own
// (RssAnon), in bytes.
func OwnMemory(pid int) (int64, error) {
	s, err := status(pid)
	return int64(s.RssAnon), err
}

func status(pid int) (s procfs.ProcStatus, err error) {
	defer must.Catch(&err)

	s = must.Get(must.Get(procfs.NewProc(pid)).NewStatus())
	must.That(s.VmRSS > 0, "process %d has ended", pid)

	return s, nil
}

// MiB formats a number of bytes.
func MiB(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
