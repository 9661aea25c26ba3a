// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// TestEachClockCountsOnlyWhatItMeasures has all clocks at two seconds, and
// decides after another one, in a trial. Less than two means that a part was
// taken off.
func TestEachClockCountsOnlyWhatItMeasures(t *testing.T) {
	clocks := func(r *Run) []*time.Duration {
		return []*time.Duration{&r.Unhealthy, &r.NotReady, &r.ReadyFor, &r.HealthyFor, &r.Uptime, &r.UnsavedHealthy, &r.Waiting}
	}
	for name, c := range map[string]struct {
		want string // seconds, in the order of clocks
		set  func(s *State, o *Observed)
	}{
		"healthy and Ready":                      {"[1 1 3 3 3 3 0]", func(*State, *Observed) {}},
		"healthy and Ready, for the first time":  {"[1 1 2 2 3 2 0]", func(s *State, _ *Observed) { s.Run.Healthy = false }},
		"healthy and Ready, and the API is away": {"[1 2 2 3 3 2 0]", func(_ *State, o *Observed) { o.Node.API = false }},
		"not Ready":                              {"[1 3 0 3 3 2 0]", func(_ *State, o *Observed) { o.Node.Ready = false }},
		"not Ready, and healthy for the first time": {"[1 3 0 2 3 2 0]",
			func(s *State, o *Observed) { o.Node.Ready, s.Run.Healthy = false, false }},
		"not Ready, and the API is away":        {"[1 2 2 3 3 2 0]", func(_ *State, o *Observed) { o.Node.Ready, o.Node.API = false, false }},
		"not Ready, and the API was away":       {"[1 2 0 3 3 2 0]", func(s *State, o *Observed) { o.Node.Ready, s.Run.ClocksPaused = false, true }},
		"not healthy and not Ready":             {"[3 2 0 0 3 2 0]", func(_ *State, o *Observed) { o.Child.Healthy, o.Node.Ready = false, false }},
		"not healthy, and the runtime is down":  {"[2 2 0 0 3 2 0]", func(_ *State, o *Observed) { o.Child.Healthy, o.Node.RuntimeDown = false, true }},
		"not healthy, and the runtime was down": {"[2 1 0 0 3 2 0]", func(s *State, o *Observed) { o.Child.Healthy, s.Run.Outage = false, true }},
		"it waits for its lock":                 {"[2 2 2 2 3 2 3]", func(_ *State, o *Observed) { o.Child.Healthy, o.Child.Waiting = false, true }},
		"it exited": {"[0 0 0 0 3 2 0]",
			func(_ *State, o *Observed) { o.Child = Child{Exited: true, Spawned: true, Exit: "exit status 1"} }},
		"it could not be started": {"[2 2 0 0 2 2 0]",
			func(_ *State, o *Observed) { o.Child = Child{Exited: true, Exit: "no such file"} }},
	} {
		n := provenNode(t, "assign uid=u payload=p1", "healthy 5s")
		s, o := n.state.deepCopy(), n.observe()
		for _, clock := range clocks(&s.Run) {
			*clock = 2 * time.Second
		}

		c.set(&s, &o)
		o.Elapsed = time.Second
		next := Decide(s, o).Next.Run
		var got []int
		for _, clock := range clocks(&next) {
			got = append(got, int(*clock/time.Second))
		}

		assert.Equal(t, fmt.Sprint(got), c.want, name)
	}
}

// TestLimitsHoldToTheNanosecond sets one clock so that it is just before a
// limit, at it, and just after it when the decision has added the time since
// the last one.
func TestLimitsHoldToTheNanosecond(t *testing.T) {
	const gap = time.Second
	limits := newNodeSim(t).limits
	onTrial := []string{proven, "assign uid=u payload=p1", "healthy 5s"}
	rolledBack := append(append([]string{}, onTrial...), "exit status=1 times=4", "healthy 500ms")
	for _, c := range []struct {
		name   string
		limit  time.Duration
		events []string // before
		set    func(s *State, o *Observed, at time.Duration)
		does   func(d Decision) bool
	}{
		{"crashes are forgotten after a minute of health", stableAfter, onTrial,
			func(s *State, _ *Observed, at time.Duration) { s.Run.Crashes, s.Run.HealthyFor = 2, at },
			func(d Decision) bool { return d.Next.Run.Crashes == 0 }},
		{"retries are forgotten after a minute of a Ready node", stableAfter, onTrial,
			func(s *State, _ *Observed, at time.Duration) { s.Run.Retries, s.Run.ReadyFor = 2, at },
			func(d Decision) bool { return d.Next.Run.Retries == 0 }},
		{"a kubelet that is not healthy fails the trial", limits.HealthTimeout, onTrial,
			func(s *State, o *Observed, at time.Duration) { s.Run.Unhealthy, o.Child.Healthy = at, false },
			func(d Decision) bool { return len(d.Next.Bad) > 0 }},
		{"the time without health is saved in steps", unhealthySaveStep, onTrial,
			func(s *State, o *Observed, at time.Duration) { s.Run.Unhealthy, o.Child.Healthy = at, false },
			func(d Decision) bool { return d.Next.Trial.Unhealthy.Duration > 0 }},
		{"the time without a Ready node is saved in steps", 10 * time.Second, onTrial,
			func(s *State, o *Observed, at time.Duration) { s.Run.NotReady, o.Node.Ready = at, false },
			func(d Decision) bool { return d.Next.Trial.NotReady.Duration > 0 }},
		{"a node that is not Ready fails the trial", limits.ReadyTimeout, onTrial,
			func(s *State, o *Observed, at time.Duration) { s.Run.NotReady, o.Node.Ready = at, false },
			func(d Decision) bool { return len(d.Next.Bad) > 0 }},
		{"observed health promotes", limits.TrialDuration, onTrial,
			func(s *State, _ *Observed, at time.Duration) { s.Run.UnsavedHealthy = at },
			func(d Decision) bool { return d.Next.LastKnownGood.Revision == "u" }},
		{"observed health is saved in steps", healthySaveStep, onTrial,
			func(s *State, _ *Observed, at time.Duration) { s.Run.UnsavedHealthy = at },
			func(d Decision) bool { return d.Next.Run.UnsavedHealthy == 0 }},
		{"a loss of the API does not count after the window", apiLossWindow + 1, onTrial,
			func(s *State, o *Observed, at time.Duration) { s.Run.SinceStart, o.Node.API = at+gap, false }, // as of the last decision
			func(d Decision) bool { return !d.Next.Trial.APILostEarly }},
		{"the API must stay away", apiLossAfter, onTrial,
			func(s *State, o *Observed, at time.Duration) {
				s.Trial.APILostEarly, s.Run.APIAway, o.Node.API, o.Limits.APILossRollback = true, at, false, true
			},
			func(d Decision) bool { return d.Next.Trial.Fallback == APIProbe }},
		{"an API that comes back after the window proves nothing about last-known-good", apiLossWindow + 1,
			[]string{proven, "flags api-loss-rollback=on", "assign uid=u payload=p1", "api down", "healthy 10m5s"},
			func(s *State, o *Observed, at time.Duration) { s.Run.Probing, o.Node.API = at, true },
			func(d Decision) bool { return len(d.Next.Bad) != 1 || d.Next.Bad[0].Failure != v1alpha1.ReasonLostAPI }},
		{"a fallback that stays healthy makes the verdict final", 20 * time.Second, rolledBack, // twice as long as u ever ran
			func(s *State, _ *Observed, at time.Duration) {
				s.Run.Crashes, s.Run.HealthyFor, s.Trial.LongestUptime.Duration = 0, at, 10*time.Second
			},
			func(d Decision) bool { return !d.Next.Bad[0].Provisional }},
		{"a fallback of a NotReady node must keep it Ready", 20 * time.Second, rolledBack,
			func(s *State, _ *Observed, at time.Duration) {
				s.Run.Crashes, s.Run.HealthyFor, s.Run.ReadyFor, s.Trial.LongestUptime.Duration = 0, time.Hour, at, 10*time.Second
				s.Bad[0].Failure = v1alpha1.ReasonNotReady
			},
			func(d Decision) bool { return !d.Next.Bad[0].Provisional }},
		{"an inconclusive trial waits for a fallback that keeps the node Ready", stableAfter, rolledBack,
			func(s *State, _ *Observed, at time.Duration) {
				s.Bad, s.Trial.Fallback = nil, Inconclusive
				s.Run.Crashes, s.Run.HealthyFor, s.Run.ReadyFor = 0, time.Hour, at
			},
			func(d Decision) bool { return d.Next.Trial.Fallback == NoFallback }},
		{"an inconclusive trial is resumed after a minute if its fallback keeps failing", time.Minute, rolledBack,
			func(s *State, o *Observed, at time.Duration) {
				s.Bad, s.Trial.Fallback = nil, Inconclusive
				s.Run.Waited, s.Run.Unhealthy, o.Child.Healthy = at, time.Hour, false
			},
			func(d Decision) bool { return d.Next.Trial.Fallback == NoFallback }},
		{"the pauses between such trials grow to eight minutes", 8 * time.Minute, rolledBack,
			func(s *State, o *Observed, at time.Duration) {
				s.Bad, s.Trial.Fallback = nil, Inconclusive
				s.Run.Waited, s.Run.Retries, s.Run.Unhealthy, o.Child.Healthy = at, 7, time.Hour, false
			},
			func(d Decision) bool { return d.Next.Trial.Fallback == NoFallback }},
		{"a kubelet that waits for its lock for long is reported", limits.HealthTimeout, onTrial,
			func(s *State, o *Observed, at time.Duration) { s.Run.Waiting, o.Child.Waiting = at, true },
			func(d Decision) bool { return d.Status.Condition.Reason == v1alpha1.ReasonWaitingForLock }},
		{"a restart waits for its delay", gap, onTrial,
			func(s *State, o *Observed, at time.Duration) {
				s.Run.Crashes, s.Run.Delay, o.Child = 1, gap-at, Child{}
			},
			func(d Decision) bool { return d.Action.Kind == Start }},
	} {
		n := newNodeSim(t)
		n.do(c.events...)
		for _, off := range []time.Duration{-1, 0, 1} {
			s, o := n.state.deepCopy(), n.observe()
			o.Elapsed = gap
			c.set(&s, &o, c.limit-gap+off)
			assert.Equal(t, c.does(Decide(s, o)), off >= 0, c.name, int64(off), "ns from the limit")
		}
	}
}

func TestOnlyANodeAtRestDecidesRarely(t *testing.T) {
	const usual = 10 * time.Second
	trial := Trial{Terms: Terms{Duration: metav1.Duration{Duration: time.Hour}}}
	for what, c := range map[string]struct {
		want time.Duration
		edit func(*decider)
	}{
		"at rest":                 {time.Minute, func(*decider) {}},
		"without the setting":     {usual, func(d *decider) { d.o.Limits.RestInterval = 0 }},
		"in a trial":              {5 * time.Second, func(d *decider) { d.next.Trial = &trial }},
		"healthy for too short":   {usual, func(d *decider) { d.next.Run.HealthyFor = stableAfter - time.Second }},
		"not healthy":             {usual, func(d *decider) { d.next.Run.Healthy, d.o.Child.Healthy = false, false }},
		"with a verdict in doubt": {usual, func(d *decider) { d.next.Bad = []BadConfig{{Revision: "a", Provisional: true}} }},
		"blocked":                 {usual, func(d *decider) { d.blocked = blocker{status: "Unknown"} }},
		"about to validate":       {usual, func(d *decider) { d.toValidate = []Config{{}} }},
	} {
		d := &decider{
			next: State{Run: Run{Started: true, Healthy: true, HealthyFor: time.Hour}},
			o: Observed{
				Child:  Child{Alive: true, Healthy: true},
				Limits: Limits{HealthTimeout: time.Hour, ReadyTimeout: time.Hour, RestInterval: time.Minute},
			},
		}
		c.edit(d)
		assert.Equal(t, d.nextWake(), c.want, what, "the next decision is after")
	}
}
