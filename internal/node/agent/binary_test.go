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
	inBadWorld(t, func(w *world) {
		w.replaceBinary("v1.36.3") // rebuilt
		w.dies(exitOne)
		w.pass(15 * time.Second)
		w.wantVersion("v1.36.3", 1)
		starts := len(w.kubelet.get().starts)
		w.replaceBinary("v1.37.0")
		w.pass(15 * time.Second)
		w.wantVersion("v1.36.3", 1) // which runs
		w.dies(exitOne)
		w.pass(15 * time.Second)
		w.wantVersion("v1.37.0", 0)
		w.runs("crasher") // which was mended
		got := w.kubelet.get().starts[starts:]
		assert.That(t, slices.Equal(got, []string{"crasher"}), "starts %q", got)
		w.replaceBinary("v1.36.3")
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
		w.adopts("uid-good", good)
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
	inBadWorld(t, func(w *world) {
		w.openErr = errors.New("no space left on device")
		w.replaceBinary("v1.37.0")
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
	inWorld(t, func(w *world) {
		w.behaves(conf{healthz: 20249})
		w.assignLocal()
		w.up()
		loses := func(name string) {
			w.replaceBinary("v1.36.3")
			w.pass(15 * time.Second)
			w.crashes(name)
			w.apiUp(false)
			w.pass(time.Second)
			w.apiUp(true)
			w.pass(15 * time.Second)
			w.crashes(name)
		}
		loses("")
		w.adopts("uid-good", conf{name: "good", healthz: 20249})
		loses("good")
		assert.Equal(w.t, strings.Join(w.kubelet.get().ports, " "), strings.Repeat("20249 ", 5)+"20249", "where its health was asked for")
	})
}

// The change stops the old kubelet, and then the state of the new version
// counts. The kubelet of another file is not restarted after a crash: it would
// exit at state of before, as with any change.
func TestABinaryReplacedBeforeAChangeCausesAnotherDecision(t *testing.T) {
	for _, version := range []string{"v1.36.3", "v1.37.0"} {
		inGoodWorld(t, func(w *world) {
			w.replaceBinary(version)
			w.kubelet.set(func(s *kubeletState) { s.cpuState = "none" })
			w.api.set(func(api *simAPI) { api.unschedulable = true })
			w.adopts("uid-static", conf{name: "static", policy: "static"})
			moved := w.kubelet.get().moved
			assert.That(t, len(moved) == 1, "%s: moved aside: %q\n%s", version, moved, w.tail())
			s := w.status()
			assert.That(t, s.ComponentVersion == version && s.Trial != nil, "%s, trial: %+v", s.ComponentVersion, s.Trial)
			w.wantStarts("", "good", "static")
		})
	}
}

func TestLongStopDoesNotCountForTheNextKubelet(t *testing.T) {
	with(func(o *Options) { o.Limits.HealthTimeout = 10 * time.Second })(t, func(w *world) {
		w.kubelet.set(func(s *kubeletState) { s.stopTakes = 14 * time.Second })
		w.assign("uid-good", conf{name: "good"})
		w.promoted("uid-good")
		w.wantStarts("", "good")
	})
}

func TestExitOfTheOldBinaryDoesNotCountForTheNewOne(t *testing.T) {
	with(withoutACrash)(t, func(w *world) {
		w.adopts("uid-good", conf{name: "good"})
		for _, version := range []string{"v1.37.0", "v1.36.3", "v1.37.0"} { // a trial of its own with each
			w.replaceBinary(version)
			w.crashes("good")
		}

		s := w.status()
		assert.That(t, len(s.BadConfigs) == 0 && s.Trial != nil, "bad are %+v, the trial is %+v", s.BadConfigs, s.Trial)
	})
}

func TestPodsEvictedWhileTheDiskWasFullDoNotFailATrial(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.pods("a", "b")
		w.assign("uid-good", conf{name: "good"})
		w.until("it is being judged, and its pods were counted", func() bool { return w.kubelet.checked("good") == 1 })
		w.disk.FailFrom(1, syscall.ENOSPC, crashfs.NeedSpace...)
		w.pass(time.Minute)
		w.wantStarts("")
		w.evicted(0) // by the kubelet: the disk is full
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
		w.replaceBinary("v1.37.0")
		w.behaves(conf{rejected: "unknown field"}) // for that one
		w.behaves(conf{name: "good", crashes: crasher.crashes})
		w.dies(exitOne)
		w.pass(time.Minute)
		starts := w.kubelet.get().starts[1:]
		assert.That(t, !slices.Contains(starts, ""), "the new kubelet rejects what it was started with: %q\n%s", starts, w.tail())
	})
}
