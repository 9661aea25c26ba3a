package main

import (
	"context"
	"fmt"
	"time"

	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/figures"
)

// plans measures rollout.Plan. The floor is one iteration over all nodes.
func (b *bench) plans(ctx context.Context, count int) error {
	const runs = 15
	epoch := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	target := rollout.Revision{Number: 2, Namespace: "evenkeel-system", Name: "workers-0123456789ab", UID: "target", SHA256: "0123456789abcdef"}
	good := rollout.Revision{Number: 1, Namespace: "evenkeel-system", Name: "workers-ba9876543210", UID: "good", SHA256: "fedcba9876543210"}
	policy := rollout.Policy{
		Claim: rollout.Claim{Name: "workers", Created: epoch}, Now: epoch.Add(time.Hour), Target: target, LastSucceeded: good,
		MaxUnavailable: rollout.Amount{Value: 100, Percent: true}, MaxFailures: rollout.Amount{Value: 1},
		RollbackMaxUnavailable: rollout.Amount{Value: 25, Percent: true},
		Steps:                  []rollout.Step{{Nodes: rollout.Amount{Value: 100, Percent: true}}},
		NodeTimeout:            15 * time.Minute, ProgressDeadline: time.Hour, AgentTimeout: time.Minute, NotReadyGrace: 30 * time.Second,
	}
	on := func(r rollout.Revision) []rollout.Node {
		nodes := make([]rollout.Node, count)
		for i := range nodes {
			nodes[i] = rollout.Node{
				Name: fmt.Sprintf("node-%06d.example.com", i), Created: epoch.Add(-time.Hour), Domain: fmt.Sprintf("zone-%d", i%3),
				MachineKind: "amd64 linux v1.36.3 large", Ready: true,
				HasConfig: true, Generation: 2, Observed: 2, Reported: true, OK: "True", Reason: "AllChecksPassed",
				Source: rollout.Source{
					Kind: rollout.SourceConfigMap, Namespace: r.Namespace, Name: r.Name, UID: r.UID, SHA256: r.SHA256,
					Rollout: "workers", Revision: r.Number, Attempt: 1, AssignedAt: epoch,
				},
				Active: rollout.Ref{UID: r.UID, SHA256: r.SHA256}, LastKnownGood: rollout.Ref{UID: r.UID, SHA256: r.SHA256},
			}
		}
		return nodes
	}
	pending, done := on(good), on(target)
	halted := policy
	halted.RollbackOnFailure = true
	going := rollout.Progress{Revision: 2, Attempt: 1, Started: epoch, StepTime: epoch, ProgressTime: epoch}
	complete := going
	complete.Step, complete.Succeeded, complete.Updated = 1, true, count
	stopped := going
	stopped.Halt = &rollout.Halt{Revision: 2, Attempt: 1, Reason: rollout.HaltTooManyFailures, Time: epoch, Rollback: true}
	seen := 0
	floor := measure(runs, func() {
		for i := range pending {
			if n := &pending[i]; n.Ready && n.Observed == n.Generation && n.LastKnownGood.SHA256 == target.SHA256 {
				seen++
			}
		}
	})
	for _, c := range []struct {
		what   string
		policy rollout.Policy
		was    rollout.Progress
		nodes  []rollout.Node
		moves  int
	}{
		{"the first (all pending, all allowed)", policy, rollout.Progress{}, pending, 1000},
		{"steady (all updated)", policy, complete, done, 0},
		{"after a halt (25 % go back)", halted, stopped, done, count / 4},
	} {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		moves := 0
		took := measure(runs, func() { moves = len(rollout.Plan(c.policy, c.was, c.nodes).Moves) })
		if moves != c.moves {
			return fmt.Errorf("the plan %s has %d moves, want %d: it is not what was to be measured", c.what, moves, c.moves)
		}
		b.limited(figure{What: "Plan: " + c.what, Text: fmt.Sprintf("%s (%.0f x one pass)", tenths(took), took.Seconds()/floor.Seconds()), Value: took.Seconds(),
			Limit: tenths(maxPlan), Over: took > maxPlan}, tenths(floor))
	}
	return nil
}

func measure(runs int, do func()) time.Duration {
	var took []time.Duration
	for range runs {
		begin := time.Now()
		do()
		took = append(took, time.Since(begin))
	}
	return figures.Median(took)
}

func tenths(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }
