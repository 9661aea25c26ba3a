// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

func TestDirectoryOfAKilledProcessIsMadeDurable(t *testing.T) {
	t.Run("by Load", func(t *testing.T) { testDirectoryOfAKilledProcess(t, false) })
	t.Run("by Save, because Load could not", func(t *testing.T) { testDirectoryOfAKilledProcess(t, true) })
}

func testDirectoryOfAKilledProcess(t *testing.T, failed bool) {
	fsys := crashfs.New()
	for _, name := range []string{"/var", "/var/lib"} {
		assert.NoError(t, fsys.Mkdir(name, 0o755))
		assert.NoError(t, fsys.SyncDir(filepath.Dir(name)))
	}

	for _, name := range []string{dir, dir + "/checkpoints", dir + "/rendered", dir + "/" + version} { // and nobody has synced their names
		assert.NoError(t, fsys.Mkdir(name, 0o700))
	}

	s := open(t, fsys)
	if failed {
		fsys.FailFrom(1, syscall.EIO, crashfs.SyncDir)
	}

	s.Load()
	fsys.Heal()
	assert.NoError(t, s.Save(full()))

	after := fsys.Reboot(crashfs.Choices["all lost"])
	loads(t, open(t, after), full())
}

// A disk that rejects the sync of a new directory's name must not leave that
// directory for later: nobody would sync it again.
func TestDirectoryThatOpenCouldNotSyncIsMadeDurableBySave(t *testing.T) {
	fsys := crashfs.New()
	fsys.FailFrom(1, syscall.EIO, crashfs.SyncDir)
	s := open(t, fsys)
	fsys.Heal()
	assert.NoError(t, s.Save(full()))

	loads(t, open(t, fsys.Reboot(crashfs.Choices["all lost"])), full())
}

func TestForgetRequestSurvivesAPowerCut(t *testing.T) {
	fsys := crashfs.New()
	s := open(t, fsys)
	assert.NoError(t, s.Save(full()))
	if err := fsys.Mkdir(dir+"/forget-requests", 0o700); err != nil { // by a command that was killed then
		t.Fatal(err)
	}
	assert.NoError(t, checkpoint.RequestForget(fsys, dir, "uid-c"))

	after := fsys.Reboot(crashfs.Choices["all lost"])
	requests, err := open(t, after).ForgetRequests()
	assert.That(t, err == nil && len(requests) == 1, "%q, %v", requests, err)
}
