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

// often is a world whose API server goes away for six seconds, every so often.
// Agents are back at once.
func (w *world) often(every time.Duration) {
	w.outage(6*time.Second, func(*Node) time.Duration { return 0 })
	w.now = w.now.Add(every - 6*time.Second)
}

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
					w.often(30 * time.Second)
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
