// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"github.com/evenkeel/evenkeel/testkit/assert"
	"slices"
	"testing"
	"time"
)

// reported returns, for each start of the kubelet from now on, whether the
// report on it was written before.
func (w *world) reported() func() []bool {
	var before []bool
	w.kubelet.set(func(*kubeletState) {
		w.kubelet.onStart = func(string) { before = append(before, !w.reporter.pending()) }
	})

	return func() (got []bool) {
		w.kubelet.set(func(*kubeletState) { got = slices.Clone(before) })
		return got
	}
}

func TestConfigOKIsWrittenBeforeAConfigurationOnTrialIsStarted(t *testing.T) {
	for _, written := range []bool{true, false} {
		inStartedWorld(t, func(w *world) {
			w.reporter.takes = 130 * time.Millisecond
			if !written {
				w.reporter.takes = time.Hour // the start does not wait as long
			}

			got := w.reported()
			w.assign("uid-good", good)
			w.runs("good")
			w.stop()
			w.start()
			w.runs("good")
			want := []bool{written, written}
			assert.That(t, slices.Equal(got(), want), "the reports were written before the starts: %v, want %v", got(), want)
		})
	}
}

func TestNoOtherStartWaitsForAReport(t *testing.T) {
	for name, play := range map[string]func(w *world){
		"of the local configuration": func(w *world) { w.dies(exitOne); w.runs("") },
		"of a proven configuration": func(w *world) {
			withGood(w)
			w.stop() // which waits for nothing
			w.reporter.flushes = 0
			w.start()
			w.runs("good")
		},
		"after a crash": func(w *world) {
			w.assign("uid-good", good)
			w.runs("good")
			w.reporter.flushes = 0
			w.dies(exitOne)
			w.runs("good")
		},
		"of a rollback": func(w *world) {
			w.assign("uid-crasher", crasher)
			w.until("it runs", func() bool { return len(w.kubelet.get().starts) == 2 })
			w.reporter.flushes = 0
			w.runs("")
		},
		"while the API server is silent": func(w *world) {
			w.assign("uid-good", good)
			w.runs("good")
			w.stop()
			w.apiUp(false)
			w.reporter.flushes = 0
			w.start()
			w.runs("good")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inStartedWorld(t, func(w *world) {
				w.reporter.takes = time.Hour
				play(w)
				assert.Equal(t, w.reporter.flushes, 0, "it waited for reports")
			})
		})
	}
}
