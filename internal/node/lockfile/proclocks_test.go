// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package lockfile

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

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

func FuzzLocks(f *testing.F) {
	if data, err := os.ReadFile("/proc/locks"); err == nil {
		f.Add(string(data))
	}

	for _, text := range []string{
		"5: FLOCK  ADVISORY  WRITE 4711 fd:01:131078 0 EOF\n5: -> FLOCK  ADVISORY  WRITE 4712 fd:01:131078 0 EOF\n",
		"1: POSIX  ADVISORY  READ 1 00:10:1 0 EOF", "2: -> FLOCK", "3: FLOCK ADVISORY WRITE -1 fd:01:131078 0 EOF", "4: -> -> FLOCK ADVISORY WRITE 1 fd:01:131078", "", "->",
	} {
		f.Add(text)
	}

	f.Fuzz(func(t *testing.T, text string) {
		entries := parseLocks(strings.NewReader(text))
		assert.That(t, len(entries) <= strings.Count(text, "FLOCK"), "%q has %d locks", text, len(entries))
		for _, l := range entries {
			assert.That(t, l.pid >= 0 && l.file != "" && strings.Contains(text, l.file), "%q has the lock %+v", text, l)
		}

		const file = "fd:01:131078"
		pid := holder(entries, file)
		assert.That(t, pid == 0 || slices.Contains(entries, lockEntry{pid: pid, file: file}), "in %q, %d holds the lock", text, pid)

		for _, pid := range waiters(entries, file) {
			assert.That(t, pid != os.Getpid() && slices.Contains(entries, lockEntry{waiting: true, pid: pid, file: file}), "in %q, %d waits", text, pid)
		}
	})
}

func TestWaiting(t *testing.T) {
	path := lockPath(t)
	lock := acquire(t, path)
	waiter := exec.Command("flock", path, "sleep", "60") // of util-linux
	assert.NoError(t, waiter.Start())
	defer func() {
		_ = waiter.Process.Kill()
		_ = waiter.Wait()
	}()
	queued(t, waiter.Process.Pid)
	assert.That(t, !Waiting(os.Getpid()), "Waiting is true for this process")
	assert.NoError(t, lock.Release())
	assert.Eventually(t, "the waiter has the lock", func() bool { return !Waiting(waiter.Process.Pid) })
}

func TestHeldAndWhoHoldsDoNotOpenTheFile(t *testing.T) {
	path := lockPath(t)
	assert.That(t, WhoHolds(path) == 0 && !Held(path), "a missing file is held")
	pid, end := startHolder(t, path)
	watch := assert.Value(unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC))(t)
	defer unix.Close(watch)
	assert.NoError(t, assert.Err(unix.InotifyAddWatch(watch, path, unix.IN_OPEN)))
	assert.That(t, WhoHolds(path) == pid && Held(path), "process %d does not hold it", pid)
	n, err := unix.Read(watch, make([]byte, 256))
	assert.That(t, errors.Is(err, unix.EAGAIN), "the file was opened: %d bytes, %v", n, err)

	end()
	assert.That(t, WhoHolds(path) == 0 && !Held(path), "it is held, although the holder ended")
}
