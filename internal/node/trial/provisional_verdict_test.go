package trial

import (
	"testing"
	"time"
)

func TestVerdictBecomesFinalOnlyWhenTheFallbackIsStable(t *testing.T) {
	crash := func(after time.Duration) func(n *nodeSim) {
		return func(n *nodeSim) {
			n.pass(after)
			n.exit("exit status 1", true)
			n.healthy = true
			n.pass(300 * time.Millisecond)
		}
	}
	unhealthyConfig := func(n *nodeSim) {
		n.healthy = false
		n.pass(2 * time.Minute)
	}
	fallbackStable := func(d time.Duration) func(n *nodeSim) {
		return func(n *nodeSim) {
			n.healthy = true
			n.pass(d)
		}
	}
	type steps []func(n *nodeSim)
	for _, c := range []struct {
		name  string
		fails steps
		then  steps
		want  string // provisional, final or taken back
	}{
		{"it crashed at once, the other is well for a few seconds", steps{crash(time.Second)}, steps{fallbackStable(6 * time.Second)}, "final"},
		{"it lived for 40s, the other is well for 40s", steps{crash(40 * time.Second)}, steps{fallbackStable(40 * time.Second)}, "provisional"},
		{"it lived for 40s, the other is well for a minute", steps{crash(40 * time.Second)}, steps{fallbackStable(65 * time.Second)}, "final"},
		{"both live for 40s", steps{crash(40 * time.Second)}, steps{crash(40 * time.Second)}, "taken back"},
		{"one crashes, the other is not healthy", steps{crash(time.Second)}, steps{unhealthyConfig}, "taken back"},
		{"one is not healthy, the other crashes", steps{unhealthyConfig}, steps{crash(time.Second)}, "taken back"},
		{"one is not healthy, the other is for a moment", steps{unhealthyConfig}, steps{fallbackStable(10 * time.Second), unhealthyConfig}, "taken back"},
		{"one is not healthy, the other is for a minute", steps{unhealthyConfig}, steps{fallbackStable(65 * time.Second)}, "final"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNodeSim(t)
			n.healthy, n.limits.CrashLoopThreshold = true, 0
			n.start()
			n.intent = Intent{Kind: Assigned, Config: randomConfig(1, 0)}
			n.converge()
			for _, step := range c.fails {
				step(n)
			}
			if !n.state.Run.Config.IsLocal() {
				t.Fatalf("it was not rolled back: %+v", n.state)
			}
			for _, step := range c.then {
				step(n)
			}
			got := "taken back"
			if b, bad := n.state.BadEntry(randomConfig(1, 0)); bad && b.Provisional {
				got = "provisional"
			} else if bad {
				got = "final"
			}
			if got != c.want {
				t.Errorf("the verdict is %s, want %s: %+v", got, c.want, n.state.Run)
			}
		})
	}
}
