// Package figures is what the benchmarks measure processes with, and how they print what they measured: each figure beside
// its floor and its limit.
//
// It must not know what is measured.
package figures

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Row prints one figure, its floor and what it may be.
func Row(what, figure, floor, limit string, ok bool) {
	verdict := "within"
	if !ok {
		verdict = "OVER"
	}
	fmt.Printf("%-58s %12s   floor %-12s limit %-22s %s\n", what, figure, floor, limit, verdict)
}

// Median is the one in the middle. It sorts the values.
func Median[T int | int64 | float64 | time.Duration](values []T) T {
	slices.Sort(values)
	return values[len(values)/2]
}

// CPUTime is what a process has used, of user and system time.
func CPUTime(pid int) (time.Duration, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	const perSecond = 100 // USER_HZ, the same on every Linux that Go knows
	return time.Duration(ticks) * time.Second / perSecond, nil
}

// Memory is what a process has in memory now (VmRSS), and the most that it has had (VmHWM), in bytes.
func Memory(pid int) (now, most int64, err error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(raw)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			now = kib << 10
		} else if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			most = kib << 10
		}
	}
	if now == 0 || most == 0 {
		return 0, 0, fmt.Errorf("process %d has no memory: it has ended", pid)
	}
	return now, most, nil
}

// MiB prints bytes.
func MiB(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
