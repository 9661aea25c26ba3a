// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/node/supervisor"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

var (
	errNoBinary = errors.New("start /usr/bin/kubelet: not executable")
	exitOne     = supervisor.Exit{Code: 1}
	exitZero    = supervisor.Exit{Code: 0}
)

func TestCrashLoopRollsBackAfterThresholdPlusOneStartsAndIsExplained(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		const why = "failed to run Kubelet: cgroup does not exist"
		w.kubelet.set(func(s *kubeletState) { s.lastErrors = why })
		w.assign("uid-crasher", crasher)
		w.untilStarts(6)
		w.runs("good")
		const verdict = "current (UID: uid-crasher) crash-looped: 3 starts in its trial, last: exit status 1"
		assert.Equal(t, w.status().Error, verdict+": "+why, "the error")
		assert.Equal(t, w.status().BadConfigs[0].Reason, verdict+": "+why, "why it is bad")
		w.wantConfigOK("False | using last-known-good (UID: uid-good): " + verdict + " (CrashLooped)")
		w.wantLogged(verdict+"; going back to last-known-good (UID: uid-good); the kubelet's last errors: "+why, 1)
		w.assign("uid-crasher", crasher) // again
		w.pass(time.Minute)
		w.wantStarts("", "good", "crasher", "crasher", "crasher", "good")
		assert.Equal(t, counted(t, w, `evenkeel_rollbacks_total{reason="CrashLooped"}`), "1", "rollbacks")
		for cause, want := range map[string]string{"boot": "1", "change": "2", "crash": "2", "rollback": "1"} {
			assert.Equal(t, counted(t, w, fmt.Sprintf(`evenkeel_kubelet_starts_total{cause=%q}`, cause)), want, "starts by", cause)
		}
	})
}

func TestRollbackWaitsForNeitherTheAPINorADryRun(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.adopts("uid-sick", conf{name: "sick", crashes: 10 * time.Second})
		w.kill() // what the agent knew of the good one goes with it
		w.start()
		w.pass(2 * time.Second)
		w.wantDryRuns("good", 2)
		w.kubelet.set(func(s *kubeletState) {
			s.confs["good"] = conf{name: "good", hangs: true}
			s.confs["sick"] = conf{name: "sick", crashes: time.Second}
		})
		w.api.set(func(api *simAPI) { api.hangs = true })
		last := time.Now()
		w.until("it falls back", func() bool {
			if p := w.kubelet.running(); p != nil && p.conf.name == "sick" {
				last = time.Now()
			}

			return slices.Equal(w.kubelet.get().starts[len(w.kubelet.get().starts)-1:], []string{"good"})
		})
		took := time.Since(last)
		assert.That(t, took <= 200*time.Millisecond, "it took %s", took)
	})
}

func TestExitWithStatusZeroIsUnexpectedWithoutSIGTERM(t *testing.T) {
	type end struct {
		sigterm time.Duration // after the exit; 0: never
		starts  []string
	}
	forEach(t, inStartedWorld, map[string]end{
		"the whole node stops": {500 * time.Millisecond, []string{"", "good"}},
		"nothing follows":      {0, []string{"", "good", "good"}},
	}, func(w *world, _ string, tt end) {
		w.adopts("uid-good", good)
		w.dies(exitZero)
		if tt.sigterm > 0 {
			w.pass(tt.sigterm)
			w.stop()
		} else {
			w.pass(900 * time.Millisecond)
			assert.That(w.t, w.kubelet.running() == nil, "it was started again within the second")
			w.pass(5 * time.Second)
		}

		v := w.view()
		w.wantStarts(tt.starts...)
		assert.Equal(w.t, len(v.Startups), len(tt.starts)-1, "starts counted in the trial")
		assert.That(w.t, tt.sigterm == 0 || v.Trial.Clean, "the saved trial has no clean shutdown")
	})
}

// TestSIGTERMAtAnyTimeStopsCleanly sends SIGTERM every 90 ms during a start, a
// change, a crash loop and a rollback.
func TestSIGTERMAtAnyTimeStopsCleanly(t *testing.T) {
	p := before(t, scenario{from: withGood})
	for at := time.Duration(0); at < 9*time.Second; at += 90 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			w := p.world(t)
			r := newInvariants(w, fmt.Sprintf("SIGTERM after %s", at))
			w.start()
			w.pass(min(at, time.Second))
			if at > time.Second {
				w.assign("uid-crasher", crasher)
				w.pass(at - time.Second)
			}

			begin := time.Now()
			w.stop()
			if took := time.Since(begin); w.err != nil || took > 200*time.Millisecond {
				r.complain("it ended with %v, after %s", w.err, took)
			}
			if w.kubelet.running() != nil || w.init.get().stopping != 1 {
				r.complain("kubelet: %v, told the init system %d times", w.kubelet.running(), w.init.get().stopping)
			}
			if v := w.view(); v.Trial != nil && !v.Trial.Clean {
				r.complain("the trial's record does not say that the shutdown was clean: %+v", *v.Trial)
			}

			w.boot = "boot-2" // a clean reboot is held against nobody
			counted := len(w.view().Startups)
			w.start()
			w.pass(750 * time.Millisecond)
			if v := w.view(); v.Trial != nil && counted > 0 && len(v.Startups) > counted {
				r.complain("%d starts counted, %d before the reboot", len(v.Startups), counted)
			}

			r.atRest()
			w.stop()
		})
	}
}

func TestActionIsNotCarriedOutAfterSIGTERM(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.reporter.onReport = func(report source.Report) {
			if report.Status.Active != nil { // decided, recorded, and not carried out yet
				w.cancel()
			}
		}
		w.assign("uid-good", good)
		w.pass(2 * time.Second)
		w.stop()
		w.wantStarts("")
		v := w.view()
		assert.That(t, v.Current.Revision == "uid-good" && v.Trial.Clean, "%+v, %+v", v, v.Trial)
		w.reporter.onReport = nil
		w.start()
		w.runs("good")
		w.promoted("uid-good")
	})
}

func TestAKubeletThatWaitsForItsLockFailsNoTrial(t *testing.T) {
	inGoodWorld(t, func(w *world) {
		w.adopts("uid-better", better)
		w.pass(5 * time.Second)
		p := w.kubelet.running()
		p.sicken()
		p.set(func(s *processState) { s.waiting = true })
		w.pass(5 * time.Minute)
		v := w.view()
		assert.That(t, len(v.Bad) == 0 && v.LastKnownGood.Revision == "uid-good" && v.Current.Revision == "uid-better", "while it waits: %+v", v)
		p.set(func(s *processState) { s.waiting, s.healthySince = false, time.Now() })
		w.promoted("uid-better")
	})
}

// Not in a synctest bubble: its clock has no monotonic reading.
func TestElapsedTimeIsMonotonic(t *testing.T) {
	a := New(Options{}, Parts{Kubelet: newSimKubelet(nil)})
	a.decided = time.Now().Add(-7 * time.Second)
	o := a.observe(t.Context())
	assert.That(t, o.Now != o.Now.Round(0) && o.Elapsed == o.Now.Sub(a.decided) && o.Elapsed >= 7*time.Second,
		"%v, %s after %v: a clock that jumps would count", o.Now, o.Elapsed, a.decided)
}

// TestTrialThatBeginsWithACrashIgnoresEarlierPodLoss: without a trial the node
// is not watched, and pods may have ended since the last request.
func TestTrialThatBeginsWithACrashIgnoresEarlierPodLoss(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pods("a", "b")
		w.start()
		w.assign("uid-good", conf{name: "good", dropin: true})
		w.promoted("uid-good")
		w.pass(10 * time.Minute)
		w.evicted(0)
		w.pass(10 * time.Minute)
		w.behaves(conf{maxPods: 111}) // the node's own file is edited
		w.dies(exitOne)
		w.pass(time.Second)
		assert.That(t, w.view().Trial != nil, "no trial with the edited file")
		w.pass(5 * time.Minute)
		w.wantStarts("good", "good")
		s := w.status()
		assert.That(t, len(s.BadConfigs) == 0 && w.view().Trial == nil, "bad: %+v, trial: %+v", s.BadConfigs, w.view().Trial)
	})
}

func TestAnExitAtTheEndOfAnOutageGivesNoVerdict(t *testing.T) {
	for offset := time.Duration(0); offset < 8*time.Second; offset += 250 * time.Millisecond {
		inWorld(t, func(w *world) {
			w.options = withoutACrash
			w.start()
			w.adopts("uid-good", good)
			outage := 15*time.Second + offset
			w.kubelet.set(func(s *kubeletState) { s.runtimeHangs = time.Now().Add(outage) })
			w.pass(outage - 500*time.Millisecond)
			w.dies(exitOne)
			w.pass(10 * time.Second)
			bad := w.status().BadConfigs
			assert.That(t, len(bad) == 0, "an outage of %s: %+v", outage, bad)
		})
	}
}

// The init system stops the kubelet and the agent at the same time.
func TestAnExitAtTheEndOfTheAgentIsNotReported(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.adopts("uid-good", good)
		w.kubelet.set(func(s *kubeletState) { s.runtimeHangs = time.Now().Add(time.Minute) })
		w.pass(5 * time.Second)
		before := len(w.reporter.all())
		w.dies(supervisor.Exit{})
		w.stop()
		w.wantReports(before)
	})
}

func TestAConfigThatHangsTheRuntimeAndCrashesGetsAVerdict(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.assign("uid-greedy", conf{name: "greedy", greedy: true, crashes: 8 * time.Second})
		w.until("it gets a verdict", func() bool { return len(w.status().BadConfigs) > 0 })
	})
}

// Twice the time in which an unhealthy kubelet is rolled back is the least time
// after which an agent may give up, and the default.
func TestAnAgentGivesUpOnlyWhatNoRollbackRepairs(t *testing.T) {
	inWorld(t, func(w *world) {
		limit := 2 * limits.HealthTimeout
		gaveUp := errors.New("no kubelet was healthy for 40s")
		w.options = func(o *Options) {
			var since time.Time // no kubelet was healthy; zero: one is
			o.GiveUp = func(now time.Time, healthy bool) error {
				if healthy {
					since = time.Time{}
				} else if since.IsZero() {
					since = now
				}
				if healthy || now.Sub(since) < limit {
					return nil
				}

				return gaveUp
			}
		}
		w.up()
		w.assign("uid-sick", sick)
		w.untilStarts(2)
		begin := time.Now()
		w.until("it is rolled back", func() bool { return w.log.count("event=ConfigRolledBack") == 1 })
		took := time.Since(begin)
		assert.That(t, took > limits.HealthTimeout-time.Second, "it was rolled back after %s", took)
		w.runs("")
		w.wantReason("NotHealthy", "current (UID: uid-sick) was not healthy for 20s")
		w.pass(10 * time.Minute)
		givesUp := func(times int) {
			t.Helper()
			begin := time.Now()
			w.until("the agent ends", w.gone) // it decides often enough even if nothing happens
			took := time.Since(begin)
			assert.That(t, took >= limit && took <= limit+20*time.Second, "it ended after %s", took)
			assert.That(t, w.err == gaveUp && w.kubelet.running() == nil, "it ended with %v, and the kubelet %v", w.err, w.kubelet.running())
			w.wantLogged("event=KubeletGivenUp", times)
		}
		w.kubelet.running().sicken()
		givesUp(1)

		w.stop()
		w.behaves(conf{sick: true}) // so that no kubelet of the next agent ever is
		w.start()
		givesUp(2)
	})
}
