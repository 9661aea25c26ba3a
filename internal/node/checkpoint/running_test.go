// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

func TestRunningReturnsWhatSetRunningSavedUntilItIsCleared(t *testing.T) {
	disk := crashfs.New()
	disk.PlantDir(dir, 0o700)
	assert.Is(t, assert.Err(checkpoint.Running(disk, dir)), fs.ErrNotExist, "before anything was kept")
	assert.OK(t, checkpoint.ClearRunning(disk, dir), "with nothing to forget")

	for _, about := range []string{"first", "second"} {
		assert.NoError(t, checkpoint.SetRunning(disk, dir, []byte(about)))
		got, err := checkpoint.Running(disk, dir)
		assert.That(t, err == nil && string(got) == about, "%q, %v, want %q", got, err, about)
	}

	disk.FailAt(1, syscall.EROFS)
	assert.Is(t, checkpoint.ClearRunning(disk, dir), syscall.EROFS, "on a disk that refuses")
	disk.Heal()
	assert.OK(t, checkpoint.ClearRunning(disk, dir))
	assert.Is(t, assert.Err(checkpoint.Running(disk, dir)), fs.ErrNotExist, "afterwards")
}

func TestFailedSetRunningRemovesTheOldDescription(t *testing.T) {
	for n := 1; n <= 4; n++ {
		disk := crashfs.New()
		disk.PlantDir(dir, 0o700)
		assert.NoError(t, checkpoint.SetRunning(disk, dir, []byte("before")))

		disk.FailAt(n, syscall.ENOSPC)
		err := checkpoint.SetRunning(disk, dir, []byte("after"))
		disk.Heal()
		got, readErr := checkpoint.Running(disk, dir)
		if err == nil && (readErr != nil || string(got) != "after") || err != nil && !errors.Is(readErr, fs.ErrNotExist) || n <= 2 && !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("operation %d: %q, %v after %v", n, got, readErr, err)
		}
		entries, err := disk.ReadDir(dir)
		assert.That(t, err == nil && len(entries) <= 1, "operation %d left %v, %v", n, entries, err)
	}
}

func TestGivenUpIsKeptUntilItIsCleared(t *testing.T) {
	disk := crashfs.New()
	disk.PlantDir(dir, 0o700)
	assert.Returns(t, checkpoint.GivenUp{}, "before")(checkpoint.LastGivenUp(disk, dir))

	want := checkpoint.GivenUp{By: "a", At: time.Unix(1700000000, 0).UTC(), Times: 2}
	assert.NoError(t, checkpoint.SetGivenUp(disk, dir, want))

	disk = disk.Reboot(crashfs.Choices["all lost"])
	assert.Returns(t, want, "after a crash")(checkpoint.LastGivenUp(disk, dir))

	for range 2 {
		assert.OK(t, checkpoint.ClearGivenUp(disk, dir))
	}

	assert.Returns(t, checkpoint.GivenUp{}, "after it is forgotten")(checkpoint.LastGivenUp(disk, dir))

	disk.Plant(dir+"/given-up", []byte("{"))
	got, err := checkpoint.LastGivenUp(disk, dir)
	assert.That(t, err != nil && strings.HasPrefix(err.Error(), dir+"/given-up: ") && got == (checkpoint.GivenUp{}),
		"of what is no record: %+v, %v", got, err)

	disk.FailAt(1, syscall.EROFS)
	err = checkpoint.ClearGivenUp(disk, dir)
	assert.That(t, err != nil, "a disk that refuses says nothing")
}
