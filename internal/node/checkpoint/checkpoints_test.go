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
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

func TestPutReturnsTheDigestThatGetVerifies(t *testing.T) {
	s := open(t, crashfs.New())
	data := configMap("uid-a", "x")
	digest, err := s.Put("uid-a", data)
	if err != nil || digest != fmt.Sprintf("%x", sha256.Sum256(data)) {
		t.Fatalf("%s, %v", digest, err)
	}

	for _, c := range []trial.Config{{Revision: "uid-a", Checkpoint: digest}, {Revision: "uid-a"}} {
		if got, err := s.Get(c); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s, %v", got, err)
		}
	}

	if _, err := s.Get(trial.Config{Revision: "uid-b"}); !errors.Is(err, checkpoint.ErrNotFound) {
		t.Errorf("another: %v", err)
	}
}

func TestPutKeepsTheSameBytesAndMakesThemDurable(t *testing.T) {
	fsys := crashfs.New()
	s := open(t, fsys)
	s.Load()
	data := configMap("uid-a", "x")
	fsys.FailFrom(1, syscall.EIO, crashfs.SyncDir)
	if _, err := s.Put("uid-a", data); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	if _, err := s.Put("uid-a", data); !errors.Is(err, syscall.EIO) {
		t.Fatalf("it is there, but not durable: %v", err)
	}

	fsys.Heal()
	before := fsys.Operations()
	if _, err := s.Put("uid-a", data); err != nil || fsys.Operations() != before+1 {
		t.Errorf("%q, %v", fsys.Log()[before:], err)
	}
	if got, err := open(t, fsys.Reboot(crashfs.Choices["all lost"])).Get(trial.Config{Revision: "uid-a"}); err != nil || !bytes.Equal(got, data) {
		t.Errorf("after a power cut: %s, %v", got, err)
	}
}

func TestPutKeepsAFileWhoseDigestIsRecorded(t *testing.T) {
	fsys := crashfs.New()
	s := open(t, fsys)
	s.Load()
	first, relabelled := configMap("uid-a", "x"), append(configMap("uid-a", "x"), '\n')
	digest, err := s.Put("uid-a", first)
	if err != nil {
		t.Fatal(err)
	}

	other, err := s.Put("uid-a", relabelled)
	if err != nil || other == digest {
		t.Fatalf("nothing names it yet: %s, %v", other, err)
	}

	state := full()
	state.LastKnownGood.Checkpoint = other
	if err := s.Save(state); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Put("uid-a", first); err != nil || got != other {
		t.Errorf("a record names %s, but %s was put, %v", other, got, err)
	}
	if got, err := s.Get(state.LastKnownGood.Config); err != nil || !bytes.Equal(got, relabelled) {
		t.Errorf("%s, %v", got, err)
	}

	// A file with another digest than the recorded one is set aside.
	fsys.Plant(dir+"/checkpoints/uid-a", []byte("rot"))
	if got, err := s.Put("uid-a", relabelled); err != nil || got != other || read(t, fsys, "checkpoints/uid-a.corrupt") != "rot" {
		t.Errorf("%s, %v", got, err)
	}
}

func TestUnreadableCheckpointIsSetAsideForANewDownload(t *testing.T) {
	fsys := crashfs.New()
	s := open(t, fsys)
	data := configMap("uid-a", "x")
	if _, err := s.Put("uid-a", data); err != nil {
		t.Fatal(err)
	}

	fsys.FailRead(dir+"/checkpoints/uid-a", syscall.EIO)
	if _, err := s.Get(trial.Config{Revision: "uid-a"}); !errors.Is(err, syscall.EIO) || errors.Is(err, checkpoint.ErrCorrupt) || errors.Is(err, checkpoint.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
	if _, err := s.Put("uid-a", data); err != nil || !exists(fsys, "checkpoints/uid-a.corrupt") {
		t.Errorf("put: %v", err)
	}
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
		digest, err := s.Put("uid-a", good)
		if err != nil {
			t.Fatal(err)
		}

		fsys.Plant(dir+"/checkpoints/uid-a", tt.content)
		c := trial.Config{Revision: "uid-a"}
		if tt.digest {
			c.Checkpoint = digest
		}

		fsys.FailFrom(1, syscall.EROFS)
		if _, err := s.Get(c); !errors.Is(err, checkpoint.ErrCorrupt) || !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), "cannot set it aside") {
			t.Errorf("%s, read-only: %v", name, err)
		}

		fsys.Heal()
		if _, err := s.Get(c); !errors.Is(err, checkpoint.ErrCorrupt) || !strings.Contains(err.Error(), tt.want) || !strings.HasSuffix(err.Error(), "uid-a.corrupt") {
			t.Errorf("%s: %v", name, err)
		}
		if read(t, fsys, "checkpoints/uid-a.corrupt") != string(tt.content) {
			t.Errorf("%s: it was not set aside", name)
		}
		if _, err := s.Get(c); !errors.Is(err, checkpoint.ErrNotFound) {
			t.Errorf("%s, again: %v", name, err)
		}
		if got, err := s.Put("uid-a", good); err != nil || got != digest {
			t.Errorf("%s, healed: %s, %v", name, got, err)
		}
	}
}

func TestCollectRemovesUnusedFiles(t *testing.T) {
	fsys, s := saved(t, full())
	for _, revision := range []string{"uid-a", "uid-b", "uid-c", "uid-d"} {
		if _, err := s.Put(revision, configMap(revision, "x")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Render(revision, map[string][]byte{"kubelet.conf.d/x": nil}); err != nil {
			t.Fatal(err)
		}
	}

	for i := range 7 {
		fsys.Plant(fmt.Sprintf("%s/checkpoints/rotten-%d.corrupt", dir, i), nil)
		if err := fsys.Mkdir(fmt.Sprintf("/time-passes-%d", i), 0o700); err != nil {
			t.Fatal(err)
		}
	}

	for i := range 8 {
		for _, name := range []string{"bad-configs", "trial.corrupt"} {
			fsys.Plant(fmt.Sprintf("%s/v1.%d.0/%s", dir, i, name), nil)
		}
		if i == 0 {
			fsys.Plant(dir+"/v1.0.0/notes-of-the-operator", nil)
		}

		touch := fmt.Sprintf("%s/v1.%d.0/startups", dir, i)
		if f, err := fsys.Create(touch, 0o600); err != nil || f.Close() != nil {
			t.Fatal(err)
		}
	}

	fsys.Plant(dir+"/manifests/static.yaml", nil)
	if err := s.Collect("uid-c"); err != nil {
		t.Fatal(err)
	}

	for name, want := range map[string]bool{
		"checkpoints/uid-a": true, "checkpoints/uid-b": true, "checkpoints/uid-c": true, "checkpoints/uid-d": false,
		"rendered/uid-a": true, "rendered/uid-b": true, "rendered/uid-c": true, "rendered/uid-d": false,
		"checkpoints/rotten-1.corrupt": false, "checkpoints/rotten-2.corrupt": true, "checkpoints/rotten-6.corrupt": true,
		"v1.0.0": true /* it is not ours alone */, "v1.1.0": false, "v1.2.0": false, "v1.3.0": true, "v1.7.0": true,
		version: true, "manifests/static.yaml": true, "current": true,
	} {
		if got := exists(fsys, name); got != want {
			t.Errorf("%s is there: %v, want %v", name, got, want)
		}
	}

	if got := s.Rendered(); fmt.Sprint(got) != "[uid-a uid-b uid-c]" {
		t.Errorf("rendered: %v", got)
	}
}

func TestCollectRemovesNothingWhileARecordIsUnreadable(t *testing.T) {
	fsys, s := saved(t, full())
	if _, err := s.Put("uid-b", configMap("uid-b", "x")); err != nil {
		t.Fatal(err)
	}
	if err := open(t, fsys).Collect(); err == nil || err.Error() != "collect: the state has not been loaded" {
		t.Errorf("before Load: %v", err)
	}

	fsys.FailRead(dir+"/current", syscall.EIO)
	s.Load()
	if err := s.Collect(); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "collect: current cannot be read") {
		t.Errorf("current is unreadable: %v", err)
	}

	fsys.Heal()
	s.Load()
	// A failed save may have changed the references.
	next := full()
	next.Current.Config = config("uid-n", "f")
	if _, err := s.Put("uid-n", configMap("uid-n", "x")); err != nil {
		t.Fatal(err)
	}

	fsys.FailFrom(7, syscall.EIO) // after `+"`current`"+` was written
	next.Startups = nil
	if err := s.Save(next); err == nil || !strings.HasPrefix(err.Error(), "save startups: ") {
		t.Fatalf("saved on a broken disk: %v", err)
	}

	fsys.Heal()
	if err := s.Collect(); err != nil || !exists(fsys, "checkpoints/uid-b") || !exists(fsys, "checkpoints/uid-n") {
		t.Errorf("after a failed save: %v", err)
	}
	if err := errors.Join(s.Save(trial.State{}), s.Collect()); err != nil || exists(fsys, "checkpoints/uid-b") {
		t.Errorf("after a save: %v", err)
	}
}

func TestCollectContinuesAfterAnErrorAndReturnsIt(t *testing.T) {
	fsys, s := saved(t, trial.State{})
	fsys.Plant(dir+"/checkpoints/uid-x", nil)
	fsys.Plant(dir+"/checkpoints/uid-y", nil)
	fsys.FailAt(1, syscall.EIO)
	if err := s.Collect(); !errors.Is(err, syscall.EIO) || !strings.HasPrefix(err.Error(), "collect: remove "+dir+"/checkpoints/uid-x") {
		t.Errorf("%v", err)
	}
	if exists(fsys, "checkpoints/uid-y") || !exists(fsys, "checkpoints/uid-x") {
		t.Error("it stopped at the error")
	}

	fsys.FailRead(dir+"/rendered", syscall.EACCES)
	fsys.FailRead(dir, syscall.EACCES)
	if err := s.Collect(); !errors.Is(err, syscall.EACCES) || exists(fsys, "checkpoints/uid-x") {
		t.Errorf("%v", err)
	}
}
