// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

// another replaces the kubelet by another version and kills it, so that the
// agent notices.
func (w *world) another(version string, change func(*kubeletState)) {
	w.t.Helper()
	w.kubelet.set(func(s *kubeletState) {
		s.identity, s.version = "inode of "+version, version
		change(s)
	})
	w.dies(exitOne)
}

func TestLastKnownGoodIsOnTrialAgainWithAnotherKubeletVersion(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		crashing := func(after time.Duration) func(*kubeletState) {
			return func(s *kubeletState) { s.confs["good"] = conf{name: "good", crashes: after} }
		}
		w.another("v1.37.0", crashing(2*time.Second))
		w.until("it is rolled back", func() bool { return w.log.count("event=ConfigRolledBack") == 1 })
		w.runs("")
		w.pass(time.Minute)
		s := w.status()
		assert.That(t, len(s.BadConfigs) == 1 && !s.BadConfigs[0].Provisional && s.LastKnownGood != nil && s.Active == nil,
			"bad are %+v, last-known-good %+v, active %+v", s.BadConfigs, s.LastKnownGood, s.Active)
		w.another("v1.36.3", crashing(0))
		w.runs("good")
		if w.view().Trial != nil {
			t.Errorf("the version that proved it tries it again: %+v", *w.view().Trial)
		}

		w.another("v1.38.0", crashing(0))
		w.runs("good")
		s = w.status()
		assert.That(t, s.Trial == nil && w.view().Trial != nil && s.Conditions[0].Status == "True",
			"reported is %+v, on disk %+v, %+v", s.Trial, w.view().Trial, s.Conditions)
		w.until("it is proven", func() bool { return w.view().Trial == nil })
		p := w.view().Promoted
		assert.That(t, len(p) == 1 && p[0].Revision == "uid-good", "promoted are %+v", p)
	})
}

func TestExitOfTheOldBinaryDoesNotCountForTheNewOne(t *testing.T) {
	inWorld(t, func(w *world) {
		w.options = func(o *Options) { o.Limits.CrashLoopThreshold = 0 }
		w.start()
		w.runs("")
		w.assign("uid-good", conf{name: "good"})
		w.runs("good")
		for _, version := range []string{"v1.37.0", "v1.36.3", "v1.37.0"} { // a trial of its own with each
			w.another(version, func(*kubeletState) {})
			w.runs("good")
		}

		s := w.status()
		assert.That(t, len(s.BadConfigs) == 0 && s.Trial != nil, "bad are %+v, the trial is %+v", s.BadConfigs, s.Trial)
	})
}

func TestTrialAtTheStartNeedsAReadyNode(t *testing.T) {
	ready := func(w *world, is bool) { w.api.set(func(api *simAPI) { api.ready = is }) }
	t.Run("the node was Ready", func(t *testing.T) {
		inGoodWorld(t, func(w *world) {
			w.another("v1.37.0", func(s *kubeletState) {
				c := s.confs["good"]
				c.loses = true // its Lease
				s.confs["good"] = c
			})
			w.until("it is rolled back", func() bool { return w.log.count("event=ConfigRolledBack") == 1 })
			w.runs("")
		})
	})
	t.Run("the node was not seen Ready", func(t *testing.T) {
		inWorld(t, func(w *world) {
			ready(w, false)
			w.assign("uid-good", conf{name: "good"})
			w.start()
			w.runs("good")
			w.pass(5 * time.Minute)
			v := w.view()
			assert.That(t, v.LastKnownGood.IsLocal() && len(v.Bad) == 0 && v.Trial != nil, "it was promoted or blamed: %+v", v)
			ready(w, true)
			w.promoted("uid-good")
		})
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
