// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package lockfile

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestParseLocks(t *testing.T) {
	locks := parseLocks(strings.NewReader(fmt.Sprintf(`1: POSIX  ADVISORY  WRITE 11 fd:01:7 0 EOF
2: FLOCK  ADVISORY  WRITE 12 fd:02:7 0 EOF
3: FLOCK  ADVISORY  WRITE 13 fd:01:7 0 EOF
3: -> FLOCK  ADVISORY  WRITE 14 fd:01:8 0 EOF
3:  -> FLOCK  ADVISORY  WRITE 15 fd:01:8 0 EOF
3: -> FLOCK  ADVISORY  WRITE %d fd:01:8 0 EOF
3: -> FLOCK  ADVISORY  WRITE -1 fd:01:8 0 EOF
3: -> POSIX  ADVISORY  WRITE 16 fd:01:8 0 EOF
4: FLOCK  ADVISORY  WRITE 0 fd:01:9 0 EOF
odd
5: FLOCK  ADVISORY  WRITE x fd:01:9 0 EOF
5: -> FLOCK
`, os.Getpid())))
	for file, want := range map[string]int{
		"fd:01:7":  13, // neither the POSIX lock nor the other device
		"fd:01:8":  0,  // only waiters
		"fd:01:9":  0,  // in another PID namespace
		"fd:01:70": 0,
	} {
		assert.Equal(t, holder(locks, file), want, "holder of", file)
	}

	for file, want := range map[string][]int{
		"fd:01:7":  nil,
		"fd:01:8":  {14, 15, 0}, // not this process
		"fd:01:80": nil,
	} {
		assert.NoDiff(t, cmp.Diff(want, waiters(locks, file)), "waiters of", file)
	}
}

func TestProcessString(t *testing.T) {
	for pid, want := range map[int]string{
		0: "another process", -1: "another process", 1 << 30: "process 1073741824, which has ended",
		os.Getpid(): fmt.Sprintf("process %d (lockfile.test)", os.Getpid()),
	} {
		assert.Equal(t, process(pid).String(), want, "process", pid, "is called")
	}
}
