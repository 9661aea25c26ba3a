// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

// wantVersion checks the reported version of the kubelet, and how many bad
// configurations its records have.
func (w *world) wantVersion(version string, bad int) {
	w.t.Helper()
	s := w.status()
	assert.That(w.t, s.ComponentVersion == version && len(s.BadConfigs) == bad, "%s, bad: %+v", s.ComponentVersion, s.BadConfigs)
}

func TestReplacedBinaryIsExaminedAndHasItsOwnRecords(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		withBad(w)
		w.kubelet.set(func(s *kubeletState) { s.identity = "inode-2" }) // the same version, rebuilt
		w.dies(exitOne)
		w.pass(15 * time.Second)
		w.wantVersion("v1.36.3", 1)
		starts := len(w.kubelet.get().starts)
		w.kubelet.set(func(s *kubeletState) { s.identity, s.version = "inode-3", "v1.37.0" })
		w.pass(15 * time.Second)
		w.wantVersion("v1.36.3", 1) // which runs
		w.dies(exitOne)
		w.pass(15 * time.Second)
		w.wantVersion("v1.37.0", 0)
		w.runs("crasher") // which was mended
		got := w.kubelet.get().starts[starts:]
		assert.That(t, slices.Equal(got, []string{"crasher"}), "starts %q", got)
		w.kubelet.set(func(s *kubeletState) { s.identity, s.version = "inode-1", "v1.36.3" })
		w.dies(exitOne)
		w.pass(15 * time.Second)
		w.wantVersion("v1.36.3", 1) // a downgrade finds its own again
	})
}

func TestMissingBinaryKeepsTheRunningKubelet(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.kubelet.set(func(s *kubeletState) { s.identityErr = errors.New("no such file or directory") })
		w.pass(time.Minute)
		w.wantStarts("")
		w.wantLogged("cannot examine the kubelet's binary", 0)

		// A kubelet that cannot be started is no failure of the configuration
		// on trial.
		w.assign("uid-good", good)
		w.runs("good")
		w.kubelet.set(func(s *kubeletState) { s.spawnErr = errors.New("start /usr/bin/kubelet: it is not there") })
		w.dies(exitOne)
		w.pass(2 * time.Minute)
		n := w.log.count("the kubelet cannot be started")
		assert.That(t, n >= 5 && n <= 20, "tried %d times in two minutes", n)
		assert.Equal(t, w.status().Error, "the kubelet exited unexpectedly: start /usr/bin/kubelet: it is not there")
		w.kubelet.set(func(s *kubeletState) { s.identityErr, s.spawnErr = nil, nil })
		w.runs("good")
		w.wantNoBad()
		assert.That(t, w.status().Trial != nil, "the trial has ended")
	})
}

func TestOpeningTheStateOfANewVersionIsRetried(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		withBad(w)
		w.openErr = errors.New("no space left on device")
		w.kubelet.set(func(s *kubeletState) { s.identity, s.version = "inode-2", "v1.37.0" })
		w.dies(exitOne)
		w.pass(time.Minute)
		w.wantVersion("v1.36.3", 1)
		w.wantLogged("continuing with the old version's", 1)
		w.openErr = nil
		w.dies(exitOne)
		w.pass(25 * time.Second)
		w.wantVersion("v1.37.0", 0)
	})
}

// TestVerdictOnTheRunningConfigIsKept: after a crash, a kubelet with another
// health endpoint must not be probed at the default one.
func TestVerdictOnTheRunningConfigIsKept(t *testing.T) {
	for name, lose := range map[string]func(w *world){
		"the binary was replaced": func(w *world) { w.kubelet.set(func(s *kubeletState) { s.identity = "inode-2" }) },
		"the API came and went": func(w *world) {
			w.apiUp(false)
			w.pass(time.Second)
			w.apiUp(true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, assigned := range []string{"", "good"} {
				inWorld(t, func(w *world) {
					w.kubelet.set(func(s *kubeletState) { s.confs[""] = conf{healthz: 20249} })
					w.assignLocal()
					w.start()
					w.runs("")
					if assigned != "" {
						w.assign("uid-good", conf{name: "good", healthz: 20249})
						w.runs("good")
					}

					lose(w)
					w.pass(15 * time.Second)
					w.dies(exitOne)
					w.runs(assigned)
					for _, port := range w.kubelet.get().ports {
						assert.That(t, port == "20249", "%s: its health was asked for at %q", orLocal(assigned), w.kubelet.get().ports)
					}
				})
			}
		})
	}
}

// TestBinaryReplacedBeforeARestartCausesAnotherDecision: the change stops the
// old kubelet, and then the state of the new version counts.
func TestBinaryReplacedBeforeARestartCausesAnotherDecision(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.kubelet.set(func(s *kubeletState) { s.identity, s.version = "inode-2", "v1.37.0" })
		w.assign("uid-good", conf{name: "good"})
		w.runs("good")
		s := w.status()
		assert.That(t, s.ComponentVersion == "v1.37.0" && s.Trial != nil, "%s, trial: %+v", s.ComponentVersion, s.Trial)
		w.wantStarts("", "good")
	})
}

// The kubelet of another file is not restarted after a crash: it would exit at
// state of before, as with any change.
func TestStateIsMovedAsideAlsoForAReplacedBinary(t *testing.T) {
	for _, version := range []string{"v1.36.3", "v1.37.0"} {
		inGoodWorld(t, func(w *world) {
			w.kubelet.set(func(s *kubeletState) { s.identity, s.version, s.cpuState = "inode-2", version, "none" })
			w.api.set(func(api *simAPI) { api.unschedulable = true })
			w.assign("uid-static", conf{name: "static", policy: "static"})
			w.runs("static")
			moved := w.kubelet.get().moved
			assert.That(t, len(moved) == 1, "%s: moved aside: %q\n%s", version, moved, w.tail())
		})
	}
}

func TestLongStopDoesNotCountForTheNextKubelet(t *testing.T) {
	inWorldWith(t, func(o *Options) { o.Limits.HealthTimeout = 10 * time.Second }, func(w *world) {
		w.kubelet.set(func(s *kubeletState) { s.stopTakes = 14 * time.Second })
		w.assign("uid-good", conf{name: "good"})
		w.promoted("uid-good")
		w.wantStarts("", "good")
	})
}

func TestExitOfTheOldBinaryDoesNotCountForTheNewOne(t *testing.T) {
	inWorldWith(t, withoutACrash, func(w *world) {
		w.assign("uid-good", conf{name: "good"})
		w.runs("good")
		for _, version := range []string{"v1.37.0", "v1.36.3", "v1.37.0"} { // a trial of its own with each
			w.kubelet.set(func(s *kubeletState) { s.identity, s.version = "inode of "+version, version })
			w.dies(exitOne)
			w.runs("good")
		}

		s := w.status()
		assert.That(t, len(s.BadConfigs) == 0 && s.Trial != nil, "bad are %+v, the trial is %+v", s.BadConfigs, s.Trial)
	})
}

func TestPodsEvictedWhileTheDiskWasFullDoNotFailATrial(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pods("a", "b")
		w.start()
		w.runs("")
		w.assign("uid-good", conf{name: "good"})
		w.until("it is being judged, and its pods were counted", func() bool { return w.kubelet.checked("good") == 1 })
		w.disk.FailFrom(1, syscall.ENOSPC, crashfs.NeedSpace...)
		w.pass(time.Minute)
		w.wantStarts("")
		w.api.set(func(api *simAPI) {
			api.pods = slices.Clone(api.pods)
			api.pods[0].Phase, api.pods[0].Reason = "Failed", "Evicted" // by the kubelet: the disk is full
		})
		w.pass(10 * time.Second)
		w.disk.Heal()
		w.runs("good")
		w.promoted("uid-good")
		told := w.reporter.told()
		assert.That(t, !slices.ContainsFunc(told, func(e string) bool { return strings.Contains(e, "harmed the workload") }), "%q", told)
	})
}

// The trial of last-known-good with another version falls back to local.
func TestLocalIsValidatedWithTheNewBinary(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.kubelet.set(func(s *kubeletState) {
			s.identity, s.version = "inode-2", "v1.37.0"
			s.confs[""] = conf{rejected: "unknown field"} // for that one
			s.confs["good"] = crasher
		})
		w.dies(exitOne)
		w.pass(time.Minute)
		starts := w.kubelet.get().starts[1:]
		assert.That(t, !slices.Contains(starts, ""), "the new kubelet rejects what it was started with: %q\n%s", starts, w.tail())
	})
}
