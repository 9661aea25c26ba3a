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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// simulatedFleet returns a rollout of revision 1 for n nodes in three zones
// that run their local configuration.
func simulatedFleet(n int, change func(*Input)) (Input, []Node) {
	w := newWorld()
	w.add(n, 3)
	for i := range w.nodes {
		w.nodes[i].Name, w.nodes[i].Domain = fmt.Sprintf("node-%05d", i), fmt.Sprintf("zone-%d", i%3)
	}

	w.target("s1")
	w.in.Now, w.in.Spec.Strategy.DrainOptions.TimeoutSeconds = epoch, 900
	if change != nil {
		change(&w.in)
	}

	return w.in, w.nodes
}

var simulatedModel = Model{Seed: 1, TakeUp: 5 * time.Second, Trial: 10 * time.Minute, Fail: time.Minute, Drain: 2 * time.Minute}

// told sums a run up: its batches, how it was stopped, and its end.
func told(r Run) []string {
	var out []string
	for _, b := range r.Batches {
		out = append(out, fmt.Sprintf("%s step %d %s %d", b.At.Sub(r.Start), b.Step, b.Kind, len(b.Nodes)))
	}
	if s := r.Stopped; s != nil {
		out = append(out, fmt.Sprintf("%s stopped: %d failed, %d updated", s.At.Sub(r.Start), s.Counts.Failed, s.Counts.Updated))
	}

	c := r.Final.Counts

	return append(out, fmt.Sprintf("%s %s: %d touched, %d updated, %d failed, %d stale", r.End.Sub(r.Start), r.Final.Next.Phase, r.Touched, c.Updated, c.Failed, c.Stale))
}

func TestSimulatedRolloutsFollowTheirNodes(t *testing.T) {
	drains := func(mode v1alpha1.DrainMode) func(*Input) {
		return func(p *Input) { p.Spec.Strategy.Drain, p.Spec.Strategy.MaxUnavailable = mode, number(2) }
	}
	rollback := func(p *Input) {
		p.Spec.FailurePolicy = v1alpha1.FailurePolicy{Action: v1alpha1.FailureActionRollback, MaxFailures: number(3)}
		p.Spec.Strategy.MaxUnavailable = number(5)
	}
	pauses := func(p *Input) {
		p.Spec.Strategy.Steps = []v1alpha1.RolloutStep{{Nodes: number(1)}, {Pause: &v1alpha1.RolloutPause{}}, {Nodes: number(2)}, {Pause: &v1alpha1.RolloutPause{Duration: &metav1.Duration{Duration: time.Hour}}}, {Nodes: percent(100)}}
		p.Spec.Strategy.MaxUnavailable = number(9)
	}
	for _, tt := range []struct {
		name   string
		nodes  int
		policy func(*Input)
		model  func(*Model)
		want   []string
	}{
		{"healthy", 20, nil, nil, []string{
			"0s step 0 Assign 1", "10m5s step 1 Assign 1", "20m10s step 2 Assign 2", "30m15s step 2 Assign 2", "40m20s step 2 Assign 2",
			"50m25s step 2 Assign 2", "1h0m30s step 2 Assign 2", "1h10m35s step 2 Assign 2", "1h20m40s step 2 Assign 2", "1h30m45s step 2 Assign 2",
			"1h40m50s step 2 Assign 2", "1h50m55s Complete: 20 touched, 20 updated, 0 failed, 0 stale",
		}},
		{"soaking", 2, func(p *Input) { p.soak(5 * time.Minute) }, nil, []string{
			"0s step 0 Assign 1", "15m5s step 2 Assign 1", "30m10s Complete: 2 touched, 2 updated, 0 failed, 0 stale",
		}},
		{"one of three is blocked", 3, nil, func(m *Model) { m.Blocked = .4 }, []string{
			"0s step 0 Assign 1", "10m5s step 2 Assign 1", "20m10s step 2 Assign 1", "20m15s Progressing: 3 touched, 2 updated, 0 failed, 0 stale",
		}},
		{"every one fails", 20, nil, func(m *Model) { m.Failing = 1 }, []string{
			"0s step 0 Assign 1", "1m5s stopped: 1 failed, 0 updated", "1m5s Halted: 1 touched, 0 updated, 1 failed, 0 stale",
		}},
		{"some fail, and all go back", 20, rollback, func(m *Model) { m.Failing = .25 }, []string{
			"0s step 0 Assign 1", "1m5s step 0 Assign 1", "11m10s step 1 Assign 1", "12m15s step 1 Assign 1", "22m20s step 2 Assign 3", "23m25s step 2 GoBack 7",
			"23m25s stopped: 4 failed, 2 updated", "32m25s RolledBack: 7 touched, 0 updated, 0 failed, 0 stale",
		}},
		{"every one breaks, and is mended by going back", 20, rollback, func(m *Model) { m.Breaks = 1 }, []string{
			"0s step 0 Assign 1", "1m35s step 0 Assign 1", "3m10s step 0 Assign 1", "4m45s step 0 GoBack 3",
			"4m45s stopped: 3 failed, 0 updated", "4m50s RolledBack: 3 touched, 0 updated, 0 failed, 0 stale",
		}},
		{"every one is silent", 3, nil, func(m *Model) { m.Silent = 1 }, []string{
			"0s step 0 Assign 1", "1m0s step 0 TakeBack 1", "1m0s step 0 Assign 1", "2m0s step 0 TakeBack 1", "2m0s step 0 Assign 1", "3m0s step 0 TakeBack 1",
			"1h2m0s Stuck: 3 touched, 0 updated, 0 failed, 3 stale",
		}},
		{"a pause that nobody ends", 10, pauses, nil, []string{
			"0s step 0 Assign 1", "10m5s AwaitingApproval: 1 touched, 1 updated, 0 failed, 0 stale",
		}},
		{"pauses that end", 10, pauses, func(m *Model) { m.Approve = true }, []string{
			"0s step 0 Assign 1", "10m5s step 2 Assign 1", "1h20m10s step 4 Assign 8", "1h30m15s Complete: 10 touched, 10 updated, 0 failed, 0 stale",
		}},
		{"drained before they are assigned", 4, drains(v1alpha1.DrainAlways), func(m *Model) { m.Blocked = 1 }, []string{
			"2m0s step 0 Assign 1", "14m5s step 2 Assign 2", "26m10s step 2 Assign 1", "36m15s Complete: 4 touched, 4 updated, 0 failed, 0 stale",
		}},
		{"drained because they refuse", 4, drains(v1alpha1.DrainWhenBlocked), func(m *Model) { m.Blocked = 1 }, []string{
			"0s step 0 Assign 1", "12m10s step 2 Assign 2", "24m20s step 2 Assign 1", "36m30s Complete: 4 touched, 4 updated, 0 failed, 0 stale",
		}},
		{"drains that never end", 4, drains(v1alpha1.DrainAlways), func(m *Model) { m.StuckDrain = 1 }, []string{
			"1h45m0s Stuck: 0 touched, 0 updated, 0 failed, 0 stale",
		}},
		{"half of the drains never end", 4, drains(v1alpha1.DrainWhenBlocked), func(m *Model) { m.Blocked, m.StuckDrain, m.Limit = 1, .3, 30*time.Minute }, []string{
			"0s step 0 Assign 1", "12m10s step 2 Assign 2", "24m20s step 2 Assign 1", "27m15s step 2 TakeBack 1", "28m15s step 2 Assign 1",
			"28m25s Progressing: 4 touched, 2 updated, 0 failed, 0 stale",
		}},
		{"windows", 3, func(p *Input) { p.Windows = []Window{{daily{time.Hour}, 15 * time.Minute, false}} }, nil, []string{
			"1h0m0s step 0 Assign 1", "1h10m5s step 2 Assign 1", "25h0m0s step 2 Assign 1", "25h10m5s Complete: 3 touched, 3 updated, 0 failed, 0 stale",
		}},
		{"windows that trials end in", 2, func(p *Input) {
			p.Trial, p.Windows = 10*time.Minute, []Window{{daily{time.Hour}, 15 * time.Minute, true}}
		}, nil, []string{"1h0m0s step 0 Assign 1", "25h0m0s step 2 Assign 1", "25h10m5s Complete: 2 touched, 2 updated, 0 failed, 0 stale"}},
		{"a window that is too short", 2, func(p *Input) {
			p.Trial, p.Windows = 10*time.Minute, []Window{{daily{time.Hour}, 10 * time.Minute, true}}
		}, func(m *Model) { m.Limit = 24 * time.Hour }, []string{"0s Waiting: 0 touched, 0 updated, 0 failed, 0 stale"}},
		{"paused", 10, func(p *Input) { p.Spec.Paused = true }, nil, []string{"0s Paused: 0 touched, 0 updated, 0 failed, 0 stale"}},
		{"cut short", 20, nil, func(m *Model) { m.Limit = 15 * time.Minute }, []string{
			"0s step 0 Assign 1", "10m5s step 1 Assign 1", "10m10s Progressing: 2 touched, 1 updated, 0 failed, 0 stale",
		}},
		{"interrupted", 20, nil, func(m *Model) { m.Interrupted = func() bool { return true } }, []string{
			"0s : 0 touched, 0 updated, 0 failed, 0 stale",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, nodes := simulatedFleet(tt.nodes, tt.policy)
			m := simulatedModel
			if tt.model != nil {
				tt.model(&m)
			}

			r := Simulate(p, nodes, m)
			got := told(r)
			assert.That(t, slices.Equal(got, tt.want), "got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			assert.That(t, r.Limited == (m.Limit > 0 || m.Interrupted != nil), "limited: %v", r.Limited)
			again := Simulate(p, nodes, m)
			assert.That(t, slices.Equal(told(again), told(r)) && slices.Equal(again.Samples, r.Samples), "the same again goes another way")
			_, before := simulatedFleet(tt.nodes, tt.policy)
			assert.That(t, reflect.DeepEqual(nodes, before), "the nodes that were given have changed")
		})
	}
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
	want := []string{"0s step 0 Assign 2", "10m5s Complete: 2 touched, 4 updated, 0 failed, 1 stale"}
	got := told(r)
	assert.That(t, slices.Equal(got, want), "got %q, want %q", got, want)
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
	if c := at(6 * time.Second); c.Updated != 1 || c.Trial != 3 || c.Stale != 1 {
		t.Errorf("after 6s: %+v", c)
	}
	if c := at(11 * time.Minute); c.Updated != 4 || c.Stale != 1 {
		t.Errorf("after 11m: %+v", c)
	}
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
	if got, want := told(r), []string{"0s step 0 TakeBack 1", "0s stopped: 0 failed, 0 updated", "5s Halted: 0 touched, 0 updated, 0 failed, 0 stale"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}

	assert.That(t, uidOf(r.Nodes[0].Active) == uidOf(n.Active) && !r.Nodes[0].InTrial && r.Nodes[0].Observed == 3 && r.Nodes[0].Source.Content().UID == "u1",
		"in the end %+v", r.Nodes[0])
}

func TestASimulationKeepsTheSharesOfTheModel(t *testing.T) {
	m := Model{Seed: 3, Silent: .1, Breaks: .2, Failing: .3}
	_, nodes := simulatedFleet(10_000, nil)
	var counts [4]int
	for i := range nodes {
		counts[m.fateOf(&nodes[i])]++
	}

	for f, want := range map[fate]int{healthy: 4000, silent: 1000, breaks: 2000, fails: 3000} {
		assert.That(t, counts[f] >= want-150 && counts[f] <= want+150, "fate %d: %d nodes of 10000, want about %d", f, counts[f], want)
	}
}

func TestSimulatedGatesPass(t *testing.T) {
	for _, operator := range []string{"<", "<=", ">", ">=", "==", "!="} {
		p, nodes := simulatedFleet(30, func(p *Input) {
			p.Now = p.Now.Add(300 * time.Millisecond)
			p.Spec.Strategy.Gates = []v1alpha1.RolloutGate{
				gate("errors", operator+" 0.01", 10*time.Second), gate("alerts", operator+" 0", 10*time.Second),
			}
			p.Spec.Strategy.Gates[1].Every = v1alpha1.GateAlways
		})
		without := p
		without.Spec.Strategy.Gates = nil
		run, plain := Simulate(p, nodes, simulatedModel), Simulate(without, nodes, simulatedModel)
		if late := run.End.Sub(plain.End); run.Final.Next.Phase != v1alpha1.RolloutComplete || late <= 0 || late > time.Minute {
			t.Errorf("%s: it ends %s later, as %s: %s", operator, late, run.Final.Next.Phase, run.Final.Next.Message)
		}

		assert.That(t, p.Spec.Strategy.Gates[0].Interval.Duration == 10*time.Second && len(p.Measurements) == 0, "the policy was changed: %+v", p.Spec.Strategy.Gates)
	}
}

// TestSimulatedControlPlanesBeginOneByOne leaves the time after each in which a
// controller does not begin another one.
func TestSimulatedControlPlanesBeginOneByOne(t *testing.T) {
	in, nodes := simulatedFleet(4, func(p *Input) { p.Spec.Strategy.Steps, p.Spec.Strategy.MaxUnavailable = nil, percent(100) })
	for i := range nodes {
		nodes[i].ControlPlane = true
	}

	nodes[3].Ready = false
	r := Simulate(in, nodes, simulatedModel)
	assert.That(t, len(r.Batches) == 0 && strings.Contains(r.Final.Next.Message, "waits for control plane node-00003, which is not Ready"), "%v %s", r.Batches, r.Final.Next.Message)
	var at []string
	for _, b := range Simulate(in, nodes[:3], simulatedModel).Batches {
		at = append(at, b.At.Sub(r.Start).String())
	}

	assert.Equal(t, strings.Join(at, " "), "0s 10m35s 21m10s")
}
