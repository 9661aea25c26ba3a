// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

func TestGivenUpIsKeptUntilItIsCleared(t *testing.T) {
	disk := crashfs.New()
	disk.PlantDir(dir, 0o700)
	if got, err := checkpoint.LastGivenUp(disk, dir); err != nil || got != (checkpoint.GivenUp{}) {
		t.Errorf("before: %+v, %v", got, err)
	}

	want := checkpoint.GivenUp{By: "a", At: time.Unix(1700000000, 0).UTC(), Times: 2}
	if err := checkpoint.SetGivenUp(disk, dir, want); err != nil {
		t.Fatal(err)
	}

	disk = disk.Reboot(crashfs.Choices["all lost"])
	if got, err := checkpoint.LastGivenUp(disk, dir); err != nil || got != want {
		t.Errorf("after a crash: %+v, %v, want %+v", got, err, want)
	}

	for range 2 {
		if err := checkpoint.ClearGivenUp(disk, dir); err != nil {
			t.Error(err)
		}
	}

	if got, err := checkpoint.LastGivenUp(disk, dir); err != nil || got != (checkpoint.GivenUp{}) {
		t.Errorf("after it is forgotten: %+v, %v", got, err)
	}

	disk.Plant(dir+"/given-up", []byte("{"))
	if got, err := checkpoint.LastGivenUp(disk, dir); err == nil || !strings.HasPrefix(err.Error(), dir+"/given-up: ") || got != (checkpoint.GivenUp{}) {
		t.Errorf("of what is no record: %+v, %v", got, err)
	}

	disk.FailAt(1, syscall.EROFS)
	if err := checkpoint.ClearGivenUp(disk, dir); err == nil {
		t.Error("a disk that refuses says nothing")
	}
}
