package rollout

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

var simulationStart = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

// simulated returns a rollout of revision 1 for n nodes in three zones that run their local configuration.
func simulated(n int, change func(*Policy)) (Policy, []Node) {
	p := Policy{
		Claim: Claim{Name: "workers", Created: simulationStart}, Now: simulationStart,
		Target:         Revision{Number: 1, Namespace: "evenkeel-system", Name: "workers-1", UID: "u1", SHA256: "s1"},
		MaxUnavailable: Amount{Value: 10, Percent: true},
		Steps:          []Step{{Nodes: Amount{Value: 1}}, {Nodes: Amount{Value: 10, Percent: true}}, {Nodes: Amount{Value: 100, Percent: true}}},
		NodeTimeout:    15 * time.Minute, ProgressDeadline: time.Hour,
		MaxFailures: Amount{Value: 1}, RollbackMaxUnavailable: Amount{Value: 25, Percent: true},
		AgentTimeout: time.Minute, NotReadyGrace: 30 * time.Second,
	}
	if change != nil {
		change(&p)
	}
	nodes := make([]Node, n)
	for i := range nodes {
		nodes[i] = Node{
			Name: fmt.Sprintf("node-%05d", i), Created: simulationStart.Add(-time.Hour), Domain: fmt.Sprintf("zone-%d", i%3), Stratum: "amd64",
			Ready: true, ReadyChanged: simulationStart.Add(-time.Hour),
			HasConfig: true, Generation: 1, Observed: 1, Reported: true, OK: "True", Reason: "LocalInit",
		}
	}
	return p, nodes
}

var simulatedModel = Model{Seed: 1, TakeUp: 5 * time.Second, Trial: 10 * time.Minute, Fail: time.Minute}

func TestX(t *testing.T) {
	for _, mu := range []Amount{{10, true}, {5, false}, {1, false}} {
		p, nodes := simulated(5000, func(p *Policy) { p.MaxUnavailable = mu })
		start := time.Now()
		r := Simulate(p, Progress{}, nodes, simulatedModel)
		t.Log(time.Since(start), r.End.Sub(r.Start), r.Final.Phase, r.Final.Message, len(r.Batches), len(r.Samples), r.Touched)
	}
	for _, f := range []float64{.01, .05, .5} {
		for _, roll := range []bool{false, true} {
			p, nodes := simulated(5000, func(p *Policy) { p.RollbackOnFailure = roll })
			m := simulatedModel
			m.Failing = f
			m.Silent = .01
			m.Breaks = .001
			r := Simulate(p, Progress{}, nodes, m)
			t.Log(r.End.Sub(r.Start), r.Final.Phase, r.Final.Message, len(r.Batches), len(r.Samples), r.Touched, r.Limited)
			for _, s := range r.Samples {
				t.Logf("%v %s %d %+v", s.At.Sub(r.Start), s.Phase, s.Step, s.Counts)
			}
		}
	}
	_ = slices.Sort[[]int]
}
