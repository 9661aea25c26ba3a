// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

func TestRunningReturnsWhatSetRunningSaved(t *testing.T) {
	disk := crashfs.New()
	disk.PlantDir(dir, 0o700)
	if _, err := checkpoint.Running(disk, dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before anything was kept: %v", err)
	}
	if err := checkpoint.ClearRunning(disk, dir); err != nil {
		t.Error(err)
	}

	for _, about := range []string{"first", "second"} {
		if err := checkpoint.SetRunning(disk, dir, []byte(about)); err != nil {
			t.Fatal(err)
		}
		if got, err := checkpoint.Running(disk, dir); err != nil || string(got) != about {
			t.Errorf("%q, %v, want %q", got, err, about)
		}
	}
}

func TestFailedSetRunningRemovesTheOldDescription(t *testing.T) {
	for n := 1; n <= 4; n++ {
		disk := crashfs.New()
		disk.PlantDir(dir, 0o700)
		if err := checkpoint.SetRunning(disk, dir, []byte("before")); err != nil {
			t.Fatal(err)
		}

		disk.FailAt(n, syscall.ENOSPC)
		err := checkpoint.SetRunning(disk, dir, []byte("after"))
		disk.Heal()
		got, readErr := checkpoint.Running(disk, dir)
		if err == nil && (readErr != nil || string(got) != "after") || err != nil && !errors.Is(readErr, fs.ErrNotExist) || n <= 2 && !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("operation %d: %q, %v after %v", n, got, readErr, err)
		}
		if entries, err := disk.ReadDir(dir); err != nil || len(entries) > 1 {
			t.Errorf("operation %d left %v, %v", n, entries, err)
		}
	}
}

func TestClearRunningRemovesTheDescriptionOrReturnsAnError(t *testing.T) {
	disk := crashfs.New()
	disk.PlantDir(dir, 0o700)
	if err := checkpoint.ClearRunning(disk, dir); err != nil {
		t.Errorf("with nothing to forget: %v", err)
	}
	if err := checkpoint.SetRunning(disk, dir, []byte("old")); err != nil {
		t.Fatal(err)
	}

	disk.FailAt(1, syscall.EROFS)
	if err := checkpoint.ClearRunning(disk, dir); !errors.Is(err, syscall.EROFS) {
		t.Errorf("on a disk that refuses: %v", err)
	}

	disk.Heal()
	if err := checkpoint.ClearRunning(disk, dir); err != nil {
		t.Error(err)
	}
	if _, err := checkpoint.Running(disk, dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("afterwards: %v", err)
	}
}
