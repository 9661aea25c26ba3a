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
	w.behaves(conf{rejected: "unknown field \"maxpods\""})
}

func TestALocalFileThatBecameInvalidIsNamedAsTheCause(t *testing.T) {
	forEach(t, with(protecting), map[string]conf{
		"whole": {name: "next"}, "drop-in": {name: "next", dropin: true},
	}, func(w *world, _ string, c conf) {
		w.breaksLocal()
		w.assign("uid-next", c)
		w.pass(10 * time.Minute)
		const words = `refused current (UID: uid-next): the local configuration is invalid: unknown field "maxpods"`
		w.wantConfigOK("False | using last-known-good (init): " + words + " (LocalInvalid)")
		assert.Equal(w.t, w.status().Error, words, "the error")
		w.wantEvent("Warning ConfigRefused: " + words)
		w.wantStarts("")
		w.wantNoBad()
		for _, r := range w.reporter.all() {
			got := r.Status.Conditions[0].Reason
			assert.That(w.t, got != v1alpha1.ReasonProtectedFields && got != v1alpha1.ReasonCouldNotValidate, "it was reported as %s", got)
		}

		w.behaves(conf{maxPods: 90})
		w.runs("next")
		w.wantStarts("", "next")
	})
}

// Otherwise what is adopted then would have no fallback.
func TestARejectionOfLocalIsRepeated(t *testing.T) {
	with(protecting)(t, func(w *world) {
		w.breaksLocal()
		w.assign("uid-sick", sick)
		w.pass(5 * time.Second)
		w.wantStarts("")
		w.kubelet.set(func(s *kubeletState) { s.mended = true }) // a file that it names is there again
		w.untilStarts(3)
		w.wantStarts("", "sick", "")
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
	forEach(t, inGoodWorld, map[string]func(w *world){
		v1alpha1.ReasonLocalInvalid: func(w *world) { w.assignLocal() },
		v1alpha1.ReasonDeadEnd:      func(w *world) { w.revoke("uid-good") },
	}, func(w *world, reason string, wants func(w *world)) {
		w.breaksLocal()
		wants(w)
		w.pass(20 * time.Minute)
		w.wantStarts("", "good")
		w.wantReason(reason, "")
		w.behaves(conf{maxPods: 90})
		w.pass(15 * time.Second)
		w.wantStarts("", "good", "")
	})
}
