// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

func TestGivenUpIsKeptUntilItIsCleared(t *testing.T) {
	disk := crashfs.New()
	disk.PlantDir(dir, 0o700)
	got, err := checkpoint.LastGivenUp(disk, dir)
	assert.That(t, err == nil && got == (checkpoint.GivenUp{}), "before: %+v, %v", got, err)

	want := checkpoint.GivenUp{By: "a", At: time.Unix(1700000000, 0).UTC(), Times: 2}
	assert.NoError(t, checkpoint.SetGivenUp(disk, dir, want))

	disk = disk.Reboot(crashfs.Choices["all lost"])
	got, err = checkpoint.LastGivenUp(disk, dir)
	assert.That(t, err == nil && got == want, "after a crash: %+v, %v, want %+v", got, err, want)

	for range 2 {
		assert.OK(t, checkpoint.ClearGivenUp(disk, dir))
	}

	got, err = checkpoint.LastGivenUp(disk, dir)
	assert.That(t, err == nil && got == (checkpoint.GivenUp{}), "after it is forgotten: %+v, %v", got, err)

	disk.Plant(dir+"/given-up", []byte("{"))
	got, err = checkpoint.LastGivenUp(disk, dir)
	assert.That(t, err != nil && strings.HasPrefix(err.Error(), dir+"/given-up: ") && got == (checkpoint.GivenUp{}),
		"of what is no record: %+v, %v", got, err)

	disk.FailAt(1, syscall.EROFS)
	err = checkpoint.ClearGivenUp(disk, dir)
	assert.That(t, err != nil, "a disk that refuses says nothing")
}
