// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// breaksLocal edits the local file so that the kubelet rejects it.
func (w *world) breaksLocal() {
	w.kubelet.set(func(s *kubeletState) { s.confs[""] = conf{rejected: "unknown field \"maxpods\""} })
}

func TestALocalFileThatBecameInvalidIsNamedAsTheCause(t *testing.T) {
	for name, c := range map[string]conf{"whole": {name: "next"}, "drop-in": {name: "next", dropin: true}} {
		t.Run(name, func(t *testing.T) {
			inWorldWith(t, protecting, func(w *world) {
				w.breaksLocal()
				w.assign("uid-next", c)
				w.pass(10 * time.Minute)
				const words = `refused current (UID: uid-next): the local configuration is invalid: unknown field "maxpods"`
				w.wantConfigOK("False | using last-known-good (init): " + words + " (LocalInvalid)")
				assert.Equal(t, w.status().Error, words, "the error")
				w.wantEvent("Warning ConfigRefused: " + words)
				w.wantStarts("")
				w.wantNoBad()
				for _, r := range w.reporter.all() {
					got := r.Status.Conditions[0].Reason
					assert.That(t, got != v1alpha1.ReasonProtectedFields && got != v1alpha1.ReasonCouldNotValidate, "it was reported as %s", got)
				}

				w.kubelet.set(func(s *kubeletState) { s.confs[""] = conf{maxPods: 90} })
				w.runs("next")
				w.wantStarts("", "next")
			})
		})
	}
}

// Otherwise what is adopted then would have no fallback.
func TestARejectionOfLocalIsRepeated(t *testing.T) {
	inWorldWith(t, protecting, func(w *world) {
		w.breaksLocal()
		w.assign("uid-sick", sick)
		w.pass(5 * time.Second)
		w.wantStarts("")
		w.kubelet.set(func(s *kubeletState) { s.mended = true }) // a file that it names is there again
		w.until("it is tried, and rolled back", func() bool { return len(w.kubelet.get().starts) == 3 })
		w.wantStarts("", "sick", "")
	})
}

func TestAPreflightSaysThatTheLocalFileIsInvalid(t *testing.T) {
	inWorld(t, func(w *world) {
		w.options = protecting
		asks := w.takesPreflights()
		w.start()
		w.runs("")
		w.breaksLocal()
		asks.ask("request", conf{name: "next"}, 0)
		const words = `the local configuration is invalid: unknown field "maxpods"`
		w.wantAnswer("request", v1alpha1.PreflightUnknown, v1alpha1.ReasonLocalInvalid, words)
	})
}

func TestAnInvalidLocalFileIsNotStartedAgain(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.breaksLocal()
		w.pass(5 * time.Minute)
		w.wantStarts("")
		w.dies(exitOne)
		w.pass(time.Minute)
		w.wantStarts("")
		w.wantConfigOK("False | no kubelet runs: failed to validate local (init) (LocalInvalid)")
		assert.Equal(t, w.status().Error, `failed to validate local (init): unknown field "maxpods"`, "the error")
		w.stop()
		assert.Is(t, w.err, ErrLocalInvalid)
	})
}

// A kubelet that has run for long was validated with the files of its start.
// What replaces it must be valid now.
func TestALocalFileThatBecameInvalidReplacesNothingUntilItIsRepaired(t *testing.T) {
	for reason, wants := range map[string]func(w *world){
		v1alpha1.ReasonLocalInvalid: func(w *world) { w.assignLocal() },
		v1alpha1.ReasonDeadEnd:      func(w *world) { w.revoke("uid-good") },
	} {
		t.Run(reason, func(t *testing.T) {
			inGoodWorld(t, func(w *world) {
				w.breaksLocal()
				wants(w)
				w.pass(20 * time.Minute)
				w.wantStarts("", "good")
				w.wantReason(reason, "")
				w.kubelet.set(func(s *kubeletState) { s.confs[""] = conf{maxPods: 90} })
				w.pass(15 * time.Second)
				w.wantStarts("", "good", "")
			})
		})
	}
}
