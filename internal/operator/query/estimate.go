// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"cmp"
	"time"

	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// AnswerTime is how long a plan assumes that an agent takes to start a trial.
const AnswerTime = 5 * time.Second

// DrainTime returns how long a plan assumes that the drain of a node takes: it succeeds within the rollout's timeout.
func (f *Fleet) DrainTime() time.Duration {
	most := 2 * time.Minute
	if o := f.Input.Spec.Strategy.DrainOptions; o != nil && o.TimeoutSeconds > 0 {
		most = min(most, time.Duration(o.TimeoutSeconds)*time.Second/2)
	}
	return most
}

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
	return cmp.Or(otherwise, f.trial, seen, fleet.DefaultTrial)
}

// Estimate plays the rest of the rollout with healthy nodes and with approvals that come at once, for at most limit of simulated time.
// It ends early when interrupted returns true.
func (f *Fleet) Estimate(limit time.Duration, interrupted func() bool) rollout.Run {
	return rollout.Simulate(f.Input, f.Nodes, rollout.Model{
		TakeUp: min(AnswerTime, f.Input.Controller.AgentTimeout.Duration/2), Trial: f.TrialTime(0), Drain: f.DrainTime(), Approve: true,
		Limit: limit, Interrupted: interrupted,
	})
}
