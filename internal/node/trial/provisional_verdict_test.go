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

// A verdict that is provisional when another configuration is assigned, perhaps the last-known-good one, is decided too: its
// revision may be assigned again later, and a rollout waits for a final answer.
func TestTheVerdictOnAnAbandonedConfigIsDecided(t *testing.T) {
	type step func(*nodeSim)
	healthyFor := func(d time.Duration) step { return func(n *nodeSim) { n.healthy = true; n.pass(d) } }
	crash := func(n *nodeSim) { n.pass(time.Second); n.exit("exit status 1", true); n.converge() }
	notReady := func(n *nodeSim) { n.node.Ready = false; n.pass(2 * time.Minute); n.converge(); n.node.Ready = true }
	unhealthy := func(n *nodeSim) { n.healthy = false; n.pass(2 * time.Minute); n.converge() }
	for name, c := range map[string]struct {
		fails, then step
		good        int // the content that is assigned then
		want        string
	}{
		"not Ready, and last-known-good works":     {notReady, healthyFor(65 * time.Second), 1, "final"},
		"not healthy, and last-known-good works":   {unhealthy, healthyFor(65 * time.Second), 1, "final"},
		"a crash, and last-known-good works":       {crash, healthyFor(65 * time.Second), 1, "final"},
		"a crash, and last-known-good works a bit": {crash, healthyFor(20 * time.Second), 1, "provisional"},
		"a crash, and last-known-good fails too":   {crash, unhealthy, 1, "withdrawn"},
		"a crash, and a third one is on trial":     {crash, healthyFor(65 * time.Second), 3, "provisional"},
		"not Ready, and a third one is promoted":   {notReady, healthyFor(11 * time.Minute), 3, "final"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNodeSim(t)
			n.healthy, n.limits.CrashLoopThreshold = true, 0
			n.start()
			assign := func(payload int) { n.intent = Intent{Kind: Assigned, Config: randomConfig(payload, 0)}; n.converge() }
			assign(1)
			n.pass(11 * time.Minute)
			assign(2)
			c.fails(n)
			if _, bad := n.state.BadEntry(randomConfig(2, 0)); !bad {
				t.Fatalf("it was not rolled back: %+v", n.state)
			}
			n.healthy = true
			assign(c.good)
			c.then(n)
			b, bad := n.state.BadEntry(randomConfig(2, 0))
			got := map[bool]string{true: "provisional", false: "final"}[b.Provisional]
			if !bad {
				got = "withdrawn"
			}
			if got != c.want {
				t.Errorf("the verdict is %s, want %s: %+v", got, c.want, n.state.Run)
			}
			if got == "provisional" && !n.last.Watch {
				t.Error("the node is not watched, so that nothing can end the doubt")
			}
		})
	}
}
