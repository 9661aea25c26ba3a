// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

var startupTimes = StartupTimes{Grace: time.Minute, Deadline: 10 * time.Minute}

func TestTheStartupTaintIsRemovedForAReason(t *testing.T) {
	for name, tt := range map[string]struct {
		selected bool
		state    StartupState
		age      time.Duration
		want     StartupRelease
		next     time.Duration // after the creation; 0: none
	}{
		"configured":                             {true, StartupConfigured, 0, ReleasedConfigured, 0},
		"configured, seen after the deadline":    {true, StartupConfigured, time.Hour, ReleasedConfigured, 0},
		"its rollout has nothing for it":         {true, StartupNothing, 0, ReleasedNothing, 0},
		"it waits":                               {true, StartupWaits, 0, StartupKeep, 10 * time.Minute},
		"it waits, just before the deadline":     {true, StartupWaits, 10*time.Minute - 1, StartupKeep, 10 * time.Minute},
		"it waits at the deadline":               {true, StartupWaits, 10 * time.Minute, ReleasedAtDeadline, 0},
		"its labels may come":                    {false, StartupWaits, time.Minute - 1, StartupKeep, time.Minute},
		"its labels have not come":               {false, StartupWaits, time.Minute, ReleasedNotSelected, 0},
		"a rollout had it that was deleted":      {false, StartupConfigured, 0, StartupKeep, time.Minute},
		"the clock is behind the Node's":         {true, StartupWaits, -time.Hour, StartupKeep, 10 * time.Minute},
		"no rollout, and seen after an hour off": {false, StartupNothing, time.Hour, ReleasedNotSelected, 0},
	} {
		n := StartupNode{Created: epoch, Selected: tt.selected, State: tt.state}
		why, next := n.Release(epoch.Add(tt.age), startupTimes)
		var after time.Duration
		if !next.IsZero() {
			after = next.Sub(epoch)
		}

		assert.That(t, why == tt.want && after == tt.next, "%s: %q, again after %s; want %q and %s", name, why, after, tt.want, tt.next)
	}
}

// startupWorld is a rollout that has succeeded with r1 on 9 nodes. A new node
// with the startup taint comes.
func startupWorld(t *testing.T, change func(w *world, n *Node)) (StartupState, Result) {
	t.Helper()
	w := newWorld()
	w.add(9, 1)
	w.in.Created = epoch.Add(-time.Minute)
	w.target("r1")
	w.runFor(20 * time.Minute)
	w.in.LastSucceeded = v1alpha1.RolloutRevision{}
	w.add(1, 1)
	n := &w.nodes[9]
	n.Created, n.Startup, n.Idle = w.now, true, true
	change(w, n)
	r := w.plan()
	state, is := r.Startup[9]
	assert.Must(t, len(r.Startup) == 1 && is, "the plan is about %+v", r.Startup)

	return state, r
}

// assignedR1 gives a node r1 as a new node, and lets its agent answer.
func assignedR1(w *world, n *Node) {
	n.Source = given("workers", w.in.Target, w.now)
	n.Observation = Observation{Rollout: "workers", Revision: 1, Attempt: 1, Joined: true}
	n.Generation, n.Observed = 2, 2
	n.Active, n.InTrial, n.TrialHealthy, n.TrialLength = ref("", "r1"), true, true, trialLength
}

func TestAPlanSaysWhatANodeWithTheStartupTaintCanExpect(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(w *world, n *Node)
		want   StartupState
	}{
		"it joins":                  {func(*world, *Node) {}, StartupWaits},
		"it joins when it is Ready": {func(_ *world, n *Node) { n.Ready = false }, StartupWaits},
		"no agent has written":      {func(_ *world, n *Node) { n.Reported = false }, StartupWaits},
		"no NodeConfig":             {func(_ *world, n *Node) { n.HasConfig = false }, StartupWaits},
		"under maintenance":         {func(_ *world, n *Node) { n.Maintenance = Cordoned }, StartupWaits},
		"frozen":                    {func(w *world, _ *Node) { w.in.Spec.Frozen = true }, StartupNothing},
		"older than the rollout":    {func(w *world, n *Node) { n.Created = w.in.Created.Add(-time.Second); w.in.Spec.Paused = true }, StartupNothing},
		"manual":                    {func(_ *world, n *Node) { n.Source = &v1alpha1.NodeConfigSource{Local: &v1alpha1.LocalSource{}} }, StartupNothing},
		"opted out":                 {func(_ *world, n *Node) { n.OtherSource = v1alpha1.RemoteConfigDisabled }, StartupNothing},
		"nothing has succeeded yet": {func(w *world, _ *Node) {
			w.target("r2")
			w.in.LastSucceeded, w.in.Spec.Paused = v1alpha1.RolloutRevision{}, true
		}, StartupNothing},
		"agents are asked first": {func(w *world, _ *Node) {
			w.target("r2")
			w.in.Spec.NewNodes, w.in.Spec.Strategy.Preflight = v1alpha1.NewNodesTarget, v1alpha1.PreflightRequire
		}, StartupWaits},
		"on trial and healthy":       {assignedR1, StartupConfigured},
		"its agent has not answered": {func(w *world, n *Node) { assignedR1(w, n); n.Observed = 1 }, StartupWaits},
		"on trial, not healthy yet":  {func(w *world, n *Node) { assignedR1(w, n); n.TrialHealthy = false }, StartupWaits},
		"on trial, NotReady":         {func(w *world, n *Node) { assignedR1(w, n); n.Ready = false }, StartupWaits},
		"another configuration runs": {func(w *world, n *Node) { assignedR1(w, n); n.Active = nil }, StartupWaits},
		"trial passed":               {func(w *world, n *Node) { assignedR1(w, n); n.InTrial = false; n.LastKnownGood = n.Active }, StartupConfigured},
		"created again, old status":  {func(w *world, n *Node) { assignedR1(w, n); n.Source.By().AssignedAt.Time = n.Created.Add(-time.Hour) }, StartupWaits},
		"created again, new status": {func(w *world, n *Node) {
			assignedR1(w, n)
			n.Source.By().AssignedAt.Time = n.Created.Add(-time.Hour)
			n.Known = true
		}, StartupConfigured},
		"it failed": {func(w *world, n *Node) {
			assignedR1(w, n)
			n.OK, n.Reason, n.Active = "False", v1alpha1.ReasonCrashLooped, nil
		}, StartupNothing},
		"it failed, provisionally": {func(w *world, n *Node) { assignedR1(w, n); n.OK, n.Provisional = "False", true }, StartupWaits},
		"it refuses for its pods": {func(w *world, n *Node) {
			assignedR1(w, n)
			n.OK, n.Reason, n.Active = "False", v1alpha1.ReasonWouldEvictPods, nil
		}, StartupWaits},
		"it went back to local": {func(w *world, n *Node) {
			assignedR1(w, n)
			n.Source.ConfigMapRef, n.Source.Local = nil, &v1alpha1.LocalSource{}
			w.in.Spec.Frozen = true
		}, StartupNothing},
		"the revision is taken back": {func(w *world, n *Node) {
			assignedR1(w, n)
			w.in.Spec.Abort = &v1alpha1.RolloutAbort{Revision: 1, Rollback: true}
		}, StartupWaits},
		"stopped, and nodes keep it":  {func(w *world, n *Node) { assignedR1(w, n); w.in.Spec.Abort = &v1alpha1.RolloutAbort{Revision: 1} }, StartupConfigured},
		"stopped, and it has nothing": {func(w *world, _ *Node) { w.in.Spec.Abort = &v1alpha1.RolloutAbort{Revision: 1} }, StartupNothing},
	} {
		got, r := startupWorld(t, tt.change)
		assert.Equal(t, got, tt.want, name, r.NodeState(9), r.Moves)
	}
}

// startupRight holds the removal of startup taints against the next plan.
// Before the deadline, no node loses the taint while a configuration is about
// to run there; after the deadline, no node has it.
func (w *world) startupRight(t *rapid.T) {
	for _, n := range each(w.nodes) {
		n.Startup = n.Created.After(w.in.Created) && !w.released[n.Name]
		n.TrialHealthy = n.InTrial && rapid.Bool().Draw(t, "healthy in the trial")
	}

	w.in.Now = w.now
	r := w.decide()
	for i, n := range each(w.nodes) {
		if !n.Startup {
			continue
		}

		state, planned := r.Startup[i]
		assert.Must(t, planned != (n.Owner != ""), "%s of %q: the plan has %v", n.Name, n.Owner, planned)
		why, next := StartupNode{Created: n.Created, Selected: true, State: state}.Release(w.now, startupTimes)
		late := !w.now.Before(n.Created.Add(startupTimes.Deadline))
		assert.Must(t, why != StartupKeep || !late && next.After(w.now),
			"%s keeps the taint %s after its creation, until %s", n.Name, w.now.Sub(n.Created), next)
		broken := w.startupBroken(n, r, i, why)
		assert.Must(t, broken == "" || late, "%s loses the taint (%s): %s", n.Name, why, broken)
		w.released[n.Name] = why != StartupKeep
	}
}

// startupBroken returns what is wrong with the removal of a node's taint before
// the deadline.
func (w *world) startupBroken(n *Node, r Result, i int, why StartupRelease) string {
	if why == StartupKeep {
		return ""
	}

	for _, m := range r.Moves {
		if m.Node == i {
			return fmt.Sprintf("it is about to get %+v", m)
		}
	}

	if n.Observed != n.Generation && n.Source.By().Name == w.in.Name && n.OtherSource == "" {
		return "its agent has not answered"
	}
	if why == ReleasedConfigured && !(n.Ready && n.OK == "True" && n.Active.Digest() == n.Source.Content().SHA256 && (n.TrialHealthy || !n.InTrial)) {
		return fmt.Sprintf("it does not run its configuration: %+v", n)
	}

	return ""
}
