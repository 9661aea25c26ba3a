// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

// step is a transition: the downloaded ConfigMap and the resulting state.
type step struct {
	name     string
	download string
	state    trial.State
}

// history is a sequence of transitions of a node.
func history() []step {
	at := func(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }
	put := func(uid, payload string) trial.Config {
		c := config(uid, payload)
		c.Checkpoint = fmt.Sprintf("%x", sha256.Sum256(configMap(uid, "x")))
		return c
	}
	var steps []step
	var s trial.State
	add := func(name, download string, change func()) {
		s.Bad, s.Promoted = append([]trial.BadConfig(nil), s.Bad...), append([]trial.Promotion(nil), s.Promoted...)
		change()
		steps = append(steps, step{name, download, s})
	}
	adopt := func(uid, payload string, minute int) func() {
		return func() {
			s.Current = trial.AdoptedConfig{Config: put(uid, payload), Since: at(minute)}
			s.Startups = []time.Time{at(minute)}
			s.Trial = &trial.Trial{Revision: uid, StartTime: at(minute), BootID: "boot-1", Baseline: trial.Baseline{API: true, Ready: true}}
		}
	}
	add("nothing assigned", "", func() {})
	add("adopt", "uid-a", adopt("uid-a", "a", 1))
	add("observe", "", func() {
		t := *s.Trial
		t.Healthy.Duration = 20 * time.Second
		s.Trial = &t
	})
	add("promote", "", func() {
		s.LastKnownGood = trial.AdoptedConfig{Config: s.Current.Config, Since: at(11)}
		s.Promoted = []trial.Promotion{{Revision: "uid-a", SHA256: hex64("a"), Time: at(11)}}
		s.Trial, s.Startups = nil, nil
	})
	add("adopt another", "uid-b", adopt("uid-b", "b", 20))
	add("crash", "", func() { s.Startups = append(s.Startups[:1:1], at(21)) })
	add("fail", "", func() {
		s.Bad = []trial.BadConfig{{Revision: "uid-b", ConfigRevision: v1alpha1.ConfigRevision{UID: "uid-b", SHA256: hex64("b")}, Time: at(22), Reason: "crash-looped", Failure: v1alpha1.ReasonCrashLooped, Attempt: 1, Provisional: true}}
	})
	add("confirm", "", func() { s.Bad[0].Provisional, s.Trial, s.Startups = false, nil, nil })
	add("lift", "uid-b", func() {
		adopt("uid-b", "b", 30)()
		s.Current.Rollout.Attempt, s.Bad = 2, nil
	})
	add("retarget", "uid-c", adopt("uid-c", "c", 31))
	add("inherit", "uid-d", func() {
		s.Current = trial.AdoptedConfig{Config: put("uid-d", "c"), Since: at(32)}
		t := *s.Trial
		t.Revision = "uid-d"
		s.Trial = &t
	})
	add("revoke", "", func() { s.Revoked = []types.UID{"uid-c"} })
	add("nil", "", func() {
		s.Current, s.LastKnownGood = trial.AdoptedConfig{Since: at(40)}, trial.AdoptedConfig{Since: at(40)}
		s.Trial, s.Startups = nil, nil
	})

	return steps
}

// take carries out a step as an agent does.
func take(fsys *crashfs.FS, s step) error {
	store, err := checkpoint.Open(fsys, dir, version, nil)
	if err != nil {
		return err
	}

	store.Load()
	if s.download != "" {
		if _, err := store.Put(s.download, configMap(s.download, "x")); err != nil {
			return err
		}
	}

	if err := store.Save(s.state); err != nil {
		return err
	}

	return store.Collect()
}

// parts returns the contents of the records, in the order in which they are
// written.
func parts(s trial.State) []any {
	return []any{s.Revoked, s.Temporary, s.Current, s.Bad, s.Promoted, s.LastKnownGood, s.Startups, s.Trial}
}

// check loads the state after a crash: each record is old or new, no record is
// new after an old one, none is corrupt or missing, and the referenced
// configurations have their checkpoints.
func check(t *testing.T, where string, fsys *crashfs.FS, old, next trial.State, done bool) {
	t.Helper()
	store, err := checkpoint.Open(fsys, dir, version, nil)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}

	got, problems := store.Load()
	assert.That(t, len(problems) == 0, "%s: %v", where, problems)

	stillNew := true
	for i, part := range parts(got) {
		isOld, isNew := cmp.Equal(part, parts(old)[i]), cmp.Equal(part, parts(next)[i])
		switch {
		case !isOld && !isNew:
			t.Errorf("%s: %s is neither old nor new: %+v", where, files[i], part)
		case !isNew && done:
			t.Errorf("%s: %s is old, although it was saved", where, files[i])
		case !isOld && !stillNew:
			t.Errorf("%s: %s is new, although one before it is old", where, files[i])
		}

		stillNew = stillNew && isNew
	}

	for _, r := range []trial.AdoptedConfig{got.Current, got.LastKnownGood} {
		if r.IsLocal() {
			continue
		}
		assert.OK(t, assert.Err(store.Get(r.Config)), where, r.Revision, "is named")
	}

	// The same step then has its usual result.
	assert.OK(t, take(fsys, step{state: next, download: next.Current.Revision}), where, "again")
	loads(t, open(t, fsys), next, where, "again")
}

// eachStep calls try with each step of the history, and the disk and the state
// before it.
func eachStep(t *testing.T, try func(s step, disk *crashfs.FS, old trial.State)) {
	t.Helper()
	disk := crashfs.New()
	var old trial.State
	for _, s := range history() {
		try(s, disk, old)
		assert.NoError(t, take(disk, s))
		old = s.state
	}
}

func TestAfterACrashAtAnyPointEachRecordIsOldOrNewInOrder(t *testing.T) {
	eachStep(t, func(s step, disk *crashfs.FS, old trial.State) {
		for n := 0; ; n++ {
			fsys := disk.Reboot(crashfs.Choices["all lost"])
			fsys.CrashAfter(n)
			err := take(fsys, s)
			for name, choice := range crashfs.Choices {
				up := fsys.Reboot(choice)
				check(t, fmt.Sprintf("%s, crash after %d operations, %s", s.name, n, name), up, old, s.state, err == nil && !fsys.Crashed())
			}

			if !fsys.Crashed() {
				break
			}
		}
	})
}

func TestAfterAnyFailedOperationRecordsAreOldOrNewAndTheNextSaveCompletesThem(t *testing.T) {
	eachStep(t, func(s step, disk *crashfs.FS, old trial.State) {
		for _, forever := range []bool{false, true} {
			for n := 1; ; n++ {
				cause := []error{syscall.ENOSPC, syscall.EIO, syscall.EROFS}[n%3] // nothing tells them apart
				fsys := disk.Reboot(crashfs.Choices["all lost"])
				if forever {
					fsys.FailFrom(n, cause)
				} else {
					fsys.FailAt(n, cause)
				}

				from := fsys.Operations()
				err := take(fsys, s)
				hit := fsys.Operations()-from >= n
				assert.That(t, err == nil || strings.Contains(err.Error(), cause.Error()), "%s, operation %d: %v", s.name, n, err)

				fsys.Heal()
				where := fmt.Sprintf("%s, operation %d failed (%v)", s.name, n, err)
				for _, choice := range []string{"all lost", "all kept", "names kept"} {
					check(t, where+", then "+choice, fsys.Reboot(crashfs.Choices[choice]), old, s.state, err == nil)
				}

				check(t, where, fsys, old, s.state, err == nil)
				if !hit {
					break
				}
			}
		}
	})
}

func TestPowerCutAfterAFailedSaveKeepsWhatALaterSaveWrote(t *testing.T) {
	steps := history()
	for n := 1; ; n++ {
		fsys, s := saved(t, steps[3].state)
		fsys.FailAt(n, syscall.EIO)
		from := fsys.Operations()
		first := s.Save(steps[4].state)
		assert.NoError(t, s.Save(steps[4].state), "operation", n, "failed:", first, "then")

		loads(t, open(t, fsys.Reboot(crashfs.Choices["all lost"])), steps[4].state, "operation", n, "failed")
		if fsys.Operations()-from < n {
			return
		}
	}
}

func TestPowerCutDoesNotRevertARecordWithAFailedSync(t *testing.T) {
	for name, next := range changesOfOneRecord() {
		for _, dies := range []bool{false, true} {
			fsys, s := saved(t, full())
			fsys.FailFrom(1, syscall.EIO, crashfs.SyncDir)
			err := s.Save(next)
			assert.Must(t, errors.Is(err, syscall.EIO) && strings.Contains(err.Error(), "sync its directory"), "%v", err)
			if dies { // and the machine keeps running, and the next agent acts on what it reads
				fsys.Heal()
				loads(t, open(t, fsys), next, name)
			} else { // and the records are loaded in between, with another failed sync
				loads(t, s, next, name)
				fsys.Heal()
				assert.NoError(t, s.Save(next))
			}

			loads(t, open(t, fsys.Reboot(crashfs.Choices["all lost"])), next, name, "after a power cut; the agent died:", dies)
		}
	}
}

// changesOfOneRecord returns states that differ from full in one record each:
// saving another one would sync its directory too.
func changesOfOneRecord() map[string]trial.State {
	shared, versioned := full(), full()
	shared.LastKnownGood.Since = noon
	versioned.Trial.Healthy.Duration += time.Minute
	return map[string]trial.State{"last-known-good": shared, version + "/trial": versioned}
}

func TestPowerCutDoesNotRemoveTheCheckpointOfWhatLoadRead(t *testing.T) {
	fsys, s := saved(t, full())
	fsys.FailFrom(1, syscall.EIO, crashfs.SyncDir)
	assert.Is(t, assert.Err(s.Put("uid-b", configMap("uid-b", "b"))), syscall.EIO, "put on a broken disk")

	fsys.Heal()
	open(t, fsys).Load()
	after := fsys.Reboot(crashfs.Choices["all lost"])
	assert.That(t, exists(after, "checkpoints/uid-b"), "the checkpoint is gone")
}

func TestPartlyCreatedDirectoryIsDurableWhenUsed(t *testing.T) {
	for n := 1; ; n++ {
		fsys := crashfs.New()
		fsys.FailAt(n, syscall.EIO)
		_, err := checkpoint.Open(fsys, dir, version, nil)
		if err == nil {
			return
		}

		s := open(t, fsys)
		s.Load()
		assert.NoError(t, s.Save(full()))

		loads(t, open(t, fsys.Reboot(crashfs.Choices["all lost"])), full(), "operation", n, "failed")
	}
}

func TestDirectoryOfAKilledProcessIsMadeDurable(t *testing.T) {
	for how, failed := range map[string]bool{"by Load": false, "by Save, because Load could not": true} {
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
		loads(t, open(t, after), full(), how)
	}
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
	assert.NoError(t, fsys.Mkdir(dir+"/forget-requests", 0o700)) // by a command that was killed then
	assert.NoError(t, checkpoint.RequestForget(fsys, dir, "uid-c"))

	after := fsys.Reboot(crashfs.Choices["all lost"])
	wantRequests(t, open(t, after), "uid-c")
}

// A file set aside survives a power cut: people inspect it, and the node must
// not read the corrupt file again.
func TestFilesSetAsideSurviveAPowerCut(t *testing.T) {
	for name, meet := range map[string]func(*testing.T, *checkpoint.Store){
		"checkpoints/uid-b": func(t *testing.T, s *checkpoint.Store) {
			assert.Is(t, assert.Err(s.Get(config("uid-b", "b"))), checkpoint.ErrCorrupt, "Get")
		},
		"current": func(t *testing.T, s *checkpoint.Store) {
			_, problems := s.Load()
			assert.Must(t, len(problems) == 1 && problems[0].SetAside != "", "Load: %v", problems)
		},
	} {
		fsys, _ := saved(t, full())
		fsys.Plant(dir+"/"+name, []byte("{"))
		meet(t, open(t, fsys))
		for choice, choose := range crashfs.Choices {
			after := fsys.Reboot(choose)
			assert.That(t, !exists(after, name) && exists(after, name+".corrupt"),
				"%s: %s is there: %t, set aside: %t", choice, name, exists(after, name), exists(after, name+".corrupt"))
		}
	}
}
