// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// TestLimitsHoldToTheNanosecond sets one clock so that it is just before a
// limit, at it, and just after it when the decision has added the time since
// the last one.
func TestLimitsHoldToTheNanosecond(t *testing.T) {
	const gap = time.Second
	onTrial := []string{proven, "assign uid=u payload=p1", "healthy 5s"}
	rolledBack := append(append([]string{}, onTrial...), "exit status=1 times=4", "healthy 500ms")
	for name, c := range map[string]struct {
		events []string // nil: those of a trial
		set    func(s *State, o *Observed, at time.Duration)
		limit  func(l Limits) time.Duration
		does   func(d Decision) bool
		until  bool // it does that until the limit, and not from it on
	}{
		"crashes are forgotten after a minute of health": {
			set:   func(s *State, _ *Observed, at time.Duration) { s.Run.Crashes, s.Run.HealthyFor = 2, at },
			limit: func(Limits) time.Duration { return stableAfter },
			does:  func(d Decision) bool { return d.Next.Run.Crashes == 0 },
		},
		"retries are forgotten after a minute of a Ready node": {
			set:   func(s *State, _ *Observed, at time.Duration) { s.Run.Retries, s.Run.ReadyFor = 2, at },
			limit: func(Limits) time.Duration { return stableAfter },
			does:  func(d Decision) bool { return d.Next.Run.Retries == 0 },
		},
		"a kubelet that is not healthy fails the trial": {
			set:   func(s *State, o *Observed, at time.Duration) { s.Run.Unhealthy, o.Child.Healthy = at, false },
			limit: func(l Limits) time.Duration { return l.HealthTimeout },
			does:  func(d Decision) bool { return len(d.Next.Bad) > 0 },
		},
		"the time without health is saved in steps": {
			set:   func(s *State, o *Observed, at time.Duration) { s.Run.Unhealthy, o.Child.Healthy = at, false },
			limit: func(Limits) time.Duration { return unhealthySaveStep },
			does:  func(d Decision) bool { return d.Next.Trial.Unhealthy.Duration > 0 },
		},
		"the time without a Ready node is saved in steps": {
			set:   func(s *State, o *Observed, at time.Duration) { s.Run.NotReady, o.Node.Ready = at, false },
			limit: func(Limits) time.Duration { return 10 * time.Second },
			does:  func(d Decision) bool { return d.Next.Trial.NotReady.Duration > 0 },
		},
		"a node that is not Ready fails the trial": {
			set:   func(s *State, o *Observed, at time.Duration) { s.Run.NotReady, o.Node.Ready = at, false },
			limit: func(l Limits) time.Duration { return l.ReadyTimeout },
			does:  func(d Decision) bool { return len(d.Next.Bad) > 0 },
		},
		"observed health promotes": {
			set:   func(s *State, _ *Observed, at time.Duration) { s.Run.UnsavedHealthy = at },
			limit: func(l Limits) time.Duration { return l.TrialDuration },
			does:  func(d Decision) bool { return d.Next.LastKnownGood.Revision == "u" },
		},
		"observed health is saved in steps": {
			set:   func(s *State, _ *Observed, at time.Duration) { s.Run.UnsavedHealthy = at },
			limit: func(Limits) time.Duration { return healthySaveStep },
			does:  func(d Decision) bool { return d.Next.Run.UnsavedHealthy == 0 },
		},
		"only a loss of the API soon after the start counts": {
			set:   func(s *State, o *Observed, at time.Duration) { s.Run.SinceStart, o.Node.API = at+gap, false }, // as of the last decision
			limit: func(Limits) time.Duration { return apiLossWindow },
			does:  func(d Decision) bool { return d.Next.Trial.APILostEarly },
			until: true,
		},
		"the API must stay away": {
			set: func(s *State, o *Observed, at time.Duration) {
				s.Trial.APILostEarly, s.Run.APIAway, o.Node.API, o.Limits.APILossRollback = true, at, false, true
			},
			limit: func(Limits) time.Duration { return apiLossAfter },
			does:  func(d Decision) bool { return d.Next.Trial.Fallback == APIProbe },
		},
		"the API must come back soon after the return to last-known-good": {
			events: []string{proven, "flags api-loss-rollback=on", "assign uid=u payload=p1", "api down", "healthy 10m5s"},
			set:    func(s *State, o *Observed, at time.Duration) { s.Run.Probing, o.Node.API = at, true },
			limit:  func(Limits) time.Duration { return apiLossWindow },
			does:   func(d Decision) bool { return len(d.Next.Bad) == 1 && d.Next.Bad[0].Failure == v1alpha1.ReasonLostAPI },
			until:  true,
		},
		"a fallback that stays healthy makes the verdict final": {
			events: rolledBack,
			set: func(s *State, _ *Observed, at time.Duration) {
				s.Run.Crashes, s.Run.HealthyFor, s.Trial.LongestUptime.Duration = 0, at, 10*time.Second
			},
			limit: func(Limits) time.Duration { return 20 * time.Second }, // twice as long as u ever ran
			does:  func(d Decision) bool { return !d.Next.Bad[0].Provisional },
		},
		"a fallback of a NotReady node must keep it Ready": {
			events: rolledBack,
			set: func(s *State, _ *Observed, at time.Duration) {
				s.Run.Crashes, s.Run.HealthyFor, s.Run.ReadyFor, s.Trial.LongestUptime.Duration = 0, time.Hour, at, 10*time.Second
				s.Bad[0].Failure = v1alpha1.ReasonNotReady
			},
			limit: func(Limits) time.Duration { return 20 * time.Second },
			does:  func(d Decision) bool { return !d.Next.Bad[0].Provisional },
		},
		"an inconclusive trial waits for a fallback that keeps the node Ready": {
			events: rolledBack,
			set: func(s *State, _ *Observed, at time.Duration) {
				s.Bad, s.Trial.Fallback = nil, Inconclusive
				s.Run.Crashes, s.Run.HealthyFor, s.Run.ReadyFor = 0, time.Hour, at
			},
			limit: func(Limits) time.Duration { return stableAfter },
			does:  func(d Decision) bool { return d.Next.Trial.Fallback == NoFallback },
		},
		"an inconclusive trial is resumed after a minute if its fallback keeps failing": {
			events: rolledBack,
			set: func(s *State, o *Observed, at time.Duration) {
				s.Bad, s.Trial.Fallback = nil, Inconclusive
				s.Run.Waited, s.Run.Unhealthy, o.Child.Healthy = at, time.Hour, false
			},
			limit: func(Limits) time.Duration { return time.Minute },
			does:  func(d Decision) bool { return d.Next.Trial.Fallback == NoFallback },
		},
		"the pauses between such trials grow to eight minutes": {
			events: rolledBack,
			set: func(s *State, o *Observed, at time.Duration) {
				s.Bad, s.Trial.Fallback = nil, Inconclusive
				s.Run.Waited, s.Run.Retries, s.Run.Unhealthy, o.Child.Healthy = at, 7, time.Hour, false
			},
			limit: func(Limits) time.Duration { return 8 * time.Minute },
			does:  func(d Decision) bool { return d.Next.Trial.Fallback == NoFallback },
		},
		"a kubelet that waits for its lock for long is reported": {
			set:   func(s *State, o *Observed, at time.Duration) { s.Run.Waiting, o.Child.Waiting = at, true },
			limit: func(l Limits) time.Duration { return l.HealthTimeout },
			does:  func(d Decision) bool { return d.Status.Condition.Reason == v1alpha1.ReasonWaitingForLock },
		},
		"a restart waits for its delay": {
			set: func(s *State, o *Observed, at time.Duration) {
				s.Run.Crashes, s.Run.Delay, o.Child = 1, gap-at, Child{}
			},
			limit: func(Limits) time.Duration { return gap },
			does:  func(d Decision) bool { return d.Action.Kind == Start },
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNodeSim(t)
			if c.events == nil {
				c.events = onTrial
			}

			n.do(c.events...)
			want := map[time.Duration]bool{-1: c.until, 0: true, 1: !c.until}
			for _, off := range []time.Duration{-1, 0, 1} {
				s, o := n.state.deepCopy(), n.observe()
				o.Elapsed = gap
				c.set(&s, &o, c.limit(o.Limits)-gap+off)
				if got := c.does(Decide(s, o)); got != want[off] {
					t.Errorf("%d ns from the limit: %t, want %t", off, got, want[off])
				}
			}
		})
	}
}
