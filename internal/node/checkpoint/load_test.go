// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

func TestNewDirectoryIsLocalWithoutAProblem(t *testing.T) {
	loads(t, open(t, crashfs.New()), trial.State{})
	fsys := crashfs.New()
	assert.NoError(t, assert.Err(open(t, fsys).Put("uid-a", configMap("uid-a", "x"))))
	loads(t, open(t, fsys), trial.State{}, "with a checkpoint")
}

// Damages of each record, and the expected problems.
func TestDamagedRecordIsReportedAndSetAside(t *testing.T) {
	replace := func(old, new string) func(string) string {
		return func(s string) string { return strings.Replace(s, old, new, 1) }
	}
	damages := map[string]struct {
		damage func(string) string
		want   string
	}{
		"truncated":       {func(s string) string { return s[:len(s)/2] }, "unexpected end of JSON input"},
		"garbage":         {func(string) string { return "\x00\x17garbage" }, "invalid character"},
		"null":            {func(string) string { return "null\n" }, `apiVersion "" is not supported, only "state.evenkeel.dev/v1"`},
		"two values":      {func(s string) string { return s + s }, "after top-level value"},
		"trailing":        {func(s string) string { return s + "x" }, "after top-level value"},
		"key twice":       {replace(`"kind"`, `"apiVersion": "state.evenkeel.dev/v1", "kind"`), `duplicate field "apiVersion"`},
		"future version":  {replace("dev/v1", "dev/v2"), `by a future version: apiVersion "state.evenkeel.dev/v2"`},
		"foreign version": {replace("state.evenkeel.dev/v1", "v1"), `apiVersion "v1" is not supported`},
		"other kind":      {replace(`"kind": "`, `"kind": "Not`), `kind "Not`},
		"too large":       {func(string) string { return strings.Repeat(" ", 17<<20) }, "bytes"},
		"no content": {func(s string) string {
			head := strings.Join(strings.Split(s, "\n")[:3], "\n")
			return strings.TrimSuffix(head, ",") + "}"
		}, "it has no content"},
	}
	for _, file := range files {
		for name, tt := range damages {
			t.Run(file+" "+name, func(t *testing.T) {
				fsys, _ := saved(t, full())
				damaged := tt.damage(read(t, fsys, file))
				fsys.Plant(dir+"/"+file, []byte(damaged))
				fsys.Plant(dir+"/"+file+".corrupt", []byte("an older one"))

				view, err := checkpoint.ReadOnly(fsys, dir, "")
				assert.That(t, err == nil && exists(fsys, file), "ReadOnly: %v, the file is still there: %v", err, exists(fsys, file))

				s := open(t, fsys)
				got, problems := s.Load()
				want := without(full(), file)
				assert.NoDiff(t, cmp.Diff([]trial.State{want, want}, []trial.State{got, view.State}))
				assert.Must(t, len(problems) == 1 && len(view.Problems) == 1, "problems %v and %v", problems, view.Problems)

				p := problems[0]
				assert.That(t, p.File == file && p.SetAside == file+".corrupt" && strings.Contains(p.What, "corrupt") &&
					strings.Contains(p.What, tt.want), "problem %+v, want one that says %q", p, tt.want)
				assert.That(t, read(t, fsys, file+".corrupt") == damaged && !exists(fsys, file),
					"the file was not set aside in place of the older one")

				// It stays a problem until the record is written again.
				again, problems := s.Load()
				diff := cmp.Diff(want, again)
				assert.That(t, diff == "" && len(problems) == 1 && strings.Contains(problems[0].What, "has not been written since"),
					"loaded again: %s%v", diff, problems)
				assert.NoError(t, s.Save(full()))
				loads(t, s, full(), "healed")
			})
		}
	}
}

func TestImpossibleValuesAreCorrupt(t *testing.T) {
	for _, tt := range []struct{ file, old, new, want string }{
		{"current", `"revision": "uid-b"`, `"revision": "../b"`, "not a safe name"},
		{"current", `"revision": "uid-b"`, `"revision": ""`, "it has no revision, but"},
		{"last-known-good", hex64("a"), hex64("g"), "is not a sha256"},
		{"current", `"since": "2026`, `"since": "20x6`, "parsing time"},
		{"revoked", `"uid-z"`, `""`, "an empty UID"},
		{version + "/bad-configs", `"revision": "uid-c"`, `"revision": "a/c"`, "not a safe name"},
		{version + "/bad-configs", hex64("c"), "c", "is not a sha256"},
		{version + "/promoted", `"revision": "uid-a"`, `"revision": ".."`, "not a safe name"},
		{version + "/startups", "2026", "26", "parsing time"},
		{version + "/trial", "1m3s", "1 minute", `duration "1 minute"`},
		{version + "/trial", `"terms"`, `"others"`, "the trial has no terms"},
		{version + "/trial", `"terms": {`, `"terms": null, "others": {`, "the trial has no terms"},
		{version + "/trial", `"crashLoopThreshold": `, `"crashLoopThreshold": -`, "the trial has no terms"},
		{version + "/trial", "30m0s", "half an hour", `invalid duration "half an hour"`},
		{"current", "30m0s", "half an hour", `invalid duration "half an hour"`},
		{version + "/trial", `"revision": "uid-b"`, `"revision": "/"`, "not a safe name"},
	} {
		fsys, _ := saved(t, full())
		fsys.Plant(dir+"/"+tt.file, []byte(strings.Replace(read(t, fsys, tt.file), tt.old, tt.new, 1)))
		got, problems := open(t, fsys).Load()
		assert.NoDiff(t, cmp.Diff(without(full(), tt.file), got), tt.file, "with", tt.new)
		assert.That(t, len(problems) == 1 && strings.Contains(problems[0].What, tt.want) && problems[0].SetAside != "",
			"%s with %s: %v, want %q", tt.file, tt.new, problems, tt.want)
	}

	fsys, _ := saved(t, trial.State{})
	fsys.Plant(dir+"/current", []byte(strings.Replace(read(t, fsys, "current"), `{}`, `{"uid": "uid-a"}`, 1)))
	_, problems := open(t, fsys).Load()
	assert.That(t, len(problems) == 1 && strings.Contains(problems[0].What, "it has no revision, but"), "%v", problems)
}

func TestMissingOrEmptyCurrentMeansLocalAndResetsNothing(t *testing.T) {
	for name, hurt := range map[string]func(*crashfs.FS){
		"the file is missing": func(f *crashfs.FS) { _ = f.Remove(dir + "/current") },
		"the file is empty":   func(f *crashfs.FS) { f.Plant(dir+"/current", nil) },
	} {
		fsys, _ := saved(t, full())
		hurt(fsys)
		s := open(t, fsys)
		got, problems := s.Load()
		want := full()
		want.Current = trial.AdoptedConfig{}
		assert.NoDiff(t, cmp.Diff(want, got), name)

		assert.That(t, len(problems) == 1 && problems[0].SetAside == "" && strings.HasPrefix(problems[0].What, name) &&
			strings.HasSuffix(problems[0].What, "using the local configuration; nothing is reset"), "%s: %v", name, problems)

		// Saving the loaded state does not create a record.
		assert.NoError(t, s.Save(got))
		_, problems = open(t, fsys).Load()
		assert.That(t, len(problems) == 1, "%s, after Save: %v", name, problems)

		got.Current, got.LastKnownGood = trial.AdoptedConfig{Since: noon}, trial.AdoptedConfig{Since: noon}
		assert.NoError(t, s.Save(got))
		again, problems := open(t, fsys).Load()
		assert.That(t, len(problems) == 0 && again.Current.Since.Equal(noon),
			"%s, after local was assigned: %+v, %v", name, again.Current, problems)
	}
}

func TestMissingRecordIsReportedIfALaterOneExists(t *testing.T) {
	for _, file := range files[:len(files)-1] {
		fsys, _ := saved(t, full())
		assert.NoError(t, fsys.Remove(dir+"/"+file))

		_, problems := open(t, fsys).Load()
		assert.That(t, len(problems) == 1 && problems[0].File == file &&
			strings.Contains(problems[0].What, "the file is missing, although "), "%s: %v", file, problems)
	}
}

func TestEachComponentVersionHasItsOwnRecords(t *testing.T) {
	fsys, _ := saved(t, full())
	newer := assert.Value(checkpoint.Open(fsys, dir, "v1.37.0", nil))(t)

	want := trial.State{Current: full().Current, LastKnownGood: full().LastKnownGood, Revoked: full().Revoked, Temporary: full().Temporary}
	loads(t, newer, want, "newer")
	assert.NoError(t, newer.Save(want))
	loads(t, open(t, fsys), full(), "older")
	v, err := checkpoint.ReadOnly(fsys, dir, "")
	assert.That(t, err == nil && v.Version == "v1.37.0" && cmp.Equal(v.Versions, []string{"v1.37.0", version}) && v.State.Bad == nil,
		"read-only: %+v, %v", v, err)
	v, err = checkpoint.ReadOnly(fsys, dir, version)
	assert.That(t, err == nil && v.Version == version && len(v.State.Bad) == 1, "read-only of the older: %+v, %v", v, err)

	// Back to the older version: its records do not change, and still it is the
	// last used one.
	older := open(t, fsys)
	older.Load()
	assert.NoError(t, older.Save(full()))
	v, err = checkpoint.ReadOnly(fsys, dir, "")
	assert.That(t, err == nil && v.Version == version, "read-only after going back: %q, %v", v.Version, err)

	// The records of the last used one are gone.
	gone := assert.Value(checkpoint.Open(fsys, dir, "v1.38.0", nil))(t)
	gone.Load()
	assert.NoError(t, errors.Join(gone.Save(full()), fsys.Rename(dir+"/v1.38.0", dir+"/.backup")))
	v, err = checkpoint.ReadOnly(fsys, dir, "")
	assert.That(t, err == nil && v.Version == "v1.37.0" && len(v.Versions) == 2, "read-only without the last used one: %q of %q, %v", v.Version, v.Versions, err)

	fsys.Plant(dir+"/component-version", []byte("garbage"))
	v, err = checkpoint.ReadOnly(fsys, dir, "")
	assert.That(t, err == nil && v.Version == "v1.37.0" && len(v.Problems) == 1,
		"read-only by the time of the directories: %q, %v, %v", v.Version, v.Problems, err)
}

func TestReadOnlyNeedsADirectoryAndASafeVersion(t *testing.T) {
	assert.Is(t, assert.Err(checkpoint.ReadOnly(crashfs.New(), dir, "")), fs.ErrNotExist, "no directory")
	assert.Is(t, assert.Err(checkpoint.ReadOnly(crashfs.New(), dir, "../x")), checkpoint.ErrName, "version")

	fsys := crashfs.New()
	fsys.PlantDir(dir, 0o700)
	v, err := checkpoint.ReadOnly(fsys, dir, "")
	assert.That(t, err == nil && v.Version == "" && len(v.Problems) == 0, "an empty directory: %+v, %v", v, err)
}

func TestUnreadableRecordIsNotReplaced(t *testing.T) {
	for _, file := range files {
		for _, cause := range []error{syscall.EIO, syscall.EACCES} {
			fsys, _ := saved(t, full())
			was := read(t, fsys, file)
			fsys.FailRead(dir+"/"+file, cause)
			s := open(t, fsys)
			got, problems := s.Load()
			assert.NoDiff(t, cmp.Diff(without(full(), file), got), file)
			assert.That(t, len(problems) == 1 && problems[0].SetAside == "" && strings.Contains(problems[0].What, cause.Error()),
				"%s: %+v", file, problems)

			fsys.Heal() // too late: what was decided since was decided without it
			next := got
			next.Promoted = append(next.Promoted, trial.Promotion{Revision: "uid-n", Time: noon})
			next.Startups = nil
			err := s.Save(next)
			assert.Is(t, err, cause, file, "save")
			assert.ErrorHas(t, err, path.Base(file)+": it could not be read and is not replaced")
			assert.That(t, read(t, fsys, file) == was, "%s was replaced", file)
			assert.That(t, file == version+"/startups" || !strings.Contains(read(t, fsys, version+"/startups"), "2026"),
				"%s kept the other records from being saved", file)
			_, problems = s.Load()
			assert.That(t, len(problems) == 0, "%s: loaded again: %v", file, problems)
			assert.OK(t, s.Save(full()), file, "saved after that")
		}
	}
}

func TestFailureToSetAsideIsReported(t *testing.T) {
	fsys, _ := saved(t, full())
	fsys.Plant(dir+"/current", []byte("garbage"))
	s := open(t, fsys)
	fsys.FailFrom(1, syscall.EROFS)
	got, problems := s.Load()
	assert.That(t, got.Current == full().LastKnownGood && len(problems) == 1 && problems[0].SetAside == "" &&
		strings.Contains(problems[0].What, "cannot set it aside") && strings.Contains(problems[0].String(), "current: corrupt: "),
		"%+v, %v", got.Current, problems)
	assert.Is(t, s.Save(full()), syscall.EROFS, "save")

	fsys.Heal()
	err := s.Save(full())
	assert.That(t, err == nil && read(t, fsys, "current.corrupt") == "garbage", "save: %v", err)
}

func TestDirectoryInPlaceOfARecordIsSetAside(t *testing.T) {
	fsys, _ := saved(t, full())
	assert.NoError(t, fsys.Remove(dir+"/current"))

	fsys.PlantDir(dir+"/current", 0o700)
	_, problems := open(t, fsys).Load()
	assert.That(t, len(problems) == 1 && problems[0].SetAside == "current.corrupt" &&
		strings.Contains(problems[0].What, "it is not a regular file but a directory"), "%v", problems)
}

func TestUnknownFieldOfALaterAgentIsIgnored(t *testing.T) {
	fsys, _ := saved(t, full())
	for _, file := range files {
		fsys.Plant(dir+"/"+file, []byte(strings.Replace(read(t, fsys, file), `"kind"`, `"later": {"a": 1}, "kind"`, 1)))
	}

	loads(t, open(t, fsys), full())
}

// The files in testdata were written by the agent before its records had a
// version of their own.
func TestRecordsOfAnUnversionedAgentAreRefusedAndSetAside(t *testing.T) {
	fsys, _ := saved(t, full())
	for _, file := range append(slices.Clone(files), "component-version") {
		fsys.Plant(dir+"/"+file, assert.Value(os.ReadFile("testdata/evenkeel.dev-v1alpha1/"+file))(t))
	}

	got, problems := open(t, fsys).Load()
	assert.NoDiff(t, cmp.Diff(trial.State{}, got))
	assert.Must(t, len(problems) == len(files)+1, "%v", problems)

	for _, p := range problems {
		assert.That(t, strings.Contains(p.What, `apiVersion "evenkeel.dev/v1alpha1" is not supported, only "state.evenkeel.dev/v1"`) &&
			p.SetAside == p.File+".corrupt", "%v", p)
	}
}

func TestLostLastKnownGoodIsRecoveredFromPromotions(t *testing.T) {
	for name, tt := range map[string]struct {
		state   func(*trial.State)
		content []byte // of the promoted checkpoint
		want    string // the revision; empty: nothing is recovered
	}{
		"newest promoted":       {func(*trial.State) {}, configMap("uid-a", "x"), "uid-a"},
		"no checkpoint":         {func(*trial.State) {}, nil, ""},
		"damaged checkpoint":    {func(*trial.State) {}, configMap("uid-a", "x")[:20], ""},
		"another's checkpoint":  {func(*trial.State) {}, configMap("uid-x", "x"), ""},
		"an object without UID": {func(*trial.State) {}, configMap("", "x"), ""},
		"it is revoked":         {func(s *trial.State) { s.Revoked = []types.UID{"uid-a"} }, configMap("uid-a", "x"), ""},
		"its payload is bad":    {func(s *trial.State) { s.Bad[0].SHA256 = hex64("a") }, configMap("uid-a", "x"), ""},
		"current is local":      {func(s *trial.State) { s.Current = trial.AdoptedConfig{Since: noon} }, configMap("uid-a", "x"), ""},
		"an older one was promoted": {func(s *trial.State) {
			s.Promoted = append([]trial.Promotion{{Revision: "uid-gone", SHA256: hex64("d"), Time: noon}}, s.Promoted...)
		}, configMap("uid-a", "x"), "uid-a"},
		"a payload in its name": {func(s *trial.State) { s.Promoted[0].Revision = "uid-a-0123456789ab" }, configMap("uid-a", "x"), "uid-a-0123456789ab"},
	} {
		t.Run(name, func(t *testing.T) {
			state := full()
			tt.state(&state)
			fsys, s := saved(t, state)
			if tt.content != nil {
				fsys.Plant(dir+"/checkpoints/"+state.Promoted[len(state.Promoted)-1].Revision, tt.content)
			}

			fsys.Plant(dir+"/last-known-good", []byte("garbage"))
			got, problems := s.Load()
			assert.Must(t, len(problems) == 1 && problems[0].File == "last-known-good", "%v", problems)

			if tt.want == "" {
				assert.Equal(t, got.LastKnownGood, trial.AdoptedConfig{})
				assert.That(t, strings.HasSuffix(problems[0].What, "using the local configuration, which is always good"), "%v", problems)
				return
			}

			lkg := got.LastKnownGood
			assert.That(t, lkg.Revision == tt.want && lkg.UID == "uid-a" && lkg.Name == "workers" && lkg.SHA256 == hex64("a") &&
				strings.HasSuffix(problems[0].What, "using the newest promoted configuration, "+tt.want), "%+v, %v", lkg, problems)

			data, err := s.Get(lkg.Config)
			assert.That(t, err == nil && string(data) == string(tt.content), "its checkpoint: %s, %v", data, err)
		})
	}
}

func TestWithCurrentAndLastKnownGoodLostThePromotedConfigRuns(t *testing.T) {
	fsys, s := saved(t, full())
	fsys.Plant(dir+"/checkpoints/uid-a", configMap("uid-a", "x"))
	fsys.Plant(dir+"/last-known-good", []byte("{"))
	fsys.Plant(dir+"/current", []byte("{"))
	got, problems := s.Load()
	assert.That(t, got.Current.Revision == "uid-a" && got.LastKnownGood.Revision == "uid-a" && len(problems) == 2,
		"%+v, %+v, %v", got.Current, got.LastKnownGood, problems)
	assert.That(t, strings.HasSuffix(problems[0].What, "using last-known-good"), "%v", problems[0])
}

// An emptied file is the proposal's way to write "local"; a missing or damaged
// one is a loss.
func TestEmptiedLastKnownGoodMeansLocal(t *testing.T) {
	for content, want := range map[string]string{"": "", "\n": "", "{": "uid-a", "missing": "uid-a"} {
		fsys, _ := saved(t, full())
		fsys.Plant(dir+"/checkpoints/uid-a", configMap("uid-a", "x"))
		fsys.Plant(dir+"/last-known-good", []byte(content))
		if content == "missing" {
			assert.NoError(t, fsys.Remove(dir+"/last-known-good"))
		}

		s := open(t, fsys)
		got, problems := s.Load()
		assert.That(t, got.LastKnownGood.Revision == want && got.Current.Revision == "uid-b" && len(problems) == 1,
			"%q: last-known-good is %q, current %q, %v", content, got.LastKnownGood.Revision, got.Current.Revision, problems)
		empty := problems[0].String() == "last-known-good: the file is empty; using the local configuration, which is always good"
		assert.Equal(t, empty, want == "", content, problems[0])
		assert.NoError(t, s.Save(got))
		loads(t, open(t, fsys), got, content, "saved")
	}
}

func TestNewerThanReturnsTheNewestVersionWithRecords(t *testing.T) {
	for _, c := range []struct {
		ours     string
		versions []string
		want     string
	}{
		{"v1.36.3", nil, ""},
		{"v1.36.3", []string{"v1.36.3", "v1.35.9"}, ""},
		{"v1.35.9", []string{"v1.36.3", "v1.35.9"}, "v1.36.3"},
		{"v1.9.9", []string{"v1.35.9", "v1.36.3", "v1.10.0"}, "v1.36.3"},
		{"v1.36.0-rc.1", []string{"v1.36.0"}, "v1.36.0"},
		{"v1.36.3", []string{"lost+found"}, ""},
		{"weekly", []string{"v1.36.3"}, ""},
	} {
		assert.Equal(t, (checkpoint.View{Versions: c.versions}).NewerThan(c.ours), c.want, "newer than", c.ours, "of", c.versions)
	}
}
