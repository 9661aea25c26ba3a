// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// seenSince are the outages of a leader that has seen the fleet since a time,
// without a gap.
func seenSince(t time.Time) Outages { return Outages{{t, t}} }

// hasty is a world of healthy nodes that have hardly more time than their
// trial.
func hasty(nodes int) *world {
	w := newWorld()
	w.add(nodes, 1)
	w.in.Spec.Strategy.Steps, w.in.Spec.NodeTimeoutSeconds = []v1alpha1.RolloutStep{{Nodes: percent(100)}}, 10
	return w
}

// TestRandomOutagesFailNoNode holds if agents come back in the time that they
// may take, and no trial has more outages than that they may come back from.
func TestRandomOutagesFailNoNode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := hasty(rapid.IntRange(1, 12).Draw(t, "nodes"))
		w.in.Spec.Strategy.MaxUnavailable = number(rapid.IntRange(1, 6).Draw(t, "maxUnavailable"))
		w.in.Spec.SoakSeconds = rapid.Int32Range(0, 120).Draw(t, "soak")
		w.target("r1")
		var began []time.Time // of the last outages
		for pass := 0; w.last.Next.Phase != v1alpha1.RolloutComplete; pass++ {
			w.act()
			w.plan()
			assert.Must(t, w.in.Status.Halt == nil, "it was stopped: %s", w.last.Next.Message)
			assert.Must(t, pass < 5000, "it does not complete: %s", w.last.Next.Message)
			w.now = w.now.Add(time.Duration(rapid.IntRange(1, 5).Draw(t, "seconds")) * time.Second)
			many := len(began) >= mostReturns && slices.ContainsFunc(w.nodes, func(n Node) bool {
				return n.LastKnownGood.Digest() != n.Source.Content().SHA256 && !n.Source.By().AssignedAt.Time.After(began[len(began)-mostReturns])
			})
			if pass < 200 && !many && rapid.IntRange(0, 15).Draw(t, "outage") == 0 {
				began = append(began, w.now)
				w.outage(time.Duration(rapid.SampledFrom([]int{3, 8, 14, 120, 600}).Draw(t, "length"))*time.Second, func(*Node) time.Duration {
					return time.Duration(rapid.IntRange(0, 47).Draw(t, "late")) * time.Second
				})
			}
		}
	})
}

// The API server goes away for six seconds, every 30 seconds. Agents are back
// at once.
func TestAnAPIServerThatOftenFailsEndsNoDeadlineForEver(t *testing.T) {
	for name, c := range map[string]struct {
		does string
		down bool
		want State
		most time.Duration
	}{
		"a dead node fails":                          {"", true, Failed, 8 * time.Minute},
		"a hung node fails":                          {"hang", false, Failed, 8 * time.Minute},
		"the assignment of a silent agent goes back": {"silent", false, Stale, 9 * time.Minute},
	} {
		for _, forgets := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, each time another leader: %t", name, forgets), func(t *testing.T) {
				w := hasty(1)
				w.agents["n1"].does["r1"], w.agents["n1"].silent = c.does, c.does == "silent"
				w.target("r1")
				w.plan()
				if c.down {
					w.setNotReady(w.node("n1"), true)
				}

				is := w.plan().States[0]
				for is != c.want && w.now.Before(epoch.Add(2*c.most)) {
					w.outage(6*time.Second, func(*Node) time.Duration { return 0 })
					w.now = w.now.Add(24 * time.Second)
					if last := len(w.in.Outages) - 1; forgets {
						w.in.Outages = w.in.Outages[last:]
					}

					w.act()
					is = w.plan().States[0]
				}

				assert.That(t, is == c.want && w.now.Before(epoch.Add(2*c.most)), "after %s it is %s", w.now.Sub(epoch), is)
			})
		}
	}
}

func TestOutagesEndAtTheirTime(t *testing.T) {
	at := func(seconds ...int) (all Outages) {
		for i := 0; i < len(seconds); i += 2 {
			all = append(all, Outage{epoch.Add(time.Duration(seconds[i]) * time.Second), epoch.Add(time.Duration(seconds[i+1]) * time.Second)})
		}

		return all
	}
	for name, c := range map[string]struct {
		outages             Outages
		start, length, want int
		deadline            int
	}{
		"none":                            {nil, 0, 100, 100, 100},
		"one":                             {at(50, 80), 0, 100, 100 + 30 + 60, 150 + 30 + 60},
		"at the end":                      {at(100, 180), 0, 100, 100, 100 + 100 + 80 + 60},
		"before the start":                {at(-100, -70), 0, 100, 100, 100},
		"agents were not yet back":        {at(-100, -20), 0, 100, 140, 140},
		"it began before the start":       {at(-100, 20), 0, 100, 180, 180},
		"two, agents not back in between": {at(10, 20, 30, 40), 0, 100, 100 + 10 + 10 + 10 + 60, 110 + 10 + 10 + 10 + 60},
		"short ones use up the returns":   {at(0, 1, 100, 101, 200, 201, 300, 301, 400, 401, 500, 501, 600, 601, 700, 701), 0, 250, 250 + 6 + 300, 250 + 6 + 300},
		"not a long one":                  {at(0, 1, 100, 101, 200, 201, 300, 301, 400, 401, 500, 801), 0, 250, 250 + 5 + 300 + 301 + 60, 250 + 5 + 300 + 301 + 60},
		"much is unknown":                 {at(5000, 5100), 0, 100, 100, 400},
	} {
		start, length := epoch.Add(time.Duration(c.start)*time.Second), time.Duration(c.length)*time.Second
		assert.Equal(t, c.outages.End(start, length, time.Minute).Sub(epoch), time.Duration(c.want)*time.Second, name+": the end")
		assert.Equal(t, c.outages.Deadline(start, length, time.Minute).Sub(epoch), time.Duration(c.deadline)*time.Second, name+": the deadline")
	}

	merged := Outages(nil)
	for _, o := range at(0, 10, 20, 30, 15, 40, 40, 40, 50, 60) {
		merged = merged.Add(o)
	}

	assert.That(t, slices.Equal(merged, at(0, 10, 15, 40, 50, 60)), "merged they are %v", merged)
}

func TestADrainDoesNotCountTheTimeOfOutages(t *testing.T) {
	in := newWorld().in
	in.Outages = Outages{
		{epoch.Add(-time.Hour), epoch.Add(-time.Minute)}, {epoch.Add(time.Minute), epoch.Add(3 * time.Minute)},
	}
	assert.Equal(t, newPlanner(in, nil).drainEnds(&Node{Drain: Drain{Since: epoch}}), epoch.Add(8*time.Minute), "the drain ends")
}

// pauseRecord is the maintenance of a node since it was assigned something: the
// test keeps it.
type pauseRecord struct {
	of           attempt
	since, ended time.Time // since is zero without maintenance that counts
	total        time.Duration
}

// watchMaintenance sees on which nodes others work, in another way than the
// planner does.
func (w *world) watchMaintenance() {
	for _, n := range each(w.nodes) {
		of := attempt{n.Source.By().Revision, n.Source.By().Attempt}
		is := w.pauses[n.Name]
		if is.of != of {
			is = pauseRecord{of: of}
		}

		switch {
		case n.Maintenance == "" && !is.since.IsZero():
			is.total, is.ended, is.since = is.total+w.now.Sub(is.since), w.now, time.Time{}
		case n.Maintenance != "" && is.since.IsZero() && (n.Ready || n.MaintenanceSince.Before(n.WentNotReady)):
			is.since = Latest(n.MaintenanceSince, n.Source.By().AssignedAt.Time)
		}

		w.pauses[n.Name] = is
	}
}

// refereeMaintenance holds the states of nodes under maintenance, and the steps
// that are done, against the rules. It runs before the moves are written.
func (w *world) refereeMaintenance(t *rapid.T, r Result) {
	p := &w.in
	members, good, failed := 0, 0, 0
	for i := range w.nodes {
		n, s := &w.nodes[i], r.States[i]
		if foreign(n) {
			continue
		}

		members++
		has := w.hasTarget(n)
		fresh := has && n.Source.By().Revision == p.Target.Number && !n.Created.After(n.Source.By().AssignedAt.Time)
		verdict := n.Observed == n.Generation && n.OK == "False" && n.Reason != "WouldEvictPods" && !n.Provisional
		pause, ownDrain := w.pauses[n.Name], n.Drain.Rollout == p.DrainID
		passed := has && w.provenTarget(n) && n.OK != "False"
		over := passed && r.Succeeded() // it is Updated now, whatever it was before
		down := !n.Ready && w.now.Sub(Latest(n.WentNotReady, n.Source.By().AssignedAt.Time, pause.ended)) >= p.Controller.NotReadyGrace.Duration
		switch {
		case has && verdict:
			failed++
			assert.Must(t, s == Failed || s == Draining,
				"%s has failed by its own verdict (%s) and is %s under maintenance %q", n.Name, n.Reason, s, n.Maintenance)
		case passed && n.Ready && w.soaked(n):
			good++
		case hasSucceeded(&w.in.Status) && passed: // what happens later is not the rollout's
		case fresh && !n.Ready && !pause.since.IsZero() && !over && s != Skipped && s != Draining && s != Blocked:
			t.Fatalf("%s went NotReady in maintenance that began before (%+v), and is %s: %+v", n.Name, pause, s, r.NodeState(i))
		case fresh && down && pause.since.IsZero() && !ownDrain:
			failed++
			assert.Must(t, s == Failed || n.refuses() || over, "%s has been NotReady since %s, maintenance %q excuses it since %s, and it is %s",
				n.Name, n.WentNotReady, n.Maintenance, n.MaintenanceSince, s)
		case s == Failed:
			failed++ // by a timeout
		}
	}

	was, now := &w.in.Status, &r.Next
	if a := p.Spec.Approval; numberOf(was) != p.Target.Number || hasSucceeded(was) || a != nil && a.Revision == p.Target.Number && a.Step >= was.Step {
		return
	}

	least := good // the most that the steps that are done now demand
	for i := was.Step; i < min(now.Step, int32(len(p.Spec.Strategy.Steps))); i++ {
		least = max(least, int(RoundUp(p.Spec.Strategy.Steps[i].Nodes, int32(members))))
	}
	if hasSucceeded(now) {
		least = members
	}

	missing := members - good - failed
	assert.Must(t, least <= good || good > 0 && missing <= max(1, members/10),
		"step %d of %d is done with %d good, %d failed and %d missing of %d nodes; it demands %d",
		now.Step, len(p.Spec.Strategy.Steps), good, failed, missing, members, least)
}
