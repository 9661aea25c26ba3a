package rollout

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// hasty is a world of healthy nodes that have hardly more time than their trial.
func hasty(nodes int) *world {
	w := newWorld()
	w.add(nodes, 1)
	w.policy.Steps, w.policy.NodeTimeout = []Step{{Nodes: Amount{100, true}}}, 10*time.Second
	return w
}

func TestAnOutageInTheMiddleOfATrialFailsNoNode(t *testing.T) {
	for _, length := range []time.Duration{3 * time.Second, 8 * time.Second, 14 * time.Second, 10 * time.Minute} {
		for _, late := range []time.Duration{0, 20 * time.Second, 45 * time.Second} {
			for _, at := range []time.Duration{0, 5 * time.Second, 30 * time.Second, 60 * time.Second} {
				w := hasty(4)
				w.policy.MaxUnavailable = Amount{Value: 2}
				w.target("r1")
				out := false
				for w.last.Phase != PhaseComplete {
					w.act()
					w.plan()
					assert.Must(t, w.progress.Halt == nil, "%s from %s on, agents back after %s: %s", length, at, late, w.last.Message)
					w.now = w.now.Add(5 * time.Second)
					if !out && !w.now.Before(epoch.Add(at)) {
						out = true
						w.outage(length, func(*Node) time.Duration { return late })
					}
					assert.Must(t, w.now.Before(epoch.Add(time.Hour)), "it does not complete: %s", w.last.Message)
				}
			}
		}
	}
}

// TestRandomOutagesFailNoNode holds however often the API server goes away, if agents come back in the time that they may take.
func TestRandomOutagesFailNoNode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := hasty(rapid.IntRange(1, 12).Draw(t, "nodes"))
		w.policy.MaxUnavailable = Amount{Value: rapid.IntRange(1, 6).Draw(t, "maxUnavailable")}
		w.policy.Soak = time.Duration(rapid.IntRange(0, 120).Draw(t, "soak")) * time.Second
		w.target("r1")
		for pass := 0; w.last.Phase != PhaseComplete; pass++ {
			w.act()
			w.plan()
			assert.Must(t, w.progress.Halt == nil, "it was stopped: %s", w.last.Message)
			assert.Must(t, pass < 5000, "it does not complete: %s", w.last.Message)
			w.now = w.now.Add(time.Duration(rapid.IntRange(1, 5).Draw(t, "seconds")) * time.Second)
			if pass < 200 && rapid.IntRange(0, 15).Draw(t, "outage") == 0 {
				w.outage(time.Duration(rapid.IntRange(1, 120).Draw(t, "length"))*time.Second, func(*Node) time.Duration {
					return time.Duration(rapid.IntRange(0, 47).Draw(t, "late")) * time.Second
				})
			}
		}
	})
}

func TestAHungNodeStillFailsAfterAnOutage(t *testing.T) {
	w := hasty(1)
	w.agents["n1"].does["r1"] = "hang"
	w.target("r1")
	for range 4 {
		w.act()
		w.plan()
		w.now = w.now.Add(5 * time.Second)
	}
	w.outage(time.Minute, func(*Node) time.Duration { return 0 })
	most := w.now.Add(w.policy.AgentTimeout + w.policy.NodeTimeout + trialLength)
	assert.That(t, w.stateAfter(most.Sub(w.now)-time.Second) == Trial, "it failed too early")
	assert.Equal(t, w.stateAfter(time.Second), Failed, "the node")
}

func TestASoakDoesNotCountTheTimeOfOutages(t *testing.T) {
	w := soaking(t)
	w.now = w.now.Add(4 * time.Minute)
	w.outage(3*time.Minute, func(*Node) time.Duration { return 0 })
	w.now = w.now.Add(30 * time.Second)
	w.outage(time.Minute, func(*Node) time.Duration { return 0 }) // the agents were not back
	unobserved := 3*time.Minute + 30*time.Second + time.Minute + w.policy.AgentTimeout
	left := 10*time.Minute + unobserved - (4*time.Minute + 3*time.Minute + 30*time.Second + time.Minute)
	assert.Equal(t, w.stateAfter(left-time.Second), Soaking, "a second before its end the node")
	assert.Equal(t, w.stateAfter(time.Second), Updated, "at its end the node")
}

func TestADrainDoesNotCountTheTimeOfOutages(t *testing.T) {
	d := planner{p: Policy{DrainTimeout: 5 * time.Minute, AgentTimeout: time.Minute, Outages: []Outage{
		{epoch.Add(-time.Hour), epoch.Add(-time.Minute)}, {epoch.Add(time.Minute), epoch.Add(3 * time.Minute)},
	}}}
	assert.Equal(t, d.drainEnds(&Node{Drain: Drain{Since: epoch}}), epoch.Add(8*time.Minute), "the drain ends")
}
