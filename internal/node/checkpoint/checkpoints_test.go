// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

func TestPutReturnsTheDigestThatGetVerifies(t *testing.T) {
	s := open(t, crashfs.New())
	data := configMap("uid-a", "x")
	digest, err := s.Put("uid-a", data)
	assert.Must(t, err == nil && digest == fmt.Sprintf("%x", sha256.Sum256(data)), "%s, %v", digest, err)

	for _, c := range []trial.Config{{Revision: "uid-a", Checkpoint: digest}, {Revision: "uid-a"}} {
		got, err := s.Get(c)
		assert.That(t, err == nil && bytes.Equal(got, data), "%s, %v", got, err)
	}

	assert.Is(t, assert.Err(s.Get(trial.Config{Revision: "uid-b"})), checkpoint.ErrNotFound, "another")
}

func TestPutKeepsTheSameBytesAndMakesThemDurable(t *testing.T) {
	fsys := crashfs.New()
	s := open(t, fsys)
	s.Load()
	data := configMap("uid-a", "x")
	fsys.FailFrom(1, syscall.EIO, crashfs.SyncDir)
	_, err := s.Put("uid-a", data)
	assert.Must(t, errors.Is(err, syscall.EIO), "%v", err)
	_, err = s.Put("uid-a", data)
	assert.Must(t, errors.Is(err, syscall.EIO), "it is there, but not durable: %v", err)

	fsys.Heal()
	before := fsys.Operations()
	assert.OK(t, assert.Err(s.Put("uid-a", data)))
	assert.Equal(t, fsys.Operations(), before+1, "operations")
	got, err := open(t, fsys.Reboot(crashfs.Choices["all lost"])).Get(trial.Config{Revision: "uid-a"})
	assert.That(t, err == nil && bytes.Equal(got, data), "after a power cut: %s, %v", got, err)
}

func TestPutKeepsAFileWhoseDigestIsRecorded(t *testing.T) {
	fsys := crashfs.New()
	s := open(t, fsys)
	s.Load()
	first, relabelled := configMap("uid-a", "x"), append(configMap("uid-a", "x"), '\n')
	digest := assert.Value(s.Put("uid-a", first))(t)

	other, err := s.Put("uid-a", relabelled)
	assert.Must(t, err == nil && other != digest, "nothing names it yet: %s, %v", other, err)

	state := full()
	state.LastKnownGood.Checkpoint = other
	assert.NoError(t, s.Save(state))
	got, err := s.Put("uid-a", first)
	assert.That(t, err == nil && got == other, "a record names %s, but %s was put, %v", other, got, err)
	content, err := s.Get(state.LastKnownGood.Config)
	assert.That(t, err == nil && bytes.Equal(content, relabelled), "%s, %v", content, err)

	// Records of other configurations do not matter.
	assert.NoError(t, errors.Join(assert.Err(s.Put("uid-c", configMap("uid-c", "x"))), assert.Err(s.Put("uid-c", configMap("uid-c", "y")))))
	assert.That(t, !exists(fsys, "checkpoints/uid-c.corrupt"), "a file that no record names was set aside")

	// A file with another digest than the recorded one is set aside.
	fsys.Plant(dir+"/checkpoints/uid-a", []byte("rot"))
	got, err = s.Put("uid-a", relabelled)
	assert.That(t, err == nil && got == other && read(t, fsys, "checkpoints/uid-a.corrupt") == "rot", "%s, %v", got, err)
}

func TestUnreadableCheckpointIsSetAsideForANewDownload(t *testing.T) {
	fsys := crashfs.New()
	s := open(t, fsys)
	data := configMap("uid-a", "x")
	assert.NoError(t, assert.Err(s.Put("uid-a", data)))

	fsys.FailRead(dir+"/checkpoints/uid-a", syscall.EIO)
	_, err := s.Get(trial.Config{Revision: "uid-a"})
	assert.That(t, errors.Is(err, syscall.EIO) && !errors.Is(err, checkpoint.ErrCorrupt) && !errors.Is(err, checkpoint.ErrNotFound),
		"get: %v", err)
	_, err = s.Put("uid-a", data)
	assert.That(t, err == nil && exists(fsys, "checkpoints/uid-a.corrupt"), "put: %v", err)
}

func TestCorruptCheckpointIsSetAsideAndReplacedByANewOne(t *testing.T) {
	good := configMap("uid-a", "x")
	for name, tt := range map[string]struct {
		content []byte
		digest  bool
		want    string
	}{
		"truncated":                  {good[:30], true, "its sha256 is "},
		"empty":                      {nil, true, "its sha256 is "},
		"a bit flipped":              {bytes.Replace(good, []byte("workers"), []byte("workert"), 1), true, "not the recorded "},
		"truncated, digest unknown":  {good[:30], false, "it is not JSON"},
		"empty, digest unknown":      {nil, false, "it is not JSON"},
		"too large for a checkpoint": {bytes.Repeat([]byte(" "), 17<<20), false, "bytes"},
	} {
		fsys := crashfs.New()
		s := open(t, fsys)
		digest := assert.Value(s.Put("uid-a", good))(t)

		fsys.Plant(dir+"/checkpoints/uid-a", tt.content)
		c := trial.Config{Revision: "uid-a"}
		if tt.digest {
			c.Checkpoint = digest
		}

		fsys.FailFrom(1, syscall.EROFS)
		_, err := s.Get(c)
		assert.That(t, errors.Is(err, checkpoint.ErrCorrupt) && errors.Is(err, syscall.EROFS) &&
			strings.Contains(err.Error(), "cannot set it aside"),
			"%s, read-only: %v", name, err)

		fsys.Heal()
		_, err = s.Get(c)
		assert.That(t, errors.Is(err, checkpoint.ErrCorrupt) && strings.Contains(err.Error(), tt.want) &&
			strings.HasSuffix(err.Error(), "uid-a.corrupt"),
			"%s: %v", name, err)
		assert.That(t, read(t, fsys, "checkpoints/uid-a.corrupt") == string(tt.content), "%s: it was not set aside", name)
		assert.Is(t, assert.Err(s.Get(c)), checkpoint.ErrNotFound, name, "again")
		assert.Returns(t, digest, name, "healed")(s.Put("uid-a", good))
	}
}

func TestCollectRemovesUnusedFiles(t *testing.T) {
	fsys, s := saved(t, full())
	for _, revision := range []string{"uid-a", "uid-b", "uid-c", "uid-d"} {
		assert.NoError(t, assert.Err(s.Put(revision, configMap(revision, "x"))))
		assert.NoError(t, assert.Err(s.Render(revision, map[string][]byte{"kubelet.conf.d/x": nil})))
	}

	for i := range 7 {
		fsys.Plant(fmt.Sprintf("%s/checkpoints/rotten-%d.corrupt", dir, i), nil)
		assert.NoError(t, fsys.Mkdir(fmt.Sprintf("/time-passes-%d", i), 0o700))
	}

	for i := range 8 {
		for _, name := range []string{"bad-configs", "trial.corrupt"} {
			fsys.Plant(fmt.Sprintf("%s/v1.%d.0/%s", dir, i, name), nil)
		}
		if i == 0 {
			fsys.Plant(dir+"/v1.0.0/notes-of-the-operator", nil)
		}

		touch := fmt.Sprintf("%s/v1.%d.0/startups", dir, i)
		f, err := fsys.Create(touch, 0o600)
		assert.Must(t, err == nil && f.Close() == nil, "%v", err)
	}

	fsys.Plant(dir+"/manifests/static.yaml", nil)
	assert.NoError(t, s.Collect("uid-c"))

	for name, want := range map[string]bool{
		"checkpoints/uid-a": true, "checkpoints/uid-b": true, "checkpoints/uid-c": true, "checkpoints/uid-d": false,
		"rendered/uid-a": true, "rendered/uid-b": true, "rendered/uid-c": true, "rendered/uid-d": false,
		"checkpoints/rotten-1.corrupt": false, "checkpoints/rotten-2.corrupt": true, "checkpoints/rotten-6.corrupt": true,
		"v1.0.0": true /* it is not ours alone */, "v1.1.0": false, "v1.2.0": false, "v1.3.0": true, "v1.7.0": true,
		version: true, "manifests/static.yaml": true, "current": true,
	} {
		assert.Equal(t, exists(fsys, name), want, name, "is there")
	}

	got := s.Rendered()
	assert.That(t, fmt.Sprint(got) == "[uid-a uid-b uid-c]", "rendered: %v", got)
}

func TestCollectRemovesNothingWhileARecordIsUnreadable(t *testing.T) {
	fsys, s := saved(t, full())
	assert.NoError(t, assert.Err(s.Put("uid-b", configMap("uid-b", "x"))))
	assert.Error(t, open(t, fsys).Collect(), "collect: the state has not been loaded", "before Load")

	fsys.FailRead(dir+"/current", syscall.EIO)
	s.Load()
	err := s.Collect()
	assert.That(t, errors.Is(err, syscall.EIO) && strings.Contains(err.Error(), "collect: current cannot be read"),
		"current is unreadable: %v", err)

	fsys.Heal()
	s.Load()
	// A failed save may have changed the references.
	next := full()
	next.Current.Config = config("uid-n", "f")
	assert.NoError(t, assert.Err(s.Put("uid-n", configMap("uid-n", "x"))))

	fsys.FailFrom(7, syscall.EIO) // after `+"`current`"+` was written
	next.Startups = nil
	err = s.Save(next)
	assert.Must(t, err != nil && strings.HasPrefix(err.Error(), "save startups: "), "saved on a broken disk: %v", err)

	fsys.Heal()
	err = s.Collect()
	assert.That(t, err == nil && exists(fsys, "checkpoints/uid-b") && exists(fsys, "checkpoints/uid-n"), "after a failed save: %v", err)
	err = errors.Join(s.Save(trial.State{}), s.Collect())
	assert.That(t, err == nil && !exists(fsys, "checkpoints/uid-b"), "after a save: %v", err)
}

func TestCollectContinuesAfterAnErrorAndReturnsIt(t *testing.T) {
	fsys, s := saved(t, trial.State{})
	fsys.Plant(dir+"/checkpoints/uid-x", nil)
	fsys.Plant(dir+"/checkpoints/uid-y", nil)
	fsys.FailAt(1, syscall.EIO)
	err := s.Collect()
	assert.That(t, errors.Is(err, syscall.EIO) && strings.HasPrefix(err.Error(), "collect: remove "+dir+"/checkpoints/uid-x"), "%v", err)
	assert.That(t, !exists(fsys, "checkpoints/uid-y") && exists(fsys, "checkpoints/uid-x"), "it stopped at the error")

	fsys.FailRead(dir+"/rendered", syscall.EACCES)
	fsys.FailRead(dir, syscall.EACCES)
	err = s.Collect()
	assert.That(t, errors.Is(err, syscall.EACCES) && !exists(fsys, "checkpoints/uid-x"), "%v", err)
}
