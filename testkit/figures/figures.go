// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package figures measures processes for the benchmarks and the demo (CPU time,
// memory, times without an answer), and prints results: each figure beside its
// floor and its limit.
//
// The package must not know what is measured.
package figures

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

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

	raw := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)))
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] {
		ticks += must.Get(strconv.ParseInt(field, 10, 64))
	}

	const perSecond = 100 // USER_HZ, the same on every Linux that Go supports

	return time.Duration(ticks) * time.Second / perSecond, nil
}

// Memory returns the resident memory of a process (VmRSS) and its maximum so
// far (VmHWM), in bytes.
func Memory(pid int) (now, most int64, err error) {
	now, err = statusField(pid, "VmRSS")
	if err == nil {
		most, err = statusField(pid, "VmHWM")
	}

	return now, most, err
}

// FileMemory returns how much of the resident memory of a process are pages of
// files, such as its program (RssFile), in bytes. The kernel can drop them.
func FileMemory(pid int) (int64, error) { return statusField(pid, "RssFile") }

// OwnMemory returns how much of the resident memory of a process is its own
// (RssAnon), in bytes.
func OwnMemory(pid int) (int64, error) { return statusField(pid, "RssAnon") }

func statusField(pid int, name string) (int64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}

	for line := range strings.Lines(string(raw)) {
		var kib int64
		if _, err := fmt.Sscanf(line, name+": %d kB", &kib); err == nil {
			return kib << 10, nil
		}
	}

	return 0, fmt.Errorf("process %d has ended", pid)
}

// MiB formats a number of bytes.
func MiB(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
