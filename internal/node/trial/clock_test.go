// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// TestWallClockJumpsDoNotChangeDecisions runs the same histories with a wall
// clock that is steady and with ones that jump by a day. Only recorded times
// may differ.
func TestWallClockJumpsDoNotChangeDecisions(t *testing.T) {
	good := randomConfig(1, 0)
	minutes := func(n *nodeSim, jump time.Duration, count int) {
		for range count {
			n.pass(time.Minute)
			n.clockJumps += jump
		}
	}
	exits := func(n *nodeSim, jump time.Duration, count int) {
		for range count {
			n.exit("exit status 7", true)
			n.clockJumps += jump
			n.pass(10 * time.Second)
		}
	}
	histories := []struct {
		name    string
		walk    func(n *nodeSim, jump time.Duration)
		runs    Config
		ends    string
		dryRuns string
	}{
		{"a trial is passed", func(n *nodeSim, jump time.Duration) {
			minutes(n, jump, 9)
			n.must(n.state.Trial != nil && n.state.LastKnownGood.IsLocal(), "promoted after nine minutes of ten")
			minutes(n, jump, 2)
		}, good, "", "AllChecksPassed"},
		{"a trial goes on over a clean reboot", func(n *nodeSim, jump time.Duration) {
			minutes(n, jump, 5)
			n.sigterm()
			n.boot++
			n.clockJumps += jump
			n.start()
			minutes(n, jump, 4)
			n.must(n.state.Trial != nil && n.state.LastKnownGood.IsLocal(), "promoted after nine minutes of ten")
			minutes(n, jump, 2)
		}, good, "", "AllChecksPassed"},
		{"a crash loop rolls back at the fourth exit", func(n *nodeSim, jump time.Duration) {
			exits(n, jump, 3)
			n.must(len(n.state.Bad) == 0 && len(n.state.Startups) == 4, "a verdict after three exits: %+v", n.state.Bad)
			exits(n, jump, 1)
			minutes(n, jump, 1)
		}, Config{}, v1alpha1.ReasonCrashLooped, "CrashLooped"},
		{"what is not healthy rolls back after two minutes", func(n *nodeSim, jump time.Duration) {
			n.healthy = false
			minutes(n, jump, 1)
			n.must(len(n.state.Bad) == 0, "a verdict after one minute: %+v", n.state.Bad)
			minutes(n, jump, 1)
			n.healthy = true
			minutes(n, jump, 1)
		}, Config{}, v1alpha1.ReasonNotHealthy, "NotHealthy"},
		{"what is not ready rolls back after two minutes", func(n *nodeSim, jump time.Duration) {
			n.node.Ready = false
			minutes(n, jump, 1)
			n.must(len(n.state.Bad) == 0, "a verdict after one minute: %+v", n.state.Bad)
			minutes(n, jump, 2)
			n.node.Ready = true
			minutes(n, jump, 1)
		}, Config{}, v1alpha1.ReasonNotReady, "NotReady"},
		{"an outage rolls back nobody", func(n *nodeSim, jump time.Duration) {
			minutes(n, jump, 3)
			n.node.API, n.node.Ready = false, false
			minutes(n, jump, 30)
			n.node.API, n.node.Ready = true, true
			n.must(n.state.Trial != nil && len(n.state.Bad) == 0, "the outage counted")
			minutes(n, jump, 8)
		}, good, "", "AllChecksPassed"},
	}
	for _, h := range histories {
		t.Run(h.name, func(t *testing.T) {
			var steady []string
			for _, jump := range []time.Duration{0, 24 * time.Hour, -24 * time.Hour} {
				n := newNodeSim(t)
				n.healthy = true
				n.start()
				n.intent = Intent{Kind: Assigned, Config: good}
				n.converge()
				n.clockJumps += jump
				h.walk(n, jump)

				if n.state.Run.Config.Revision != h.runs.Revision || n.last.Status.Condition.Reason != h.dryRuns {
					t.Errorf("with jumps of %s %q runs, and it says %+v", jump, n.state.Run.Config.Revision, n.last.Status.Condition)
				}
				if h.ends == "" && len(n.state.Bad) > 0 || h.ends != "" && (len(n.state.Bad) != 1 || n.state.Bad[0].Failure != h.ends) {
					t.Errorf("with jumps of %s bad are %+v", jump, n.state.Bad)
				}

				told := append(slices.Clone(n.trace), fmt.Sprint(n.clock, n.last.Status.Condition, n.last.Status.Error, len(n.state.Startups), n.last.Wake))
				if jump == 0 {
					steady = told
				} else if !slices.Equal(told, steady) {
					t.Errorf("with jumps of %s:\n%q\nwith a steady clock:\n%q", jump, told, steady)
				}
			}
		})
	}
}
