package fleet

import (
	"cmp"
	"time"

	"github.com/evenkeel/evenkeel/internal/rollout"
)

// What a plan assumes about nodes.
const (
	AnswerTime = 5 * time.Second // how long an agent takes to start a trial
	DrainTime  = 2 * time.Minute // how long the drain of a node takes
)

// TrialTime returns the duration of a trial: the one in the template or in spec.trial, else otherwise, else the longest default that
// the nodes' agents report. Of agents that do not report it, the longest present trial counts, and without one their default.
func (f *Fleet) TrialTime(otherwise time.Duration) time.Duration {
	if d := f.Template.Trial.Duration; d != nil {
		return *d
	}
	var seen time.Duration
	for i := range f.Nodes {
		seen = max(seen, f.Nodes[i].TrialLength)
	}
	return cmp.Or(otherwise, f.trial, seen, DefaultTrial)
}

// Estimate plays the rest of the rollout with healthy nodes and with approvals that come at once, for at most limit of simulated time.
// It ends early when interrupted returns true.
func (f *Fleet) Estimate(limit time.Duration, interrupted func() bool) rollout.Run {
	return rollout.Simulate(f.Input, f.Nodes, rollout.Model{
		TakeUp: min(AnswerTime, f.Input.Controller.AgentTimeout.Duration/2), Trial: f.TrialTime(0), Drain: DrainTime, Approve: true, Limit: limit, Interrupted: interrupted,
	})
}
