// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

// The files in testdata are the records of full, as this version writes them.
func TestRecordsAreReadableText(t *testing.T) {
	fsys, _ := saved(t, full())
	for _, file := range append(slices.Clone(files), "component-version") {
		want := assert.Value(os.ReadFile("testdata/state.evenkeel.dev-v1/" + file))(t)
		assert.NoDiff(t, cmp.Diff(string(want), read(t, fsys, file)), file)
	}

	fsys, _ = saved(t, trial.State{})
	got := read(t, fsys, "current")
	assert.That(t, strings.Contains(got, `"content": {}`), "%v", got)
}

func TestSaveWritesOnlyChangedRecords(t *testing.T) {
	fsys, s := saved(t, full())
	writes := func(next trial.State) []string {
		from := fsys.Operations()
		assert.NoError(t, s.Save(next))

		var names []string
		for _, line := range fsys.Log()[from:] {
			if _, to, ok := strings.Cut(line, " -> "); ok {
				names = append(names, strings.TrimPrefix(to, dir+"/"))
			}
		}

		return names
	}
	got := writes(full())
	assert.That(t, got == nil, "nothing changed, yet %q were written", got)

	next := full()
	next.Trial.Healthy.Duration += time.Minute
	got = writes(next)
	assert.That(t, slices.Equal(got, []string{version + "/trial"}), "%q were written", got)
	got = writes(trial.State{})
	assert.That(t, slices.Equal(got, files), "%q were written, want all in the order %q", got, files)

	// The same holds for a store that was just opened.
	s = open(t, fsys)
	s.Load()
	got = writes(trial.State{})
	assert.That(t, got == nil, "nothing changed since it was opened, yet %q were written", got)
}

func TestRecordRemovedOrCorruptedAtRunTimeIsWrittenAgain(t *testing.T) {
	for _, file := range files {
		fsys, s := saved(t, full())
		assert.NoError(t, fsys.Remove(dir+"/"+file))
		err := s.Save(full())
		assert.That(t, err == nil && exists(fsys, file), "%s vanished: %v", file, err)

		fsys.Plant(dir+"/"+file, []byte("rot"))
		err = s.Save(full())
		assert.That(t, err == nil && read(t, fsys, file+".corrupt") == "rot", "%s rotted: %v", file, err)

		fsys.FailRead(dir+"/"+file, syscall.EIO)
		err = s.Save(full())
		assert.That(t, errors.Is(err, syscall.EIO) && strings.Contains(err.Error(), "is not replaced"), "%s is unreadable: %v", file, err)

		fsys.Heal()
		loads(t, s, full(), file)
	}
}

func TestRecordChangedByHandAtRunTimeIsKeptAsACopyAndWrittenAgain(t *testing.T) {
	for _, file := range files {
		fsys, s := saved(t, full())
		mine := read(t, fsys, file)
		edited := strings.Replace(mine, "{", "{ ", 1)
		fsys.Plant(dir+"/"+file, []byte(edited))
		fsys.FailAt(1, syscall.ENOSPC)
		err := s.Save(full())
		assert.That(t, errors.Is(err, syscall.ENOSPC) && read(t, fsys, file) == edited, "%s was lost on a full disk: %v", file, err)
		err = s.Save(full())
		assert.That(t, err == nil && read(t, fsys, file) == mine && read(t, fsys, file+".edited") == edited, "%s: %v", file, err)
		loads(t, s, full(), file)
	}
}

func TestRemovedDirectoryIsCreatedAgain(t *testing.T) {
	fsys, s := saved(t, full())
	assert.NoError(t, fsys.Rename(dir, "/elsewhere"))
	assert.NoError(t, s.Save(full()))
	assert.NoError(t, assert.Err(s.Put("uid-b", configMap("uid-b", "x"))))
	loads(t, open(t, fsys), full())
}

func TestStateThatCannotBeDecodedIsNotWritten(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*trial.State)
		want   string
	}{
		"revision":  {func(s *trial.State) { s.Current.Revision = "../../etc/passwd" }, `save current: revision "../../etc/passwd": not a safe name`},
		"digest":    {func(s *trial.State) { s.LastKnownGood.SHA256 = "abc" }, `save last-known-good: "abc" is not a sha256`},
		"bad":       {func(s *trial.State) { s.Bad[0].Revision = "" }, `save bad-configs: revision "": not a safe name`},
		"the time":  {func(s *trial.State) { s.Startups[0] = s.Startups[0].AddDate(9000, 0, 0) }, "save startups: "},
		"the trial": {func(s *trial.State) { s.Trial.Revision = "a/b" }, `save trial: revision "a/b": not a safe name`},
	} {
		fsys, s := saved(t, full())
		before := fsys.Operations()
		next := full()
		tt.change(&next)
		err := s.Save(next)
		assert.That(t, err != nil && strings.HasPrefix(err.Error(), tt.want), "%s: %v, want %q", name, err, tt.want)
		assert.That(t, fsys.Operations() == before, "%s: something was written", name)
	}
}

func TestDiskErrorNamesTheFileAndALaterSaveCompletes(t *testing.T) {
	for name, fault := range map[string]func(*crashfs.FS){
		"full":      func(f *crashfs.FS) { f.FailFrom(1, syscall.ENOSPC, crashfs.NeedSpace...) },
		"read-only": func(f *crashfs.FS) { f.FailFrom(1, syscall.EROFS) },
	} {
		fsys, s := saved(t, trial.State{})
		fault(fsys)
		err := s.Save(full())
		assert.That(t, err != nil && strings.HasPrefix(err.Error(), "save revoked: replace "+dir+"/revoked: create a temporary file: "),
			"%s: %v", name, err)
		_, err = s.Put("uid-b", configMap("uid-b", "x"))
		assert.That(t, err != nil && strings.HasPrefix(err.Error(), "checkpoint uid-b: replace "), "%s: put: %v", name, err)
		// A node with such a disk still reads the files.
		loads(t, open(t, fsys), trial.State{}, name)

		fsys.Heal()
		assert.OK(t, s.Save(full()), name)
		loads(t, open(t, fsys), full(), name)
	}
}

func TestLoadReturnsWhatWasSaved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anyState(t)
		fsys := crashfs.New()
		s := open(t, fsys)
		s.Load()
		for _, state := range []trial.State{anyState(t), want} {
			assert.NoError(t, s.Save(state))
		}

		loads(t, open(t, fsys.Reboot(crashfs.Choices["all lost"])), want)
	})
}

// A new field of the state must be written, and the fixture must set it.
func TestFixtureSetsEverySavedField(t *testing.T) {
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		switch {
		case v.IsZero():
			t.Errorf("%s is empty", path)
		case v.Kind() == reflect.Pointer:
			walk(path, v.Elem())
		case v.Kind() == reflect.Slice:
			walk(path, v.Index(0))
		case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]():
			for i := range v.NumField() {
				f := v.Type().Field(i) // Term and Previous of a rollout's reference are not recorded
				if f.Name != "Term" && f.Name != "Previous" && f.Tag.Get("json") != "-" {
					walk(path+"."+f.Name, v.Field(i))
				}
			}
		}
	}
	v := reflect.ValueOf(full())
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; name != "Run" {
			walk(name, v.Field(i))
		}
	}
}

func anyState(t *rapid.T) trial.State {
	revision := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._-]{0,30}[A-Za-z0-9]`).Filter(func(s string) bool {
		return !strings.HasSuffix(s, ".tmp") && !strings.HasSuffix(s, ".corrupt")
	})
	digest := rapid.StringMatching(`([0-9a-f]{64})?`)
	at := rapid.Map(rapid.Int64Range(0, 4e18), func(n int64) time.Time { return time.Unix(0, n).UTC() })
	text := rapid.String()
	if rapid.Bool().Draw(t, "plain") {
		text = rapid.StringMatching(`[ -~]*`)
	}

	text = rapid.Map(text, func(s string) string { return strings.ToValidUTF8(s, "?") })
	record := rapid.Custom(func(t *rapid.T) trial.AdoptedConfig {
		r := trial.AdoptedConfig{Since: at.Draw(t, "since")}
		if rapid.Bool().Draw(t, "local") {
			return r
		}

		r.Config = trial.Config{Revision: revision.Draw(t, "revision"), ConfigRevision: v1alpha1.ConfigRevision{Namespace: text.Draw(t, "namespace"), Name: text.Draw(t, "name"), UID: types.UID(text.Draw(t, "uid")), SHA256: digest.Draw(t, "payload")},
			Checkpoint: digest.Draw(t, "file")}
		if rapid.Bool().Draw(t, "asks") {
			r.RequestedTerms = trial.RequestedTerms{Duration: metav1.Duration{Duration: time.Duration(rapid.Int64Range(0, 1e15).Draw(t, "duration"))}, Starts: rapid.IntRange(0, 11).Draw(t, "starts"), AllowPodLoss: rapid.Bool().Draw(t, "pod loss")}
		}
		if rapid.Bool().Draw(t, "assigned by") {
			r.AssignedBy = text.Draw(t, "object")
		}
		if rapid.Bool().Draw(t, "rollout") {
			r.Rollout = v1alpha1.RolloutReference{Name: text.Draw(t, "rollout name"), Revision: rapid.Int64().Draw(t, "n"), Attempt: rapid.Int64().Draw(t, "attempt"), AssignedAt: metav1.NewTime(at.Draw(t, "assigned").Truncate(time.Second))}
		}

		return r
	})
	uids := rapid.SliceOfN(text.Filter(func(s string) bool { return s != "" }), 0, 4)
	orNil := func(s []string) []string {
		if len(s) == 0 {
			return nil
		}

		return s
	}
	s := trial.State{Current: record.Draw(t, "current"), LastKnownGood: record.Draw(t, "last-known-good"), Revoked: rapid.SliceOfN(rapid.Map(text, func(s string) types.UID { return types.UID("u" + s) }), 1, 4).Draw(t, "revoked")}
	clock := at.Draw(t, "clock")
	for i, r := range rapid.SliceOfNDistinct(revision, 0, 5, rapid.ID[string]).Draw(t, "bad") {
		s.Bad = append(s.Bad, trial.BadConfig{Revision: r, ConfigRevision: v1alpha1.ConfigRevision{UID: types.UID(text.Draw(t, "uid")), SHA256: digest.Draw(t, "payload")}, Time: clock.Add(-time.Duration(i) * time.Second),
			Reason: text.Draw(t, "reason"), Detail: text.Draw(t, "detail"), Failure: v1alpha1.ReasonNotReady, Attempt: rapid.Int64().Draw(t, "attempt"), Provisional: rapid.Bool().Draw(t, "provisional")})
		s.Promoted = append(s.Promoted, trial.Promotion{Revision: r, SHA256: digest.Draw(t, "promoted"), Time: at.Draw(t, "time")})
		s.Startups = append(s.Startups, at.Draw(t, "startup"))
	}

	if rapid.Bool().Draw(t, "trial") {
		s.Trial = &trial.Trial{Revision: revision.Draw(t, "trial"), Terms: trial.Terms{Duration: metav1.Duration{Duration: time.Hour}, Threshold: rapid.IntRange(0, 10).Draw(t, "threshold")}, StartTime: at.Draw(t, "start"), Healthy: metav1.Duration{Duration: time.Duration(rapid.Int64().Draw(t, "healthy"))},
			BootID: text.Draw(t, "boot"), Clean: rapid.Bool().Draw(t, "clean"), Fallback: trial.APIProbe,
			Baseline: trial.Baseline{API: rapid.Bool().Draw(t, "api"), Pods: orNil(uids.Draw(t, "pods"))}}
	}

	return s
}

// Repeated errors must have the same text: otherwise the node would write its
// status each time.
func TestErrorsOfRepeatedCallsAreEqual(t *testing.T) {
	for what, try := range map[string]func(fsys *crashfs.FS) error{
		"save": func(fsys *crashfs.FS) error { return open(t, fsys).Save(full()) },
		"put": func(fsys *crashfs.FS) error {
			_, err := open(t, fsys).Put("uid-n", configMap("uid-n", "p"))
			return err
		},
		"render": func(fsys *crashfs.FS) error {
			_, err := open(t, fsys).Render("uid-n", map[string][]byte{"kubelet.conf.d/a": []byte("1"), "kubelet.conf.d/b": []byte("2")})
			return err
		},
	} {
		for _, op := range []crashfs.Op{crashfs.Create, crashfs.Write, crashfs.Sync, crashfs.Close, crashfs.Mkdir, crashfs.Rename, crashfs.Chmod, crashfs.SyncDir} {
			for _, first := range []trial.State{{}, full()} {
				fsys := crashfs.New()
				assert.NoError(t, open(t, fsys).Save(first))

				fsys.FailFrom(1, syscall.ENOSPC, op)
				_ = try(fsys) // it may have got somewhere
				one, two := try(fsys), try(fsys)
				assert.That(t, (one == nil) == (two == nil) && (one == nil || one.Error() == two.Error()),
					"%s, %s fails:\n%v\n%v", what, op, one, two)
			}
		}
	}
}
