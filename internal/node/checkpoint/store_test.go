// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

func TestFilesOnARealDiskArePrivateAndReadable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	s := assert.Value(checkpoint.Open(atomicfile.OS{}, dir, version, nil))(t)
	s.Load()
	state := full()
	state.Current.Checkpoint = assert.Value(s.Put("uid-b", configMap("uid-b", "x")))(t)
	assert.NoError(t, assert.Err(s.Render("uid-b", map[string][]byte{"kubelet": []byte("x"), "kubelet.conf.d/10.conf": []byte("y")})))
	assert.NoError(t, errors.Join(s.Save(state), checkpoint.RequestForget(atomicfile.OS{}, dir, "uid-c"), s.Collect()))

	var found []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		info, err := e.Info()
		want := map[bool]fs.FileMode{true: fs.ModeDir | 0o700, false: 0o600}[e.IsDir()]
		assert.That(t, err == nil && info.Mode() == want, "%s: mode %v, %v, want %v", path, info.Mode(), err, want)
		if !e.IsDir() {
			found = append(found, strings.TrimPrefix(path, dir+"/"))
		}

		return nil
	})
	want := []string{"checkpoints/uid-b", "component-version", "current", "forget-requests/uid-c", "last-known-good", "rendered/uid-b/kubelet",
		"rendered/uid-b/kubelet.conf.d/10.conf", "revoked", "temporary", version + "/bad-configs", version + "/promoted", version + "/startups", version + "/trial"}
	assert.NoError(t, err)
	assert.NoDiff(t, cmp.Diff(want, found))

	s = assert.Value(checkpoint.Open(atomicfile.OS{}, dir, version, nil))(t)
	loads(t, s, state)
	assert.Equal(t, string(assert.Value(s.Get(state.Current.Config))(t)), string(configMap("uid-b", "x")))
	v := assert.Value(checkpoint.ReadOnly(atomicfile.OS{}, dir, ""))(t)
	assert.Equal(t, v.Version, version)
	assert.NoDiff(t, cmp.Diff(state, v.State))
}

func TestSymbolicLinkInPlaceOfARecordIsSetAside(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "forged")
	s := assert.Value(checkpoint.Open(atomicfile.OS{}, dir, version, nil))(t)
	assert.NoError(t, errors.Join(os.WriteFile(elsewhere, []byte("{}"), 0o600), os.Symlink(elsewhere, filepath.Join(dir, "current"))))

	_, problems := s.Load()
	assert.That(t, len(problems) != 0 && problems[0].SetAside == "current.corrupt" && strings.Contains(problems[0].What, "a symbolic link"),
		"%v", problems) // that `revoked` is missing is another one
}

func TestOpenRefusesAnUnsafeDirectory(t *testing.T) {
	for name, tt := range map[string]struct {
		plant func(*crashfs.FS)
		want  string
	}{
		"a file":            {func(f *crashfs.FS) { f.Plant(dir, nil) }, dir + " is not a directory but a file: move it away, or name another directory"},
		"a file inside":     {func(f *crashfs.FS) { f.Plant(dir+"/checkpoints", nil) }, dir + "/checkpoints is not a directory but a file"},
		"somebody else's":   {func(f *crashfs.FS) { f.PlantDir(dir, 0o700); f.Own(dir, 1000) }, dir + " belongs to user 1000, who could change what this node runs: check its content, then chown it to root"},
		"an inner one's":    {func(f *crashfs.FS) { f.PlantDir(dir+"/"+version, 0o700); f.Own(dir+"/"+version, 1000) }, dir + "/" + version + " belongs to user 1000"},
		"not to be entered": {func(f *crashfs.FS) { f.FailFrom(1, syscall.EACCES) }, "permission denied"},
		"cannot tighten":    {func(f *crashfs.FS) { f.PlantDir(dir, 0o755); f.FailFrom(1, syscall.EPERM) }, dir + " has mode 0755, which gives other users access, and it cannot be changed: chmod it to 0700: "},
	} {
		fsys := crashfs.New()
		tt.plant(fsys)
		s, err := checkpoint.Open(fsys, dir, version, nil)
		assert.ErrorHas(t, err, "dynamic config directory: ", name)
		assert.ErrorHas(t, err, tt.want, name)
		assert.That(t, s == nil, "%s: it is open", name)
	}

	link := filepath.Join(t.TempDir(), "link")
	assert.NoError(t, os.Symlink(t.TempDir(), link))
	assert.ErrorHas(t, assert.Err(checkpoint.Open(atomicfile.OS{}, link, version, nil)), "is not a directory but a symbolic link")
}

func TestStateIsReadableOnADiskThatRejectsWrites(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO} {
		fsys := crashfs.New()
		before := open(t, fsys)
		adopted := trial.State{Current: trial.AdoptedConfig{Config: config("uid-a", "a"), Since: noon}}
		adopted.Current.Checkpoint = assert.Value(before.Put("uid-a", configMap("uid-a", "p")))(t)
		assert.NoError(t, before.Save(adopted))

		fsys.FailFrom(1, cause, crashfs.NeedSpace...)
		var log bytes.Buffer
		s := assert.Value(checkpoint.Open(fsys, dir, "v9.9.9", slog.New(slog.NewTextHandler(&log, nil))))(t, cause) // whose directory is missing
		state, _ := s.Load()
		assert.That(t, state.Current.Revision == "uid-a", "%v: current is %q, want uid-a", cause, state.Current.Revision)
		assert.OK(t, assert.Err(s.Get(state.Current.Config)), cause, "the checkpoint")
		assert.Is(t, s.Save(state), cause, cause, "saving")

		fsys.Heal()
		assert.OK(t, s.Save(state), cause, "saving when the disk is back")
		assert.That(t, strings.Contains(log.String(), "cannot write to the disk"), "%v: the log says %q", cause, log.String())
	}
}

func TestOpenRemovesAccessOfOtherUsers(t *testing.T) {
	var log bytes.Buffer
	fsys := crashfs.New()
	fsys.PlantDir(dir, 0o777)
	assert.NoError(t, assert.Err(checkpoint.Open(fsys, dir, version, slog.New(slog.NewTextHandler(&log, nil)))))
	info, err := fsys.Lstat(dir)
	assert.That(t, err == nil && info.Mode().Perm() == 0o700, "%v, %v", info.Mode(), err)
	assert.That(t, strings.Contains(log.String(), "removed other users' access") && strings.Contains(log.String(), "mode=0777"),
		"%v", log.String())
}

func TestOpenRemovesHalfWrittenFiles(t *testing.T) {
	fsys, _ := saved(t, full())
	leftovers := []string{"current.0123abcd.tmp", "checkpoints/uid-a.0123abcd.tmp", version + "/trial.0123abcd.tmp", "forget-requests/uid-a.0123abcd.tmp",
		"rendered/uid-a.0123abcd.tmp"}
	for _, name := range leftovers[:4] {
		fsys.Plant(dir+"/"+name, []byte("half"))
	}

	fsys.Plant(dir+"/"+leftovers[4]+"/kubelet", []byte("half"))
	open(t, fsys)
	for _, name := range leftovers {
		assert.That(t, !exists(fsys, name), "%s is still there", name)
	}

	// On a read-only disk they stay, and Open succeeds.
	fsys.Plant(dir+"/"+leftovers[0], nil)
	fsys.FailFrom(1, syscall.EROFS)
	loads(t, open(t, fsys), full())
}

func TestNamesAreCheckedBeforeUseInPaths(t *testing.T) {
	fsys, s := saved(t, full())
	long := strings.Repeat("a", 129)
	bad := []string{"", ".", "..", "../x", "a/b", "/etc", "a/../..", ".hidden", "-flag", "a b", "a\x00", "a\n", "ä", long, "x.tmp", "x.corrupt"}
	before := fsys.Operations()
	for _, name := range bad {
		config := full().Current.Config
		config.Revision = name
		_, openErr := checkpoint.Open(fsys, dir, name, nil)
		_, putErr := s.Put(name, nil)
		_, getErr := s.Get(config)
		_, renderErr := s.Render(name, nil)
		_, fileErr := s.Render("uid-b", map[string][]byte{name: nil})
		if strings.Contains(name, "a/b") {
			fileErr = checkpoint.ErrName // the one place where a slash is allowed
		}

		for op, err := range map[string]error{"Open": openErr, "Put": putErr, "Get": getErr, "Render": renderErr, "a rendered file": fileErr,
			"RequestForget": checkpoint.RequestForget(fsys, dir, name), "DropForgetRequest": s.DropForgetRequest(name)} {
			assert.That(t, errors.Is(err, checkpoint.ErrName), "%s of %q: %v", op, name, err)
		}
	}

	for _, name := range []string{"checkpoints", "rendered", "forget-requests", "current", "trial", "component-version", "kubelet.lock"} {
		assert.Is(t, assert.Err(checkpoint.Open(fsys, dir, name, nil)), checkpoint.ErrName, "version", name)
	}

	for _, line := range fsys.Log()[before:] {
		if !strings.Contains(line, dir+"/rendered/uid-b") { // "a/b" is rendered
			t.Errorf("the disk was touched: %s", line)
		}
	}

	for _, name := range []string{"v1.36.3", "v1.36.3-rc.0_x", strings.Repeat("a", 128)} {
		assert.OK(t, assert.Err(checkpoint.Open(fsys, dir, name, nil)), "version", name)
	}
}
