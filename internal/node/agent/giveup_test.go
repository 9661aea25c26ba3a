// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"testing"
	"time"
)

func TestGiveUpStopsTheKubeletAndReportsTheReason(t *testing.T) {
	inWorld(t, func(w *world) {
		const limit = 5 * time.Minute
		gaveUp := errors.New("no kubelet was healthy for 5m0s")
		w.kubelet.set(func(s *kubeletState) { s.confs[""] = conf{sick: true} })
		begin := time.Now()
		w.options = func(o *Options) {
			o.GiveUp = func(now time.Time, healthy bool) error {
				assert.That(t, !healthy, "GiveUp was called with healthy, but the kubelet is not")
				if now.Sub(begin) < limit {
					return nil
				}

				return gaveUp
			}
		}
		w.start()
		w.until("the agent ends", w.gone) // it decides often enough even if nothing happens
		took := time.Since(begin)
		assert.That(t, took >= limit && took <= limit+20*time.Second, "it ended after %s", took)
		assert.That(t, w.err == gaveUp && w.kubelet.running() == nil, "it ended with %v, and the kubelet %v", w.err, w.kubelet.running())
		told := w.log.count("event=KubeletGivenUp")
		assert.That(t, told == 1, "it reported that %d times\n%s", told, w.tail())
	})
}

func TestRollbackHappensBeforeGivingUp(t *testing.T) {
	inWorld(t, func(w *world) {
		var healthy, longest time.Duration // when a kubelet was healthy last, and how long none was
		begin := time.Now()
		w.options = func(o *Options) {
			o.GiveUp = func(now time.Time, isHealthy bool) error {
				if isHealthy {
					healthy = now.Sub(begin)
				}

				longest = max(longest, now.Sub(begin)-healthy)

				return nil
			}
		}
		w.start()
		w.runs("")
		w.assign("uid-sick", conf{name: "sick", sick: true})
		w.until("it is rolled back", func() bool { return w.log.count("event=ConfigRolledBack") == 1 })
		w.runs("")
		w.pass(10 * time.Minute)
		if least := limits.HealthTimeout; longest < least || longest >= 2*least { // twice is the least limit that is the default
			t.Errorf("no kubelet was healthy for %s, want %s to twice that\n%s", longest, least, w.tail())
		}
	})
}
