// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// breaksLocal edits the local file so that the kubelet rejects it.
func (w *world) breaksLocal() {
	w.kubelet.set(func(s *kubeletState) { s.confs[""] = conf{rejected: "unknown field \"maxpods\""} })
}

func TestALocalFileThatBecameInvalidIsNamedAsTheCause(t *testing.T) {
	for name, c := range map[string]conf{"whole": {name: "next"}, "drop-in": {name: "next", dropin: true}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.options = func(o *Options) { o.Protected = payload.DefaultProtection() }
				w.start()
				w.runs("")
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
	inWorld(t, func(w *world) {
		w.options = func(o *Options) { o.Protected = payload.DefaultProtection() }
		w.start()
		w.runs("")
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
		w.options = func(o *Options) { o.Protected = payload.DefaultProtection() }
		p := w.takesPreflights()
		w.start()
		w.runs("")
		w.breaksLocal()
		p.ask("request", conf{name: "next"}, 0)
		a := w.answered("request")
		if a.Verdict != v1alpha1.PreflightUnknown || a.Reason != v1alpha1.ReasonLocalInvalid || a.Message != `the local configuration is invalid: unknown field "maxpods"` {
			t.Errorf("the answer is %+v", a)
		}
	})
}

func TestAnInvalidLocalFileIsNotStarted(t *testing.T) {
	for name, tt := range map[string]struct {
		current conf // empty: local
		starts  []string
	}{
		"local":                         {conf{}, []string{""}},
		"a drop-in":                     {conf{name: "drop", dropin: true}, []string{"", "drop"}},
		"a drop-in that is proven here": {conf{name: "good", dropin: true}, []string{"", "good"}},
	} {
		t.Run(name, func(t *testing.T) {
			inStartedWorld(t, func(w *world) {
				if c := tt.current; c.name != "" {
					w.assign("uid-it", c)
					w.runs(c.name)
					if c.name == "good" {
						w.promoted("uid-it")
					}
				}

				w.breaksLocal()
				w.pass(5 * time.Minute)
				w.wantStarts(tt.starts...)
				w.dies(exitOne)
				w.pass(time.Minute)
				w.wantStarts(tt.starts...)
				w.wantConfigOK("False | no kubelet runs: failed to validate local (init) (LocalInvalid)")
				got, want := w.status().Error, `failed to validate local (init): unknown field "maxpods"`
				assert.That(t, got == want, "the error is %q", got)
				if w.stop(); !errors.Is(w.err, ErrLocalInvalid) {
					t.Errorf("it ended with %v", w.err)
				}
			})
		})
	}
}

// A kubelet that has run for long was validated with the files of its start.
// What replaces it must be valid now.
func TestWhatReplacesAKubeletIsValidatedWithTheFilesOfNow(t *testing.T) {
	revoked := func(w *world) { w.revoke("uid-good") }
	taken := func(w *world) {
		w.unassign("nc-1", &v1alpha1.TakenBackAssignment{Rollout: "workers", Revision: 1, Attempt: 1})
	}
	t.Run("the local file is invalid", func(t *testing.T) {
		inGoodWorld(t, func(w *world) {
			w.breaksLocal()
			revoked(w)
			w.pass(time.Minute)
			w.wantStarts("", "good")
			c := w.status().Conditions[0]
			assert.That(t, c.Reason == v1alpha1.ReasonDeadEnd, "%+v", c)
		})
	})
	t.Run("the binary rejects last-known-good", func(t *testing.T) {
		inGoodWorld(t, func(w *world) {
			w.assign("uid-next", conf{name: "next"}, 1)
			w.runs("next")
			w.kubelet.set(func(s *kubeletState) { s.identity, s.refuses = "inode-2", map[string]bool{"good": true} })
			taken(w)
			w.runs("")
			w.wantStarts("", "good", "next", "")
		})
	})
}

func TestALocalFileThatIsRepairedRunsAtOnceWhereNothingElseMay(t *testing.T) {
	for name, wants := range map[string]func(w *world){
		"local is assigned":       func(w *world) { w.assignLocal() },
		"the current one revoked": func(w *world) { w.revoke("uid-good") },
	} {
		t.Run(name, func(t *testing.T) {
			inGoodWorld(t, func(w *world) {
				w.breaksLocal()
				wants(w)
				w.pass(20 * time.Minute)
				w.wantStarts("", "good")
				w.kubelet.set(func(s *kubeletState) { s.confs[""] = conf{maxPods: 90} })
				w.pass(15 * time.Second)
				w.wantStarts("", "good", "")
			})
		})
	}
}

func TestAWholeConfigurationIsRestartedOverAnInvalidLocalFile(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.breaksLocal()
		w.dies(exitOne)
		w.runs("good")
		w.wantStarts("", "good", "good")
	})
}

func TestARollbackDoesNotStartALocalFileThatBecameInvalid(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.assign("uid-sick", sick)
		w.until("it runs", func() bool { return len(w.kubelet.get().starts) == 2 })
		w.breaksLocal()
		w.pass(time.Minute)
		w.wantStarts("", "sick")
		c := w.status().Conditions[0]
		assert.That(t, c.Reason == v1alpha1.ReasonDeadEnd, "%+v", c)
	})
}
