// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package lockfile

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

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
	if n, err := unix.Read(watch, make([]byte, 256)); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("the file was opened: %d bytes, %v", n, err)
	}

	end()
	assert.That(t, WhoHolds(path) == 0 && !Held(path), "it is held, although the holder ended")
}
