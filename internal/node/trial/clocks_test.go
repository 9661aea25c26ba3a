// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"testing"
	"time"
)

// TestEachClockCountsOnlyWhatItMeasures has all clocks at two seconds, and
// decides after another one, in a trial. Less than two means that a part was
// taken off.
func TestEachClockCountsOnlyWhatItMeasures(t *testing.T) {
	type clocks struct{ unhealthy, notReady, readyFor, healthyFor, uptime, unsaved, waiting int }
	for name, c := range map[string]struct {
		set  func(s *State, o *Observed)
		want clocks
	}{
		"healthy and Ready": {
			func(*State, *Observed) {},
			clocks{1, 1, 3, 3, 3, 3, 0},
		},
		"healthy and Ready, for the first time": {
			func(s *State, _ *Observed) { s.Run.Healthy = false },
			clocks{1, 1, 2, 2, 3, 2, 0},
		},
		"healthy and Ready, and the API is away": {
			func(_ *State, o *Observed) { o.Node.API = false },
			clocks{1, 2, 2, 3, 3, 2, 0},
		},
		"not Ready": {
			func(_ *State, o *Observed) { o.Node.Ready = false },
			clocks{1, 3, 0, 3, 3, 2, 0},
		},
		"not Ready, and healthy for the first time": {
			func(s *State, o *Observed) { o.Node.Ready, s.Run.Healthy = false, false },
			clocks{1, 3, 0, 2, 3, 2, 0},
		},
		"not Ready, and the API is away": {
			func(_ *State, o *Observed) { o.Node.Ready, o.Node.API = false, false },
			clocks{1, 2, 2, 3, 3, 2, 0},
		},
		"not Ready, and the API was away": {
			func(s *State, o *Observed) { o.Node.Ready, s.Run.ClocksPaused = false, true },
			clocks{1, 2, 0, 3, 3, 2, 0},
		},
		"not healthy and not Ready": {
			func(_ *State, o *Observed) { o.Child.Healthy, o.Node.Ready = false, false },
			clocks{3, 2, 0, 0, 3, 2, 0},
		},
		"not healthy, and the runtime is down": {
			func(_ *State, o *Observed) { o.Child.Healthy, o.Node.RuntimeDown = false, true },
			clocks{2, 2, 0, 0, 3, 2, 0},
		},
		"not healthy, and the runtime was down": {
			func(s *State, o *Observed) { o.Child.Healthy, s.Run.Outage = false, true },
			clocks{2, 1, 0, 0, 3, 2, 0},
		},
		"it waits for its lock": {
			func(_ *State, o *Observed) { o.Child.Healthy, o.Child.Waiting = false, true },
			clocks{2, 2, 2, 2, 3, 2, 3},
		},
		"it exited": {
			func(_ *State, o *Observed) { o.Child = Child{Exited: true, Spawned: true, Exit: "exit status 1"} },
			clocks{0, 0, 0, 0, 3, 2, 0},
		},
		"it could not be started": {
			func(_ *State, o *Observed) { o.Child = Child{Exited: true, Exit: "no such file"} },
			clocks{2, 2, 0, 0, 2, 2, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := provenNode(t, "assign uid=u payload=p1", "healthy 5s")
			s, o := n.state.deepCopy(), n.observe()
			r := &s.Run
			for _, clock := range []*time.Duration{&r.Unhealthy, &r.NotReady, &r.ReadyFor, &r.HealthyFor, &r.Uptime, &r.UnsavedHealthy, &r.Waiting} {
				*clock = 2 * time.Second
			}

			c.set(&s, &o)
			o.Elapsed = time.Second
			next := Decide(s, o).Next.Run
			var got clocks
			for to, clock := range map[*int]time.Duration{
				&got.unhealthy: next.Unhealthy, &got.notReady: next.NotReady, &got.readyFor: next.ReadyFor, &got.healthyFor: next.HealthyFor,
				&got.uptime: next.Uptime, &got.unsaved: next.UnsavedHealthy, &got.waiting: next.Waiting,
			} {
				*to = int(clock / time.Second)
			}

			if got != c.want {
				t.Errorf("the clocks are at %+v, want %+v", got, c.want)
			}
		})
	}
}
