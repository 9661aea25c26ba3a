// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestGoodConfigIsAdoptedTriedAndPromoted(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.wantConfigOK("True | using current (init): current is set to the local default, and an init config was provided (LocalInit)")
		w.adopts("uid-good", good)
		w.wantConfigOK("True | using current (UID: uid-good): all checks passed (AllChecksPassed)")
		if s := w.status(); s.Trial == nil || s.Trial.DurationSeconds != 40 || s.LastKnownGood != nil || s.Active.UID != "uid-good" || s.ObservedGeneration != 1 {
			t.Errorf("in its trial: %+v", s)
		}

		assert.That(t, w.init.get().covered && w.nodes.watching() && w.kubelet.running().get().closely,
			"the kubelet is not probed closely during the trial")
		w.promoted("uid-good")
		w.pass(time.Second)
		s := w.status()
		assert.That(t, s.Trial == nil && s.LastKnownGood != nil && s.LastKnownGood.UID == "uid-good", "after its trial: %+v", s)
		assert.That(t, !w.init.get().covered && !w.nodes.watching() && !w.kubelet.running().get().closely,
			"the trial is over, and is still looked at closely")
		w.wantStarts("", "good")
		wantEvents(t, w, "Normal ConfigChanged: now using current (UID: uid-good)",
			"Normal ConfigLastKnownGood: (UID: uid-good) became last-known-good after 40s of observed health")
	})
}

func wantEvents(t *testing.T, w *world, want ...string) {
	t.Helper()
	got := w.reporter.told()
	assert.That(t, slices.Equal(got, want), "events %q, want %q", got, want)
}

func TestInvalidPayloadIsRejectedWithoutADryRun(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		cm := configMap("uid-relative", good)
		cm.Data["kubelet"] += "staticPodPath: manifests\n"
		w.assignObject(cm)
		w.pass(time.Minute)
		w.wantStarts("")
		w.wantError(`staticPodPath is the relative path "manifests"`)
		w.wantReason(v1alpha1.ReasonValidationFailed, "")
		w.wantDryRuns("good", 0)
	})
}

func TestNewestAssignmentDoesNotWaitForAnOlderDryRun(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.assign("uid-slow", conf{name: "slow", hangs: true})
		w.pass(2 * time.Second)
		w.assign("uid-good", good)
		begin := time.Now()
		w.runs("good")
		took := time.Since(begin)
		assert.That(t, took <= 2*time.Second, "it took %s", took)
		w.pass(time.Minute)
		w.wantStarts("", "good")
		assert.Equal(t, counted(t, w, `evenkeel_validations_total{verdict="could not tell"}`), "0", "the metric counts a cancelled validation")
	})
}

func TestIdleAgentDecidesRarely(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.quiet("idle, with the first comparison with what was started", 7, time.Minute)
		w.quiet("idle", 6, time.Minute)
		w.assign("uid-slow", conf{name: "slow", hangs: true})
		w.pass(100 * time.Millisecond)
		w.quiet("a validation hangs", 2, 10*time.Second)
		w.pass(10 * time.Second)
		w.quiet("it could not be told", 4, 9*time.Second)
		w.assign("uid-typo", typo)
		w.pass(5 * time.Second)
		w.quiet("one was rejected", 6, time.Minute)
		w.apiUp(false)
		w.quiet("the API is away", 7, time.Minute)
		w.apiUp(true)
		w.pass(5 * time.Second)
		w.kubelet.set(func(s *kubeletState) { s.spawnErr = errNoBinary })
		w.dies(exitOne)
		w.quiet("the kubelet cannot be started", 40, 2*time.Minute)
	})
}

func TestAgentDecidesRarelyWhileNoKubeletMayRun(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.kubelet.set(func(s *kubeletState) { s.shuttingDown = true })
		w.dies(exitOne)
		w.quiet("shutting down", 15, 10*time.Second)
		w.wantStarts("", "good")
		w.kubelet.set(func(s *kubeletState) { s.shuttingDown = false }) // it was cancelled
		w.runs("good")
		w.replaceBinary("v1.36.3")
		w.behaves(conf{name: "good", hangs: true})
		w.pass(11 * time.Second)
		w.dies(exitOne)
		w.quiet("waiting for a verdict", 15, 10*time.Second)
		w.wantStarts("", "good", "good")
	})
}

func TestUndecidedDryRunIsRepeatedAfterHalfAMinute(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.assign("uid-good", conf{name: "good", doubtful: true})
		w.pass(25 * time.Second)
		w.wantConfigOK("Unknown | using last-known-good (init): could not validate current (UID: uid-good): the runtime cannot be reached (CouldNotValidate)")
		n := w.kubelet.checked("good")
		assert.That(t, n == 1 && len(w.status().BadConfigs) == 0, "%d dry runs, bad %+v", n, w.status().BadConfigs)
		assert.Equal(t, counted(t, w, `evenkeel_validations_total{verdict="could not tell"}`), "1", "the metric counts undecided validations")
		w.behaves(good)
		w.pass(20 * time.Second)
		w.runs("good")
		w.wantDryRuns("good", 2)
		w.wantStarts("", "good")
	})
}

func TestSamePayloadWithANewUIDNeedsNoRestart(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.adopts("uid-1", conf{name: "good", healthz: 20248})
		w.pass(15 * time.Second)
		w.assign("uid-2", conf{name: "good", healthz: 20248})
		w.pass(5 * time.Second)
		w.wantStarts("", "good")
		w.wantConfigOK("True | using current (UID: uid-2): all checks passed (AllChecksPassed)")
		if s := w.status(); s.Active.UID != "uid-2" || s.Trial == nil || s.Trial.HealthySeconds < 15 || !slices.Equal(s.OverriddenFields, []string{"clusterDNS"}) {
			t.Errorf("it did not inherit: %+v", s)
		}

		w.behaves(conf{name: "good", healthz: 20248, doubtful: true}) // such a dry run says nothing of the port
		w.crashes("good")
		ports := w.kubelet.get().ports
		assert.That(t, slices.Equal(ports, []string{"10248", "20248", "20248"}), "its health was asked for at %q", ports)
		w.promoted("uid-2")
		assert.Equal(t, counted(t, w, "evenkeel_change_duration_seconds_count"), "2", "changes")
	})
}

func TestRepeatedAssignmentIsValidatedAgain(t *testing.T) {
	forEach(t, inStartedWorld, map[string]func(w *world){
		"in a higher attempt":    func(w *world) { w.assign("uid-typo", typo, 2) },
		"after it was forgotten": func(w *world) { w.forget("uid-typo") },
		"after its entry was removed by hand": func(w *world) {
			w.disk.Plant(dir+"/v1.36.3/bad-configs", []byte(`{"apiVersion":"state.evenkeel.dev/v1","kind":"BadConfigs","content":[]}`))
		},
	}, func(w *world, _ string, again func(w *world)) {
		w.assign("uid-typo", typo, 1)
		w.pass(5 * time.Second)
		w.behaves(conf{name: "typo"}) // what it named is there now
		w.pass(20 * time.Second)
		w.wantStarts("")
		w.wantConfigOK("False | using last-known-good (init): failed to validate current (UID: uid-typo) (ValidationFailed)")
		assert.Equal(w.t, w.status().Error, "failed to validate current (UID: uid-typo): unknown field maxPodz")
		wantEvents(w.t, w, "Warning ConfigRejected: failed to validate current (UID: uid-typo): unknown field maxPodz")
		again(w)
		w.within(15*time.Second, "it runs", func() bool { return len(w.kubelet.get().starts) == 2 })
		w.runs("typo")
		w.wantStarts("", "typo")
		w.wantConfigOK("True | using current (UID: uid-typo): all checks passed (AllChecksPassed)")
		w.wantNoBad()
	})
}

func TestStartWaitsForTheAPIUpToTheSyncTimeoutAndStartsOnce(t *testing.T) {
	type agentStart struct {
		api   func(*simAPI)
		took  time.Duration
		start string
		ok    string
	}
	forEach(t, inGoodWorld, map[string]agentStart{
		"it answers": {func(*simAPI) {}, 700 * time.Millisecond, "better", "True | using current (UID: uid-better): all checks passed (AllChecksPassed)"},
		"it refuses connections": {func(api *simAPI) { api.up = false }, 700 * time.Millisecond, "good",
			"Unknown | using current (UID: uid-good): failed to sync, desired config unclear, cause: the API server refuses connections (SyncFailed)"},
		"it hangs": {func(api *simAPI) { api.hangs = true }, 2400 * time.Millisecond, "good",
			"Unknown | using current (UID: uid-good): failed to sync, desired config unclear, cause: no answer from the API server yet (SyncFailed)"},
		"its object is not found": {func(api *simAPI) { api.object = nil }, 700 * time.Millisecond, "good",
			"Unknown | using last-known-good (UID: uid-good): failed to sync, desired config unclear, cause: referenced ConfigMap not found (SyncFailed)"},
	}, func(w *world, _ string, tt agentStart) {
		w.stop()
		w.assign("uid-better", better)
		w.api.set(tt.api)
		begin := time.Now()
		w.start()
		w.until("a kubelet", func() bool { return w.kubelet.running() != nil })
		took := time.Since(begin).Round(100 * time.Millisecond)
		assert.That(w.t, took <= tt.took, "it took %s to start, want %s", took, tt.took)
		w.pass(10 * time.Second)
		w.wantStarts("", "good", tt.start)
		w.wantConfigOK(tt.ok)
	})
}

func TestSavedConfigsWaitsUntilTheStateIsLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &SavedConfigs{}
		asked := make(chan string, 1)
		go func() { asked <- r.Payload("uid-good") }()
		synctest.Wait()
		assert.Must(t, len(asked) == 0, "it answered before the state was loaded")
		r.open()
		assert.Equal(t, <-asked, "")
		_, ok := r.Checkpoint("uid-good")
		assert.That(t, !ok, "Checkpoint succeeded without a store")
	})
}

// The caller releases the node's lock when Run has returned: another agent may
// then run the dry run of its kubelet. But the kernel does not end a process
// that waits for a disk, and that must not keep the lock.
func TestNoDryRunThatCanEndOutlivesTheAgent(t *testing.T) {
	forEach(t, inGoodWorld, map[time.Duration]int{3 * time.Second: 0, time.Hour: 1}, func(w *world, killTakes time.Duration, left int) {
		w.kubelet.set(func(s *kubeletState) { s.killTakes = killTakes })
		w.assign("uid-slow", conf{name: "slow", hangs: true})
		w.pass(time.Second)
		assert.Equal(w.t, w.kubelet.get().checking, 1, "dry runs of the assignment")
		w.stop()
		assert.Equal(w.t, w.kubelet.get().checking, left, "dry runs after the end of the agent")
		time.Sleep(killTakes)
	})
}
