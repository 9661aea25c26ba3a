// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

func TestDirectoryOfAKilledProcessIsMadeDurable(t *testing.T) {
	t.Run("by Load", func(t *testing.T) { testDirectoryOfAKilledProcess(t, false) })
	t.Run("by Save, because Load could not", func(t *testing.T) { testDirectoryOfAKilledProcess(t, true) })
}

func testDirectoryOfAKilledProcess(t *testing.T, failed bool) {
	fsys := crashfs.New()
	for _, name := range []string{"/var", "/var/lib"} {
		if err := fsys.Mkdir(name, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := fsys.SyncDir(filepath.Dir(name)); err != nil {
			t.Fatal(err)
		}
	}

	for _, name := range []string{dir, dir + "/checkpoints", dir + "/rendered", dir + "/" + version} { // and nobody has synced their names
		if err := fsys.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}

	s := open(t, fsys)
	if failed {
		fsys.FailFrom(1, syscall.EIO, crashfs.SyncDir)
	}

	s.Load()
	fsys.Heal()
	if err := s.Save(full()); err != nil {
		t.Fatal(err)
	}

	after := fsys.Reboot(func(crashfs.Unsynced) crashfs.Fate { return crashfs.Lost })
	got, problems := open(t, after).Load()
	if diff := cmp.Diff(full(), got); diff != "" || len(problems) > 0 {
		t.Errorf("%v, -saved +loaded\n%s", problems, diff)
	}
}

// A disk that rejects the sync of a new directory's name must not leave that
// directory for later: nobody would sync it again.
func TestDirectoryThatOpenCouldNotSyncIsMadeDurableBySave(t *testing.T) {
	fsys := crashfs.New()
	fsys.FailFrom(1, syscall.EIO, crashfs.SyncDir)
	s := open(t, fsys)
	fsys.Heal()
	if err := s.Save(full()); err != nil {
		t.Fatal(err)
	}

	got, problems := open(t, fsys.Reboot(crashfs.Choices["all lost"])).Load()
	if diff := cmp.Diff(full(), got); diff != "" || len(problems) > 0 {
		t.Errorf("%v, -saved +loaded\n%s", problems, diff)
	}
}

func TestForgetRequestSurvivesAPowerCut(t *testing.T) {
	fsys := crashfs.New()
	s := open(t, fsys)
	if err := s.Save(full()); err != nil {
		t.Fatal(err)
	}
	if err := fsys.Mkdir(dir+"/forget-requests", 0o700); err != nil { // by a command that was killed then
		t.Fatal(err)
	}
	if err := checkpoint.RequestForget(fsys, dir, "uid-c"); err != nil {
		t.Fatal(err)
	}

	after := fsys.Reboot(func(crashfs.Unsynced) crashfs.Fate { return crashfs.Lost })
	if requests, err := open(t, after).ForgetRequests(); err != nil || len(requests) != 1 {
		t.Errorf("%q, %v", requests, err)
	}
}
