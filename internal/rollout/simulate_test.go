// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// simulatedFleet returns a rollout of revision 1 for n nodes in three zones
// that run their local configuration.
func simulatedFleet(n int, change func(*Input)) (Input, []Node) {
	w := newWorld()
	w.add(n, 3)
	w.target("s1")
	w.in.Now = epoch
	change(&w.in)

	return w.in, w.nodes
}

var simulatedModel = Model{Seed: 1, TakeUp: 5 * time.Second, Trial: 10 * time.Minute, Fail: time.Minute, Drain: 2 * time.Minute}

// told sums a run up: its batches, how it was stopped, and its end.
func told(r Run) string {
	var out strings.Builder
	for _, b := range r.Batches {
		fmt.Fprintf(&out, "%8s  step %d %s %d\n", b.At.Sub(r.Start), b.Step, b.Kind, len(b.Nodes))
	}
	if s := r.Stopped; s != nil {
		fmt.Fprintf(&out, "%8s  stopped: %d failed, %d updated\n", s.At.Sub(r.Start), s.Counts.Failed, s.Counts.Updated)
	}

	c := r.Final.Counts
	fmt.Fprintf(&out, "%8s  %s: %d touched, %d updated, %d failed, %d stale\n",
		r.End.Sub(r.Start), r.Final.Next.Phase, r.Touched, c.Updated, c.Failed, c.Stale)

	return out.String()
}

// simulate lets a rollout run on nodes that behave as a model says. It must
// change nothing that it was given, and go the same way a second time.
func (w *world) simulate(t *testing.T, td *datadriven.TestData, out *strings.Builder) {
	m := simulatedModel
	for key, share := range map[string]*float64{
		"blocked": &m.Blocked, "failing": &m.Failing, "breaks": &m.Breaks, "silent": &m.Silent, "stuck-drain": &m.StuckDrain,
	} {
		td.MaybeScanArgs(t, key, share)
	}

	m.Approve = td.HasArg("approve")
	td.MaybeScanArgs(t, "limit", &m.Limit)
	if td.HasArg("interrupted") {
		m.Interrupted = func() bool { return true }
	}

	w.in.Now, w.in.Trial = w.now, m.Trial
	nodes, gates := slices.Clone(w.nodes), slices.Clone(w.in.Spec.Strategy.Gates)
	r := Simulate(w.in, w.nodes, m)
	out.WriteString(told(r))
	if r.Limited {
		out.WriteString("it was cut short\n")
	}

	again := Simulate(w.in, w.nodes, m)
	assert.That(t, told(again) == told(r) && slices.Equal(again.Samples, r.Samples), "%s: the same again goes another way", td.Pos)
	assert.That(t, reflect.DeepEqual(w.nodes, nodes) && reflect.DeepEqual(w.in.Spec.Strategy.Gates, gates) && len(w.in.Measurements) == 0,
		"%s: what was given has changed", td.Pos)
}

func TestASimulationStartsFromTheNodesState(t *testing.T) {
	p, nodes := simulatedFleet(5, func(p *Input) { p.Spec.Strategy.Steps = []v1alpha1.RolloutStep{{Nodes: percent(100)}} })
	p.Spec.Strategy.MaxUnavailable = number(5)
	target := given("workers", p.Target, epoch)
	nodes[0].Source, nodes[0].Generation = target, 2 // not adopted
	nodes[1].Source, nodes[1].Active, nodes[1].InTrial, nodes[1].TrialLength = target, ref("uid-s1", "s1"), true, time.Minute
	nodes[2].LastKnownGood = ref("u0", "s1") // it has proven the same content
	nodes[2].Active = nodes[2].LastKnownGood
	nodes[3].HasConfig, nodes[3].Reported = false, false // it has no agent
	began := apiTime(epoch)
	p.Status = v1alpha1.NodeConfigRolloutStatus{UpdateRevision: new(p.Target), Attempt: 1, StartTime: began, StepTime: began, ProgressTime: began}
	r := Simulate(p, nodes, simulatedModel)
	assert.Equal(t, told(r), "      0s  step 0 Assign 2\n   10m5s  Complete: 2 touched, 4 updated, 0 failed, 1 stale\n")
	assert.That(t, uidOf(r.Nodes[2].LastKnownGood) == "uid-s1", "what was proven is tried again: %+v", r.Nodes[2])
	at := func(after time.Duration) Counts {
		var c Counts
		for _, s := range r.Samples {
			if !s.At.After(r.Start.Add(after)) {
				c = s.Counts
			}
		}

		return c
	}
	c := at(6 * time.Second)
	assert.That(t, c.Updated == 1 && c.Trial == 3 && c.Stale == 1, "after 6s: %+v", c)
	c = at(11 * time.Minute)
	assert.That(t, c.Updated == 4 && c.Stale == 1, "after 11m: %+v", c)
}

func TestTakingBackAnUnacceptedAssignmentCostsNoTrial(t *testing.T) {
	p, nodes := simulatedFleet(1, func(p *Input) {
		p.Target = revision(2, "workers-2", "u2", "s2")
		p.Spec.Abort = &v1alpha1.RolloutAbort{Revision: 2}
	})
	before := given("workers", revision(1, "workers-1", "u1", "s1"), epoch)
	n := &nodes[0]
	n.Active, n.LastKnownGood = ref("u1", "s1"), ref("u1", "s1")
	n.Source = given("workers", p.Target, epoch)
	n.Source.RolloutRef.Previous = previous(before)
	n.Generation = 2
	r := Simulate(p, nodes, simulatedModel)
	assert.Equal(t, told(r), "      0s  step 0 TakeBack 1\n      0s  stopped: 0 failed, 0 updated\n"+
		"      5s  Halted: 0 touched, 0 updated, 0 failed, 0 stale\n")
	assert.That(t, uidOf(r.Nodes[0].Active) == uidOf(n.Active) && !r.Nodes[0].InTrial && r.Nodes[0].Observed == 3 && r.Nodes[0].Source.Content().UID == "u1",
		"in the end %+v", r.Nodes[0])
}

func TestASimulationKeepsTheSharesOfTheModel(t *testing.T) {
	m := Model{Seed: 3, Silent: .1, Breaks: .2, Failing: .3}
	w := newWorld()
	w.add(10_000, 3)
	var counts [4]int
	for i := range w.nodes {
		counts[m.fateOf(&w.nodes[i])]++
	}

	for f, want := range map[fate]int{healthy: 4000, silent: 1000, breaks: 2000, fails: 3000} {
		assert.That(t, counts[f] >= want-150 && counts[f] <= want+150, "fate %d: %d nodes of 10000, want about %d", f, counts[f], want)
	}
}
