// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package atomicfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

func TestWriteReplacesTheFileAndLeavesNothingElse(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "current")
	for _, content := range []string{"old", "new, and longer"} {
		assert.NoError(t, atomicfile.Write(atomicfile.OS{}, path, []byte(content), 0o600))
		assert.Equal(t, string(assert.Value(atomicfile.OS{}.ReadFile(path))(t)), content)
	}

	assert.Equal(t, names(t, dir), "current", "the directory holds")
}

func TestWriteSetsTheModeRegardlessOfTheUmask(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	for _, mode := range []fs.FileMode{0o600, 0o644, 0o755} {
		path := filepath.Join(t.TempDir(), "file")
		assert.NoError(t, atomicfile.Write(atomicfile.OS{}, path, nil, mode))
		info, err := os.Lstat(path)
		assert.That(t, err == nil && info.Mode() == mode, "mode %v, %v, want %v", info.Mode(), err, mode)
	}
}

func TestWriteReplacesASymbolicLinkAndNotItsTarget(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	assert.NoError(t, errors.Join(os.WriteFile(target, []byte("mine"), 0o600), os.Symlink(target, link)))
	assert.NoError(t, atomicfile.Write(atomicfile.OS{}, link, []byte("new"), 0o600))
	got, _ := os.ReadFile(target)
	assert.That(t, string(got) == "mine", "the link's target holds %q", got)
	info, err := os.Lstat(link)
	assert.That(t, err == nil && info.Mode().IsRegular(), "the link is %v, %v, want a file", info.Mode(), err)
}

func TestAFailedWriteNamesTheStepAndKeepsTheOldContent(t *testing.T) {
	steps := []string{"create a temporary file", "write", "set the mode", "sync", "close", "rename", "sync its directory"}
	for i, step := range steps {
		for _, cause := range []error{syscall.ENOSPC, syscall.EIO, syscall.EROFS} {
			fsys := crashfs.New()
			fsys.Plant("/d/file", []byte("old"))
			fsys.FailAt(i+1, cause)
			err := atomicfile.Write(fsys, "/d/file", []byte("new"), 0o644)
			assert.That(t, errors.Is(err, cause) && strings.HasPrefix(err.Error(), "replace /d/file: "+step+": "), "%s: error %v", step, err)
			want := "old"
			if step == "sync its directory" {
				want = "new" // but perhaps not durable
			}
			got := assert.Value(fsys.ReadFile("/d/file"))(t, step)
			assert.Equal(t, string(got), want, step, "the file holds")
			entries, _ := fsys.ReadDir("/d")
			assert.That(t, len(entries) == 1, "%s: the directory holds %v", step, entries)
		}
	}
}

func TestALeftoverHasTheTempSuffixAndDoesNotBlockWrite(t *testing.T) {
	fsys := crashfs.New()
	fsys.Plant("/d/file", []byte("old"))
	fsys.FailFrom(3, syscall.EROFS) // removing the temporary file fails too
	err := atomicfile.Write(fsys, "/d/file", []byte("new"), 0o600)
	assert.Must(t, errors.Is(err, syscall.EROFS), "error %v", err)
	entries, _ := fsys.ReadDir("/d")
	assert.Must(t, len(entries) == 2 && strings.HasSuffix(entries[1].Name(), atomicfile.TempSuffix), "the directory holds %v", entries)
	fsys.Heal()
	assert.OK(t, atomicfile.Write(fsys, "/d/file", []byte("new"), 0o600))
}

func TestAfterACrashTheContentIsOldOrNewAndNewAfterWriteReturned(t *testing.T) {
	visited := 0
	for after := 0; ; after++ {
		fsys := crashfs.New()
		fsys.Plant("/d/file", []byte("old"))
		fsys.CrashAfter(after)
		err := atomicfile.Write(fsys, "/d/file", []byte("new"), 0o644)
		for name, choice := range crashfs.Choices {
			visited++
			got, readErr := fsys.Reboot(choice).ReadFile("/d/file")
			assert.That(t, readErr == nil && (string(got) == "new" || string(got) == "old" && err != nil),
				"crash after %d operations, %s: the file holds %q, %v", after, name, got, readErr)
		}

		if err == nil {
			t.Logf("%d states visited", visited)
			return
		}
	}
}

func TestOSReadsOnlyRegularFiles(t *testing.T) {
	dir := t.TempDir()
	file, link, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	assert.NoError(t, errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink(file, link), syscall.Mkfifo(pipe, 0o600)))
	for path, want := range map[string]string{link: "too many levels of symbolic links", pipe: "not a regular file", dir: "not a regular file"} {
		assert.ErrorHas(t, assert.Err((atomicfile.OS{}).ReadFile(path)), want)
	}

	assert.Is(t, (atomicfile.OS{}).Chmod(link, 0o644), syscall.ELOOP, "chmod of a link")
}

func TestOSReturnsErrors(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	assert.Is(t, (atomicfile.OS{}).SyncDir(missing), fs.ErrNotExist, "SyncDir")
	f, err := (atomicfile.OS{}).Create(filepath.Join(missing, "x"), 0o600)
	assert.That(t, f == nil && errors.Is(err, fs.ErrNotExist), "Create: %v, %v", f, err)

	assert.Is(t, (atomicfile.OS{}).Chmod(missing, 0o600), fs.ErrNotExist, "Chmod")
	// A directory of /proc can be opened but not synced, so a missing sync is
	// noticed.
	assert.Is(t, (atomicfile.OS{}).SyncDir("/proc/self"), syscall.EINVAL, "SyncDir of what cannot be synced")
	assert.OK(t, (atomicfile.OS{}).SyncDir(t.TempDir()))
}

func TestOSCreateDoesNotReplaceAFile(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	assert.NoError(t, errors.Join(os.WriteFile(file, []byte("mine"), 0o600), os.Symlink(filepath.Join(dir, "missing"), link)))
	for _, path := range []string{file, link} {
		f, err := (atomicfile.OS{}).Create(path, 0o600)
		assert.That(t, f == nil && errors.Is(err, fs.ErrExist), "Create of %s: %v, %v", filepath.Base(path), f, err)
	}

	got, _ := os.ReadFile(file)
	assert.That(t, string(got) == "mine", "the file holds %q", got)
	assert.Is(t, assert.Err(os.Lstat(filepath.Join(dir, "missing"))), fs.ErrNotExist, "what the link points to")
}

func TestMakeDirAcceptsADirectoryAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	assert.NoError(t, errors.Join(os.WriteFile(at("file"), nil, 0o600), os.Mkdir(at("dir"), 0o700), os.Symlink("dir", at("link"))))
	for _, name := range []string{"dir", "link", "new/one", "new", "link/new"} {
		assert.NoError(t, atomicfile.MakeDir(atomicfile.OS{}, at(name), 0o700))
	}

	assert.Is(t, atomicfile.MakeDir(atomicfile.OS{}, at("file"), 0o700), fs.ErrExist, "a file")
}

func TestReadBoundedNeverWaitsAndHasALimit(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	assert.NoError(t, errors.Join(os.WriteFile(at("file"), []byte("four"), 0o600), os.WriteFile(at("large"), []byte("five!"), 0o600),
		os.Symlink("file", at("link")), syscall.Mkfifo(at("pipe"), 0o600)))
	for _, name := range []string{"file", "link"} {
		assert.Equal(t, string(assert.Value(atomicfile.ReadBounded(at(name), 4))(t)), "four", name)
	}

	for name, want := range map[string]string{
		"large":   at("large") + " is larger than the limit of 4 bytes",
		"pipe":    at("pipe") + " is not a regular file",
		".":       at(".") + " is not a regular file",
		"missing": "open " + at("missing") + ": no such file or directory",
	} {
		data, err := atomicfile.ReadBounded(at(name), 4)
		assert.Error(t, err, want, name)
		assert.That(t, data == nil, "%s: read %q", name, data)
	}
}
