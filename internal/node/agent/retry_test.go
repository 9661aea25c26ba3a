// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

func TestDrainedNodeMustAlsoBeCordoned(t *testing.T) {
	inWorld(t, func(w *world) {
		w.kubelet.set(func(s *kubeletState) { s.cpuState = "none" })
		w.start()
		w.runs("")
		w.api.set(func(api *simAPI) { // the next pod can come at any moment
			api.pods = []source.Pod{{UID: "pod-ds", Name: "ds", Phase: "Running", OwnerKind: "DaemonSet"}}
		})
		w.assign("uid-static", conf{name: "static", policy: "static"})
		w.pass(10 * time.Second)
		ok := w.configOK()
		assert.That(t, strings.HasSuffix(ok, "cordon and drain the node first (NeedsDrain)"), "%s", ok)
		w.wantStarts("")
		w.api.set(func(api *simAPI) { api.unschedulable = true })
		w.runs("static")
	})
}

func TestLocalIsValidatedAgainWhenTheAssignmentEnds(t *testing.T) {
	for name, unknownBefore := range map[string]bool{"another was assigned": false, "nobody could be asked": true} {
		t.Run(name, func(t *testing.T) {
			inGoodWorld(t, func(w *world) {
				starts := []string{"", "good"}
				if unknownBefore {
					w.stop()
					w.apiUp(false)
					w.start()
					w.runs("good")
					starts = append(starts, "good")
				}

				w.kubelet.set(func(s *kubeletState) { s.confs[""] = conf{rejected: "maxPods must not be negative"} }) // edited since the start
				w.api.set(func(api *simAPI) {
					api.up, api.ref, api.object = true, &v1alpha1.NodeConfigSource{Local: &v1alpha1.LocalSource{}}, nil
					api.generation++
				})
				w.pass(10 * time.Second)
				w.wantStarts(starts...)
				w.wantConfigOK("False | using last-known-good (UID: uid-good): failed to validate current (init) (LocalInvalid)")
			})
		})
	}
}

func TestRuntimeOutageExcusesOnlyConfigsWithThatRuntime(t *testing.T) {
	for socket, want := range map[string]string{
		"":                       "", // the same as local: no verdict while it is away
		"unix:///run/other.sock": "CrashLooped",
	} {
		inGoodWorld(t, func(w *world) {
			w.assign("uid-moved", conf{name: "moved", socket: socket})
			w.runs("moved")
			w.kubelet.set(func(s *kubeletState) {
				s.runtimeDown, s.confs["moved"] = true, conf{name: "moved", socket: socket, crashes: time.Second}
			})
			w.dies(exitOne)
			w.pass(30 * time.Second)
			bad := w.status().BadConfigs
			if want == "" && len(bad) > 0 || want != "" && (len(bad) != 1 || bad[0].Reason != want && !strings.Contains(w.configOK(), want)) {
				t.Errorf("with socket %q bad are %+v: %s\n%s", socket, bad, w.configOK(), w.tail())
			}
		})
	}
}

// A lost last-known-good is recovered from the promotions. Another file may be
// in its place.
func TestPayloadWithAnotherDigestIsNotRun(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.stop()
		w.disk.Plant(dir+"/last-known-good", []byte("{"))
		w.disk.Plant(dir+"/current", []byte("{"))
		other := assert.Value(json.Marshal(configMap("uid-good", better)))(t)
		w.kubelet.set(func(s *kubeletState) { s.confs["better"] = better })
		w.disk.Plant(goodFile, other)
		w.apiUp(false)
		w.start()
		w.runs("")
		w.pass(time.Minute)
		w.wantStarts("", "good", "")
		assert.That(t, w.log.count("the payload does not match the recorded digest") != 0, "the reason is not logged\n%s", w.tail())
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
		w.start()
		withGood(w)
		w.assign("uid-better", better)
		w.pass(100 * time.Millisecond) // it is downloaded, and being judged
		w.disk.FailFrom(1, syscall.ENOSPC, crashfs.Create)
		for range 100 {
			w.api.set(func(api *simAPI) { api.generation++ })
			w.pass(100 * time.Millisecond)
		}

		assert.That(t, saves >= 1 && saves <= 2, "tried %d times in 10 s", saves)
		if ok := w.configOK(); !strings.HasPrefix(ok, "Unknown | using last-known-good (UID: uid-good): failed to sync, desired config unclear, cause: cannot save it to disk: save current: ") {
			t.Error(ok)
		}

		w.wantLogged("cannot save the node's state", 1)
		wantEvents(t, w, "Normal ConfigChanged: now using current (UID: uid-good)",
			"Normal ConfigLastKnownGood: (UID: uid-good) became last-known-good after 40s of observed health")
		w.wantStarts("", "good")
		w.disk.Heal()
		w.pass(12 * time.Second)
		w.runs("better")
	})
}
