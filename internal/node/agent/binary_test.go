// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"slices"
	"testing"
	"time"
)

func TestReplacedBinaryIsExaminedAndHasItsOwnRecords(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		withBad(w)
		w.kubelet.set(func(s *kubeletState) { s.identity = "inode-2" }) // the same version, rebuilt
		w.dies(exitOne)
		w.pass(15 * time.Second)
		if s := w.status(); s.ComponentVersion != "v1.36.3" || len(s.BadConfigs) != 1 {
			t.Errorf("%s, bad: %+v", s.ComponentVersion, s.BadConfigs)
		}

		starts := len(w.kubelet.get().starts)
		w.kubelet.set(func(s *kubeletState) { s.identity, s.version = "inode-3", "v1.37.0" })
		w.pass(15 * time.Second)
		if s := w.status(); s.ComponentVersion != "v1.36.3" || len(s.BadConfigs) != 1 {
			t.Errorf("with the old one running: %s, bad: %+v", s.ComponentVersion, s.BadConfigs)
		}

		w.dies(exitOne)
		w.pass(15 * time.Second)
		if s := w.status(); s.ComponentVersion != "v1.37.0" || len(s.BadConfigs) != 0 {
			t.Errorf("%s, bad: %+v", s.ComponentVersion, s.BadConfigs)
		}

		w.runs("crasher") // which was mended
		got := w.kubelet.get().starts[starts:]
		assert.That(t, slices.Equal(got, []string{"crasher"}), "starts %q", got)
		w.kubelet.set(func(s *kubeletState) { s.identity, s.version = "inode-1", "v1.36.3" })
		w.dies(exitOne)
		w.pass(15 * time.Second)
		s := w.status()
		assert.That(t, len(s.BadConfigs) == 1, "a downgrade does not find its own again: %+v", s.BadConfigs)
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
		w.pass(20 * time.Second)
		got, want := w.status().Error, "the kubelet exited unexpectedly: start /usr/bin/kubelet: it is not there"
		assert.That(t, got == want, "the error is %q, want %q", got, want)
		w.kubelet.set(func(s *kubeletState) { s.identityErr, s.spawnErr = nil, nil })
		w.runs("good")
		w.wantNoBad()
		assert.That(t, w.status().Trial != nil, "the trial has ended")
	})
}

func TestMissingBinaryAtTheStartEndsTheAgent(t *testing.T) {
	inWorld(t, func(w *world) {
		gone := errors.New("no such file or directory")
		w.kubelet.set(func(s *kubeletState) { s.identityErr = gone })
		w.start()
		w.pass(time.Second)
		w.stop()
		assert.That(t, errors.Is(w.err, gone), "it ended with %v", w.err)
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
		s := w.status()
		assert.That(t, s.ComponentVersion == "v1.36.3" && len(s.BadConfigs) == 1, "%s, bad: %+v", s.ComponentVersion, s.BadConfigs)
		w.wantLogged("continuing with the old version's", 1)
		w.openErr = nil
		w.dies(exitOne)
		w.pass(25 * time.Second)
		s = w.status()
		assert.That(t, s.ComponentVersion == "v1.37.0" && len(s.BadConfigs) == 0, "%s, bad: %+v", s.ComponentVersion, s.BadConfigs)
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
	inWorld(t, func(w *world) {
		w.options = func(o *Options) { o.Limits.HealthTimeout = 10 * time.Second }
		w.start()
		w.runs("")
		w.kubelet.set(func(s *kubeletState) { s.stopTakes = 14 * time.Second })
		w.assign("uid-good", conf{name: "good"})
		w.promoted("uid-good")
		w.wantStarts("", "good")
	})
}

// TestLocalIsValidatedWithTheNewBinary: the trial of last-known-good with
// another version falls back to local.
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
		assert.That(t, !slices.Contains(starts, ""),
			"the node rolled back to a configuration that the new kubelet rejects: %q\n%s", starts, w.tail())
	})
}
