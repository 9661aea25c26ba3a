// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestGatesAreEvaluatedOnlyWhileTheyMatter(t *testing.T) {
	for name, c := range map[string]struct {
		happen func(w *world)
		want   int
	}{
		"it makes progress": {func(*world) {}, 1},
		"it has no nodes":   {func(w *world) { w.nodes = nil }, 0},
		"it is paused":      {func(w *world) { w.in.Spec.Paused = true }, 0},
		"it is frozen":      {func(w *world) { w.in.Spec.Frozen = true }, 0},
		"it was stopped":    {func(w *world) { w.in.Spec.Abort = &v1alpha1.RolloutAbort{Revision: 1} }, 0},
		"it was complete":   {func(w *world) { w.succeed() }, 0},
		"it has no revision": {func(w *world) {
			w.in.Target, w.in.Status = v1alpha1.RolloutRevision{}, v1alpha1.NodeConfigRolloutStatus{}
		}, 0},
		"it is in preflight":  {func(w *world) { w.in.Spec.Strategy.Preflight = v1alpha1.PreflightRequire }, 1},
		"its template is bad": {func(w *world) { w.in.Invalid = "unknown field" }, 0},
	} {
		w := fleet(2)
		w.assigned("n1")
		w.holdByGate()
		c.happen(w)
		w.now = w.now.Add(2 * time.Minute)
		r := w.plan()
		assert.That(t, len(r.Measure) == c.want, "%s: %q are evaluated: %s", name, r.Measure, r.Next.Message)
	}
}

func TestPodsAreOnlyReadIfANodeCanBeAssigned(t *testing.T) {
	for name, c := range map[string]struct {
		happen func(w *world)
		want   bool
	}{
		"a node waits":  {func(*world) {}, true},
		"no node waits": {func(w *world) { w.node("n2").Ready = false }, false},
		"the step allows no more": {func(w *world) {
			w.in.Spec.Strategy.Steps = []v1alpha1.RolloutStep{{Nodes: number(1)}, {Nodes: percent(100)}}
		}, false},
		"no node may move":         {func(w *world) { w.in.Spec.Strategy.MaxUnavailable = number(0) }, false},
		"a gate holds the rollout": {func(w *world) { w.holdByGate() }, false},
	} {
		w := fleet(2)
		w.assigned("n1")
		for i := range w.nodes {
			w.nodes[i].Disrupts = true
		}

		w.in.RespectBudgets = true
		c.happen(w)
		w.in.Now = w.now
		r := Plan(w.in, w.nodes)
		assert.That(t, r.ReadBudgets == c.want && (len(r.Inspect) > 0) == c.want,
			"%s: nodes %v are read, and the budgets: %t", name, r.Inspect, r.ReadBudgets)
	}
}

// What was read counts for a limited time, to the nanosecond. Then the budgets
// are read again, and what was too old.
func TestWhatWasReadAboutBudgetsGetsTooOld(t *testing.T) {
	for name, c := range map[string]struct {
		limit          time.Duration
		set            func(w *world, read time.Time)
		moves, inspect int // moves before the limit, and nodes whose pods are read at it
	}{
		"the pods that a restart disrupts": {budgetsValid, func(w *world, read time.Time) { w.node("n1").Disruptions.Time = read }, 1, 1},
		"pods that could not be read": {budgetsValid, func(w *world, read time.Time) {
			w.node("n1").Disruptions.Time, w.node("n1").Disruptions.Error = read, "forbidden"
		}, 0, 1},
		"budgets": {budgetsValid, func(w *world, read time.Time) { w.in.Budgets.Time = read }, 1, 0},
		"budgets that could not be read": {budgetsValid, func(w *world, read time.Time) {
			w.in.Budgets.Time, w.in.Budgets.Error = read, "forbidden"
		}, 0, 0},
		"too many pods": {podsKept, func(w *world, read time.Time) {
			w.node("n1").Disruptions.Time, w.in.Budgets.Allowed = read, map[string]int{"web": 0}
		}, 0, 1},
		"pods of a node in flight that could not be read": {budgetsValid, func(w *world, read time.Time) {
			w.assigned("n2")
			n := w.node("n2")
			n.Ready, n.Source.By().AssignedAt.Time, n.Disrupts, n.Disruptions = true, w.now, true, &Disruptions{Time: read, Error: "forbidden"}
		}, 0, 1},
	} {
		for _, tooOld := range []bool{false, true} {
			w := fleet(2)
			w.assigned() // none
			w.now = epoch.Add(time.Hour)
			w.node("n2").Ready = false
			n := w.node("n1")
			n.Disrupts, n.Disruptions = true, &Disruptions{Time: w.now, Pods: map[string]int{"web": 1}}
			w.in.RespectBudgets, w.in.Budgets = true, Budgets{Time: w.now, Allowed: map[string]int{"web": 1}}
			read, moves, inspect := w.now.Add(1-c.limit), c.moves, 0
			if tooOld {
				read, moves, inspect = w.now.Add(-c.limit), 0, c.inspect
			}

			c.set(w, read)
			w.in.Now = w.now
			r := Plan(w.in, w.nodes)
			assert.That(t, len(r.Moves) == moves && len(r.Inspect) == inspect && r.ReadBudgets == tooOld,
				"%s, too old %t: %d moves, nodes %v and budgets (%t) are read: %s", name, tooOld, len(r.Moves), r.Inspect, r.ReadBudgets, r.Next.Message)
		}
	}
}

func TestARequestForNowDoesNotHideALaterOne(t *testing.T) {
	d := &planner{in: Input{Now: epoch}}
	for _, at := range []time.Duration{5, 0, -1, 7, 3, 9} {
		d.requeueAt(epoch.Add(at * time.Second))
	}

	assert.Equal(t, d.RequeueAfter, 3*time.Second, "the next plan is in")
}

// A canary stands for its kind: no other node of that kind is moved forward,
// out of the order of the domains.
func TestACanaryStandsForItsKind(t *testing.T) {
	for _, others := range []string{"a", "b"} {
		w := fleet(20)
		w.nodes[3].Canary = true
		order := w.orderOf()
		assert.Must(t, order[0] == 3, "%s is first", w.nodes[order[0]].Name)
		for i := range w.nodes {
			w.nodes[i].Domain = others
		}

		w.nodes[order[1]].Domain = map[string]string{"a": "b", "b": "a"}[others]
		var domains []string
		for _, i := range w.orderOf()[1:] {
			domains = append(domains, w.nodes[i].Domain)
		}

		d := &planner{in: w.in}
		assert.That(t, slices.IsSortedFunc(domains, func(a, b string) int { return cmp.Compare(d.hash(a), d.hash(b)) }),
			"behind the canary come the domains %v", domains)
	}
}

func TestOneNodeOfEachKindComesFirst(t *testing.T) {
	for i := range 5 {
		w := fleet(5)
		w.nodes[i].MachineKind = "arm64"
		order := w.orderOf()
		assert.That(t, order[0] == i || order[1] == i, "the only node of its kind, %s, comes in the order %v", w.nodes[i].Name, order)
	}
}

// orderOf returns the order in which all nodes would get the target.
func (w *world) orderOf() []int {
	d := newPlanner(w.in, w.nodes)
	all := make([]int, len(w.nodes))
	for i := range all {
		all[i] = i
	}

	return d.order(all)
}

func TestAnInquiryAsksBusyNodesSoonAgain(t *testing.T) {
	w := fleet(1)
	for busy, want := range map[bool]time.Duration{true: busyInterval, false: time.Minute} {
		q := Inquiry{
			UID: "u", Now: epoch, Timeout: time.Minute, Room: 1,
			TakesPart: func(*Node) bool { return true }, Runs: func(*Node) bool { return false }, Busy: func(*Node) bool { return busy },
		}
		_, ask, again := q.Evaluate(epoch, w.nodes)
		assert.That(t, len(ask) > 0 != busy && again == want, "busy %t: %d are asked, again in %s, want %s", busy, len(ask), again, want)
	}
}

// Nodes that accept are grouped by what changes there, and leave room for those
// that refuse.
func TestAPreflightGroupsWhatChanges(t *testing.T) {
	var nodes []Node
	for i := range 30 {
		p := Preflight{Asked: "u", Answered: "u", Verdict: v1alpha1.PreflightAccepted, Message: fmt.Sprintf("changes maxPods: 110 -> %d", 120+i%15)}
		if i == 29 {
			p.Verdict, p.Reason, p.Message = v1alpha1.PreflightRefused, "ValidationFailed", "no"
		}

		nodes = append(nodes, Node{Name: fmt.Sprint("n", i), Preflight: p})
	}

	everyone := func(*Node) bool { return true }
	r, _, _ := Inquiry{UID: "u", Now: epoch, TakesPart: everyone}.Evaluate(epoch, nodes)
	assert.Equal(t, len(r.Groups), MaxPreflightGroups)
	assert.Equal(t, r.Groups[0].Reason, "ValidationFailed", "the refusal is not first:", r.Groups)
	assert.Equal(t, fmt.Sprintln(r.Accepted, r.Groups[1].Nodes, r.Groups[1].Message, r.Groups[1].Examples), "29 2 changes maxPods: 110 -> 120 [n0 n15]\n")
}

func TestAPreflightWithRefusalsEndsWithAWarning(t *testing.T) {
	for verdict, want := range map[v1alpha1.PreflightVerdict]bool{v1alpha1.PreflightAccepted: false, v1alpha1.PreflightRefused: true} {
		w := fleet(1)
		w.in.Spec.Strategy.Preflight = v1alpha1.PreflightReport
		w.plan()
		p := &w.node("n1").Preflight
		p.Answered, p.Verdict, p.Reason = p.Asked, verdict, "ValidationFailed"
		i := slices.IndexFunc(w.plan().Events, func(e Event) bool { return e.Reason == "PreflightComplete" })
		assert.That(t, i >= 0 && w.last.Events[i].Warning == want, "%s: the events are %+v", verdict, w.last.Events)
	}
}

// The node joined with revision 1, whose content is the target again: what was
// recorded then is no result.
func TestANodeThatJoinedWithTheContentNeedNotSoakAgain(t *testing.T) {
	for name, c := range map[string]struct {
		observation Observation
		want        State
	}{
		"it joined":     {Observation{Rollout: "workers", Revision: 1, Attempt: 1, Joined: true}, Updated},
		"it soaks":      {Observation{Rollout: "workers", Revision: 1, Attempt: 1, HealthySince: epoch}, Soaking},
		"it had failed": {Observation{Rollout: "workers", Revision: 1, Attempt: 1, Failed: 1}, Soaking},
	} {
		w := fleet(2)
		w.assigned("n1")
		w.proves("n1")
		w.node("n1").Observation = c.observation
		w.node("n2").Ready = false
		w.in.soak(time.Hour)
		w.in.Target.Number = 2
		w.now = epoch.Add(time.Minute)
		w.in.Now = w.now
		assert.Equal(t, Plan(w.in, w.nodes).States[0], c.want, name)
	}
}

// The numbers of revisions and attempts are the same in many rollouts.
func TestADrainOfAnotherRolloutIsNotContinued(t *testing.T) {
	for id, want := range map[string]State{"id-of-workers": Draining, "id-of-zone": Pending} {
		w := fleet(1)
		w.assigned() // none
		w.in.Spec.Strategy.Drain = v1alpha1.DrainAlways
		w.drains("n1", 1)
		w.node("n1").Drain.Rollout, w.node("n1").DrainReport = id, nil
		r := w.plan()
		assert.That(t, r.States[0] == want && (len(r.Next.DrainingNodes) > 0) == (want == Draining) && len(r.Taints) == 0,
			"drained by %s: %s, in %v, taints %+v", id, r.States[0], r.Next.DrainingNodes, r.Taints)
	}
}

func TestADrainedNodeIsClosedToPodsUntilItRunsTheTarget(t *testing.T) {
	for name, c := range map[string]struct {
		state  State
		happen func(d *planner, n *Node)
		want   bool
	}{
		"assigned":                {Assigned, func(_ *planner, n *Node) { n.Observed-- }, true},
		"assigned, and stopped":   {Assigned, func(d *planner, n *Node) { n.Observed--; d.Next.Halt = &v1alpha1.RolloutHalt{} }, true},
		"rejected, to be renewed": {Assigned, func(_ *planner, n *Node) { n.OK, n.Reason = "Unknown", v1alpha1.ReasonStaleAssignment }, true},
		"rejected, and stopped": {Assigned, func(d *planner, n *Node) {
			n.OK, n.Reason = "Unknown", v1alpha1.ReasonStaleAssignment
			d.Next.Halt = &v1alpha1.RolloutHalt{}
		}, false},
		"on trial and healthy":             {Trial, func(*planner, *Node) {}, false},
		"on trial, with an older answer":   {Trial, func(_ *planner, n *Node) { n.Observed-- }, true},
		"on trial, and not yet started":    {Trial, func(_ *planner, n *Node) { n.Active = nil }, true},
		"on trial and not healthy":         {Trial, func(_ *planner, n *Node) { n.OK = "Unknown" }, true},
		"on trial, and no longer to drain": {Trial, func(d *planner, n *Node) { n.OK = "Unknown"; d.in.Spec.Strategy.Drain = v1alpha1.DrainNever }, false},
		"not healthy, with something else": {Trial, func(_ *planner, n *Node) { n.OK = "Unknown"; n.Source.Content().SHA256 = "r0" }, false},
		"failed":                           {Failed, func(_ *planner, n *Node) { n.OK = "False" }, false},
	} {
		w := fleet(1)
		w.assigned("n1")
		n := w.node("n1")
		d := newPlanner(w.in, w.nodes)
		d.in.Spec.Strategy.Drain = v1alpha1.DrainAlways
		c.happen(d, n)
		assert.That(t, d.holdsTaint(n, c.state) == c.want, "%s: closed %t, want %t", name, !c.want, c.want)
	}
}

func TestARequestFromTheFutureDelaysNoPreflight(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	n := Node{Name: "n", Ready: true, HasConfig: true, Reported: true, Preflight: Preflight{Asked: "u", AskedAt: now.AddDate(174, 0, 0)}}
	q := Inquiry{
		UID: "u", Now: now, Outages: seenSince(now.Add(-time.Hour)), Timeout: 5 * time.Minute, Room: 10,
		TakesPart: func(*Node) bool { return true }, Runs: func(*Node) bool { return false }, Busy: func(*Node) bool { return false },
	}
	r, ask, _ := q.Evaluate(now.Add(-time.Hour), []Node{n})
	assert.That(t, TimeOf(r.EndTime).Equal(now) && r.Unanswered == 1 && len(ask) == 0, "%+v, asks %v", r, ask)
	assert.That(t, !n.PreflightWaits(now, 5*time.Minute), "the request uses up the room of others")
}
