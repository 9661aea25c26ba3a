// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

const goodFile = dir + "/checkpoints/uid-good"

func TestCorruptCheckpointOfCurrentIsDownloadedAgain(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.assign("uid-better", better)
		w.promoted("uid-better")
		w.adopts("uid-third", conf{name: "third"})
		w.stop()
		w.disk.Plant(dir+"/checkpoints/uid-third", []byte("garbage"))
		w.apiUp(false)
		w.start()
		w.runs("better")
		w.pass(time.Minute)
		w.wantStarts("", "good", "better", "third", "better")
		w.wantConfigOKHas("Unknown | using last-known-good (UID: uid-better): failed to sync, desired config unclear, cause: ")
		n := len(w.reporter.all())
		assert.That(t, n <= 20, "%d different reports", n)
		w.apiUp(true)
		w.runs("third")
		w.wantEvent("Warning StateProblem: configuration uid-third: no checkpoint; it is downloaded again")
		w.wantConfigOK("True | using current (UID: uid-third): all checks passed (AllChecksPassed)")
		w.promoted("uid-third")
		_, err := w.disk.ReadFile(dir + "/checkpoints/uid-third.corrupt")
		assert.That(t, err == nil, "the corrupt file was not kept: %v", err)
	})
}

// Whether this agent downloaded it, or an agent before.
func TestMissingCheckpointMattersAtTheNextStartOnly(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		lost := func() {
			starts := len(w.kubelet.get().starts)
			assert.NoError(t, w.disk.Remove(goodFile))
			w.pass(5 * time.Second)
			assert.Equal(t, len(w.kubelet.get().starts), starts, "starts while it runs")
			w.dies(exitOne)
			w.pass(5 * time.Second)
			w.runs("good")
			w.wantConfigOK("True | using current (UID: uid-good): all checks passed (AllChecksPassed)")
			got := len(w.kubelet.get().starts) - starts
			assert.That(t, got <= 2, "%d starts: %q", got, w.kubelet.get().starts)
		}
		lost()
		w.pass(time.Minute)
		w.restart()
		w.runs("good")
		lost()
	})
}

func TestCorruptRecordIsReportedSetAsideAndWrittenAgain(t *testing.T) {
	forEach(t, inGoodWorld, map[string]string{
		"current": "good", "last-known-good": "better", "v1.36.3/trial": "better", "v1.36.3/startups": "better", "v1.36.3/bad-configs": "better",
	}, func(w *world, record, runs string) {
		w.adopts("uid-better", better)
		w.stop()
		w.disk.Plant(dir+"/"+record, []byte("{"))
		w.apiUp(false)
		w.start()
		w.runs(runs)
		w.pass(time.Second)
		w.wantEvent("Warning StateProblem: " + record + ": corrupt")
		data, err := w.disk.ReadFile(dir + "/" + record)
		assert.That(w.t, err == nil && strings.Contains(string(data), "apiVersion"), "it was not written anew: %q, %v", data, err)
		assert.That(w.t, !w.view().LastKnownGood.IsLocal(), "last-known-good is forgotten")
	})
}

func TestAssignmentIsNotAdoptedUntilItCanBeSaved(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.disk.FailFrom(1, syscall.ENOSPC, crashfs.NeedSpace...)
		w.assign("uid-better", better)
		w.pass(time.Minute)
		w.wantStarts("", "good")
		w.wantConfigOKHas("Unknown | using current (UID: uid-good): failed to sync, desired config unclear, "+
			"cause: cannot save ConfigMap evenkeel-system/better: ", "no space left on device")
		said := len(w.reporter.all())
		w.pass(10 * time.Minute)
		w.wantReports(said)
		w.disk.Heal()
		w.pass(12 * time.Second)
		w.runs("better")
		w.promoted("uid-better")
	})
}

func TestARollbackNeedsNoDisk(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.adopts("uid-crasher", crasher)
		w.disk.FailFrom(1, syscall.EROFS)
		w.pass(20 * time.Second)
		w.wantStarts("", "good", "crasher", "crasher", "crasher", "good")
		s := w.status()
		assert.That(t, len(s.BadConfigs) == 1 && s.Conditions[0].Reason == "CrashLooped", "%+v", s)
		w.disk.Heal()
		w.pass(15 * time.Second)
		v := w.view()
		assert.That(t, len(v.Bad) == 1 && v.Bad[0].Revision == "uid-crasher", "saved as bad: %+v", v.Bad)
	})
}

func (w *world) wantForgetRequests(want int) {
	w.t.Helper()
	requests := assert.Value(w.agent.disk.store.ForgetRequests())(w.t)
	assert.Equal(w.t, len(requests), want, "requests to forget")
}

func TestForgetRequestIsCarriedOutOnceEvenIfItCannotBeRemoved(t *testing.T) {
	inBadWorld(t, func(w *world) {
		w.disk.FailFrom(3, syscall.EIO, crashfs.Remove)
		w.forget("uid-crasher")
		w.pass(15 * time.Second)
		w.runs("crasher")
		w.promoted("uid-crasher")
		w.wantLogged("event=Forgotten", 1)
		w.wantLogged("cannot remove a completed request", 1)
		w.disk.Heal()
		w.pass(15 * time.Second)
		w.wantForgetRequests(0)
	})
}

func TestForgetRequestThatCannotBeSavedStays(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.assign("uid-better", better)
		w.pass(5 * time.Second)
		w.runs("better")
		w.forget("uid-better") // on trial: its end withdraws no verdict
		w.disk.FailFrom(1, syscall.ENOSPC, crashfs.Create, crashfs.Write)
		w.pass(15 * time.Second)
		w.wantForgetRequests(1)
		w.disk.Heal()
		w.pass(15 * time.Second)
		w.wantForgetRequests(0)
	})
}

func TestAnAgentThatCannotStartAKubeletReturnsWhy(t *testing.T) {
	type obstacle struct {
		happen func(w *world)
		want   string
		told   int // how often the init system is told that the agent stops
	}
	forEach(t, inWorld, map[string]obstacle{
		"the directory cannot be opened": {func(w *world) { w.openErr = errors.New("/var/lib/evenkeel belongs to user 1000") },
			"open the dynamic configuration directory: /var/lib/evenkeel belongs to user 1000", 0},
		"there is no binary": {func(w *world) {
			w.kubelet.set(func(s *kubeletState) { s.identityErr = errors.New("no such file or directory") })
		}, "no such file or directory", 0},
		"the local configuration is invalid": {func(w *world) {
			w.behaves(conf{rejected: "maxPods must not be negative"})
		}, ErrLocalInvalid.Error() + ": maxPods must not be negative", 1},
	}, func(w *world, _ string, tt obstacle) {
		tt.happen(w)
		w.start()
		w.pass(time.Second)
		w.stop()
		assert.Error(w.t, w.err, tt.want)
		w.wantStarts()
		assert.Equal(w.t, w.init.get().stopping, tt.told, "what the init system was told")
	})
}

func TestWithoutDynamicConfigurationLocalRunsAndNothingIsSaved(t *testing.T) {
	inWorld(t, func(w *world) {
		w.options = func(o *Options) { o.OpenStore, o.Remote = nil, "Disabled" }
		w.preflights = nil
		w.assign("uid-good", good)
		w.up()
		w.pass(time.Minute)
		w.wantStarts("")
		w.wantConfigOK("True | using current (init): current is set to the local default, and an init config was provided (LocalInit)")
		s := w.status()
		assert.That(t, s.RemoteConfig == "Disabled" && s.Assigned == nil, "%+v", s)
		assert.That(t, w.disk.Operations() <= 0, "%q", w.disk.Log())
	})
}

// If a configuration cannot be rendered, another download does not help.
func TestFailedRenderCausesNoRepeatedDownload(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.kubelet.set(func(s *kubeletState) {
			s.filesErr = errors.New("the node's own drop-in directory /etc/x: there are more than 1000 files")
		})
		w.crashes("")
		w.wantConfigOK("Unknown | using (init): failed to sync, desired config unclear, cause: the node's own drop-in directory /etc/x: there are more than 1000 files (SyncFailed)")
		w.pass(10 * time.Minute)
		w.wantStarts("", "good", "")
		assert.Equal(t, w.source.asked(), 0, "downloads")
		w.kubelet.set(func(s *kubeletState) { s.filesErr = nil })
		w.runs("good")
	})
}

func TestRuntimeOutageExcusesOnlyConfigsWithThatRuntime(t *testing.T) {
	forEach(t, inGoodWorld, map[string]bool{
		"":                       false, // the same as local: no verdict while it is away
		"unix:///run/other.sock": true,
	}, func(w *world, socket string, blamed bool) {
		w.adopts("uid-moved", conf{name: "moved", socket: socket})
		w.kubelet.set(func(s *kubeletState) { s.runtimeDown = true })
		w.behaves(conf{name: "moved", socket: socket, crashes: time.Second})
		w.dies(exitOne)
		w.pass(30 * time.Second)
		assert.Equal(w.t, len(w.status().BadConfigs) == 1, blamed, "blamed with socket", socket)
		assert.Equal(w.t, strings.Contains(w.configOK(), "CrashLooped"), blamed, "crash-looped with socket", socket)
	})
}

func TestRepeatedlyLostCheckpointIsDownloadedWithPauses(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.disk.FailRead(goodFile, syscall.EIO)
		w.assign("uid-good", good)
		w.pass(time.Second)
		n := w.source.asked()
		assert.Must(t, n <= 1, "downloaded %d times in a second", n)
		w.pass(time.Minute)
		n = w.source.asked()
		assert.That(t, n >= 2 && n <= 6, "downloaded %d times in a minute", n)
		w.wantStarts("")
		w.disk.Heal()
		w.pass(time.Minute)
		w.runs("good")
	})
}

// countingStore counts the saves of a state with that configuration as current.
type countingStore struct {
	Store
	revision string
	saves    *int
}

func (s countingStore) Save(next trial.State) error {
	if next.Current.Revision == s.revision {
		*s.saves++
	}

	return s.Store.Save(next)
}

func TestFailedSaveIsRetriedWithPauses(t *testing.T) {
	inWorld(t, func(w *world) {
		saves := 0
		w.options = func(o *Options) {
			open := o.OpenStore
			o.OpenStore = func(version string) (Store, error) {
				store, err := open(version)
				return countingStore{store, "uid-better", &saves}, err
			}
		}
		withGood(w)
		w.assign("uid-better", better)
		w.pass(100 * time.Millisecond) // it is downloaded, and being judged
		w.disk.FailFrom(1, syscall.ENOSPC, crashfs.Create)
		for range 100 {
			w.api.set(func(api *simAPI) { api.generation++ })
			w.pass(100 * time.Millisecond)
		}

		assert.That(t, saves >= 1 && saves <= 2, "tried %d times in 10 s", saves)
		w.wantConfigOKHas("Unknown | using last-known-good (UID: uid-good): failed to sync, desired config unclear, " +
			"cause: cannot save it to disk: save current: ")
		w.wantLogged("cannot save the node's state", 1)
		wantEvents(t, w, "Normal ConfigChanged: now using current (UID: uid-good)",
			"Normal ConfigLastKnownGood: (UID: uid-good) became last-known-good after 40s of observed health")
		w.wantStarts("", "good")
		w.disk.Heal()
		w.pass(12 * time.Second)
		w.runs("better")
	})
}
