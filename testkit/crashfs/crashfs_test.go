// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package crashfs_test

import (
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

// write creates a file, and syncs it if sync is set, but not its directory.
func write(t *testing.T, f *crashfs.FS, name, data string, sync bool) {
	t.Helper()
	file := assert.Value(f.Create(name, 0o600))(t)
	assert.NoError(t, assert.Err(file.Write([]byte(data))))
	if sync {
		assert.NoError(t, file.Sync())
	}

	assert.NoError(t, file.Close())
}

// content returns the content of a file, or "-" if it does not exist.
func content(f *crashfs.FS, name string) string {
	data, err := f.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "-"
	}

	return string(data)
}

func TestUnsyncedDataIsLostKeptOrTorn(t *testing.T) {
	f := crashfs.New()
	write(t, f, "/a", "abcdef", false)
	for name, want := range map[string]string{"all lost": "-", "all kept": "abcdef", "names kept": "", "data kept": "-", "data torn": "abc"} {
		assert.Equal(t, content(f.Reboot(crashfs.Choices[name]), "/a"), want, name)
	}
}

func TestASyncedFileNeedsItsNameSyncedToo(t *testing.T) {
	f := crashfs.New()
	write(t, f, "/a", "data", true)
	assert.Equal(t, content(f.Reboot(crashfs.Choices["all lost"]), "/a"), "-", "before SyncDir")
	assert.NoError(t, f.SyncDir("/"))
	assert.Equal(t, content(f.Reboot(crashfs.Choices["all lost"]), "/a"), "data", "after SyncDir")
}

func TestARenameIsAtomic(t *testing.T) {
	f := crashfs.New()
	f.Plant("/a", []byte("old"))
	write(t, f, "/b", "new", true)
	assert.NoError(t, errors.Join(f.SyncDir("/"), f.Rename("/b", "/a")))
	for name, want := range map[string][2]string{"all lost": {"old", "new"}, "all kept": {"new", "-"}} {
		up := f.Reboot(crashfs.Choices[name])
		assert.Equal(t, [2]string{content(up, "/a"), content(up, "/b")}, want, name)
	}
}

func TestARemovedFileComesBackUnlessTheDirectoryWasSynced(t *testing.T) {
	f := crashfs.New()
	f.Plant("/a", []byte("old"))
	assert.NoError(t, f.Remove("/a"))
	assert.Equal(t, content(f.Reboot(crashfs.Choices["all lost"]), "/a"), "old")
	assert.NoError(t, f.SyncDir("/"))
	assert.Equal(t, content(f.Reboot(crashfs.Choices["all lost"]), "/a"), "-")
}

func TestADirectoryWithoutADurableNameIsLostWithItsContent(t *testing.T) {
	f := crashfs.New()
	assert.NoError(t, f.Mkdir("/d", 0o700))
	write(t, f, "/d/a", "data", true)
	assert.NoError(t, f.SyncDir("/d"))
	assert.Equal(t, content(f.Reboot(crashfs.Choices["all lost"]), "/d/a"), "-")
	assert.Equal(t, content(f.Reboot(crashfs.Choices["all kept"]), "/d/a"), "data")
}

func TestAFileMovedToASyncedDirectoryDoesNotComeBack(t *testing.T) {
	f := crashfs.New()
	f.PlantDir("/from", 0o700)
	f.PlantDir("/to", 0o700)
	write(t, f, "/from/a", "data", true)
	assert.NoError(t, errors.Join(f.Rename("/from/a", "/to/a"), f.SyncDir("/to")))
	for name, choice := range crashfs.Choices {
		up := f.Reboot(choice)
		assert.Equal(t, [2]string{content(up, "/from/a"), content(up, "/to/a")}, [2]string{"-", "data"}, name)
	}
}

func TestNoOperationHappensAfterACrash(t *testing.T) {
	f := crashfs.New()
	f.CrashAfter(1)
	file, err := f.Create("/a", 0o600)
	assert.Must(t, err == nil && !f.Crashed(), "the operation before the crash: %v, crashed %v", err, f.Crashed())
	assert.Is(t, assert.Err(file.Write([]byte("data"))), crashfs.ErrCrashed)
	assert.That(t, f.Crashed(), "it has not crashed")
	for what, err := range map[string]error{"sync": file.Sync(), "close": file.Close(), "remove": f.Remove("/a"), "rename": f.Rename("/a", "/b"),
		"mkdir": f.Mkdir("/d", 0o700), "chmod": f.Chmod("/a", 0), "syncdir": f.SyncDir("/")} {
		assert.Is(t, err, crashfs.ErrCrashed, what)
	}

	assert.Is(t, assert.Err(f.ReadFile("/a")), crashfs.ErrCrashed, "read")
	assert.Equal(t, content(f.Reboot(crashfs.Choices["all kept"]), "/a"), "")
}

func TestInjectedErrorsAffectTheChosenOperations(t *testing.T) {
	f := crashfs.New()
	f.FailAt(2, syscall.EIO)
	got := []error{f.Mkdir("/a", 0o700), f.Mkdir("/b", 0o700), f.Mkdir("/c", 0o700)}
	assert.That(t, got[0] == nil && errors.Is(got[1], syscall.EIO) && got[2] == nil, "FailAt(2): %v", got)
	f.FailFrom(2, syscall.ENOSPC, crashfs.NeedSpace...)
	got = []error{f.Mkdir("/d", 0o700), f.Remove("/d"), f.Mkdir("/e", 0o700), f.SyncDir("/")}
	assert.That(t, got[0] == nil && got[1] == nil && errors.Is(got[2], syscall.ENOSPC) && got[3] == nil, "FailFrom on a full disk: %v", got)
	f.Heal()
	assert.OK(t, f.Mkdir("/e", 0o700), "after Heal")
	assert.That(t, f.Operations() == 8 && f.Log()[1] == "mkdir /b", "%d operations: %q", f.Operations(), f.Log())
}

func TestAFailedWriteWritesHalf(t *testing.T) {
	f := crashfs.New()
	file := assert.Value(f.Create("/a", 0o600))(t)
	f.FailAt(1, syscall.ENOSPC)
	n, err := file.Write([]byte("abcdef"))
	assert.That(t, n == 3 && errors.Is(err, syscall.ENOSPC), "wrote %d, %v", n, err)
	assert.Equal(t, content(f, "/a"), "abc", "the file holds")
}

func TestInvalidOperationsFailLikeOnADisk(t *testing.T) {
	f := crashfs.New()
	f.Plant("/d/a", nil)
	f.PlantDir("/empty", 0o755)
	create := func(name string) error { return assert.Err(f.Create(name, 0o600)) }
	read := func(name string) error { return assert.Err(f.ReadFile(name)) }
	f.Plant("/bad", nil)
	f.FailRead("/bad", syscall.EIO)
	for _, tt := range []struct {
		what      string
		got, want error
	}{
		{"create over a file", create("/d/a"), syscall.EEXIST},
		{"create in nothing", create("/x/a"), syscall.ENOENT},
		{"create in a file", create("/d/a/b"), syscall.ENOTDIR},
		{"mkdir over a directory", f.Mkdir("/d", 0o700), syscall.EEXIST},
		{"remove a directory in use", f.Remove("/d"), syscall.ENOTEMPTY},
		{"remove nothing", f.Remove("/x"), syscall.ENOENT},
		{"rename nothing", f.Rename("/x", "/y"), syscall.ENOENT},
		{"rename a file over a directory", f.Rename("/d/a", "/empty"), syscall.EISDIR},
		{"rename a directory over a file", f.Rename("/empty", "/d/a"), syscall.ENOTDIR},
		{"rename over a directory in use", f.Rename("/empty", "/d"), syscall.ENOTEMPTY},
		{"sync a file as a directory", f.SyncDir("/d/a"), syscall.ENOTDIR},
		{"chmod nothing", f.Chmod("/x", 0), syscall.ENOENT},
		{"read a directory", read("/d"), syscall.EISDIR},
		{"read a bad sector", read("/bad"), syscall.EIO},
		{"list a file", assert.Err(f.ReadDir("/d/a")), syscall.ENOTDIR},
		{"look at nothing", assert.Err(f.Lstat("/x")), syscall.ENOENT},
	} {
		assert.That(t, errors.Is(tt.got, tt.want), "%s: %v, want %v", tt.what, tt.got, tt.want)
	}
}

func TestFileInfoHasModeOwnerAndOrderOfChanges(t *testing.T) {
	f := crashfs.New()
	f.PlantDir("/d", 0o755)
	f.Own("/d", 1000)
	assert.NoError(t, f.Chmod("/d", 0o700))
	info, err := f.Lstat("/d")
	assert.That(t, err == nil && info.Mode() == fs.ModeDir|0o700 && info.Sys().(*syscall.Stat_t).Uid == 1000 && info.IsDir(),
		"%v, %v", info, err)
	write(t, f, "/d/a", "data", true)
	write(t, f, "/d/b", "", true)
	entries, err := f.ReadDir("/d")
	assert.Must(t, err == nil && len(entries) == 2, "%v, %v", entries, err)
	a, _ := entries[0].Info()
	b, _ := entries[1].Info()
	assert.That(t, a.Name() == "a" && a.Size() == 4 && a.ModTime().Before(b.ModTime()), "%v, then %v", a, b)
	assert.Equal(t, b.Name(), "b")
}
