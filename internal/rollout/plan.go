// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// Plan decides what one rollout does next. It is called after every change and
// after Result.RequeueAfter. It converges: when its moves were made and nothing
// else changes, it decides to do nothing.
func Plan(in Input, nodes []Node) Result {
	d := newPlanner(in, nodes)
	d.startRevision()      // a new target starts with empty progress
	d.startAttempt()       // a retry lifts a stop; earlier failures no longer count
	d.checkWindows()       // may the target be assigned now?
	d.deriveStates()       // the state of each node
	d.updateObservations() // what the next plans need to know about nodes
	d.checkStop()          // too many failures stop the revision, and so does a person
	d.checkGates()         // and so does a metric
	d.preflight()          // ask all nodes about the target before the first assignment
	d.advance()            // past steps that are done or approved, and whose gates pass
	d.askGates()           // which metrics are due, and which ones the rollout waits for
	d.takeBack()           // assignments that agents have not accepted
	d.leaveWindow()        // assignments that would restart a node outside of the windows
	d.goBack()             // roll back nodes from a stopped revision
	d.join()               // assign a revision to new nodes
	d.drainRefusing()      // begin to drain nodes that refuse the target
	d.assign()             // assign the target to the next nodes, or begin to drain them, within the budgets
	d.drain()              // evict pods, give up, and release nodes
	d.renew()              // assignments of earlier leaders that agents reject
	d.startProbes()        // start and stop a pod on nodes that run the target
	d.startup()            // what new nodes with the startup taint can expect
	d.checkDeadline()      // is the rollout stuck?

	return d.result()
}

// planner is the state of one call of Plan. Each group of fields names the step
// that writes it; later steps read it.
type planner struct {
	in         Input   // newPlanner; checkWindows sets Trial
	nodes      []Node  // newPlanner
	Result             // what the caller is to do: every step adds to it
	moved      []bool  // by node: with Moves
	progress           // startRevision, startAttempt, and the steps that it names
	census             // deriveStates; the steps that move nodes keep it up to date
	gates      gating  // askGates; assign sets onlyGates if nothing else moves
	back       retreat // deriveStates counts, goBack continues, describe words it
	joins      joining // join
	drains     draining
	probes     tally         // startProbes: nodes whose probe has no result
	window     windowState   // checkWindows
	disruption disruption    // assign
	planes     controlPlanes // goBack, join, assign, renew
	waiting
}

// progress is how far the target is.
type progress struct {
	succeeded bool // startRevision, advance: all nodes had proven the target once
	complete  bool // advance: and they do now
	asking    bool // preflight: it is not over
}

// census is what the nodes are, for the steps after deriveStates.
type census struct {
	domains map[string]*domain // countMove
	used    usage              // countMove
	// Of the nodes that have the target:
	assigned int32 // counted by the step; join adds nodes
	missing  int32 // members that cannot get the target now
	resting  int32 // of these, members under maintenance
	failures int32 // counted towards the stop
	refusing int32 // Blocked, and still assigned the target; drainRefusing takes nodes away
	failed   []int // the first failed nodes
	freeing  int32 // Blocked, the assignment was taken back, and the agent is expected to confirm soon
}

// gating is what gates keep from happening.
type gating struct {
	reasons   []string // why they do not let the rollout continue
	troubled  bool     // one of them failed or has no result
	held      bool     // no node is assigned the target
	onlyGates bool     // the rollout waits for nothing else
}

// retreat is a rollback.
type retreat struct {
	moving    int32    // nodes being rolled back
	leaving   int32    // goBack: these, and those that wait for it
	goingTo   counter  // of leaving: the names of their destinations
	remaining []string // goBack: nodes that still run the target although their assignment was taken back
	where     string   // describe: what members run, by count, after it
}

// joining is what new nodes can expect.
type joining struct {
	newcomers map[int]bool // new nodes that get a revision later; true: the target
	message   string       // why they wait, and what to do
	stopped   bool         // too many of them have failed
	possible  bool         // there is a revision for them
}

// draining is what happens to nodes that are drained.
type draining struct {
	begun []string // drainRefusing, assign: nodes whose drain begins
	done  []string // drain: drained nodes that are assigned the target
}

// tally counts nodes, and says why the first of them counts.
type tally struct {
	count int
	why   string
}

func (t *tally) add(why string) {
	if t.count++; t.count == 1 {
		t.why = why
	}
}

// waiting is why nothing moves.
type waiting struct {
	waitReason string // assign: why no candidate moves; empty if there is none
	budgetHeld bool   // assign: because nodes that do not answer or are not Ready hold the places of the budgets
	windowWait bool   // checkDeadline: no progress before a window opens
	stuck      bool   // checkDeadline
}

func newPlanner(in Input, nodes []Node) *planner {
	d := &planner{in: in, nodes: nodes}
	in.Status.DeepCopyInto(&d.Next)
	d.Next.Step = max(0, d.Next.Step)
	d.States, d.moved, d.Observations = make([]State, len(nodes)), make([]bool, len(nodes)), map[int]Observation{}
	d.domains, d.back.goingTo = map[string]*domain{}, counter{}

	return d
}

// domain counts the nodes with one value of the topology key.
type domain struct {
	members, inFlight int32
	used              usage
}

// usage is what uses up a budget.
type usage struct {
	unavailable int32 // nodes
	settled     int32 // of these: those with settledDown
	begun       int32 // of these: those with hasBegun
}

func (d *planner) event(warning bool, reason, format string, args ...any) {
	d.Events = append(d.Events, Event{Warning: warning, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// requeueAt requests another plan at a time, if that is in the future.
func (d *planner) requeueAt(t time.Time) {
	if left := t.Sub(d.in.Now); left > 0 && (d.RequeueAfter == 0 || left < d.RequeueAfter) {
		d.RequeueAfter = left
	}
}

// before reports whether a time is in the future, and requests another plan
// then.
func (d *planner) before(t time.Time) bool {
	d.requeueAt(t)
	return d.in.Now.Before(t)
}

func (d *planner) startRevision() {
	t, next := &d.in.Target, &d.Next
	if t.Number == d.in.Status.Target() {
		d.succeeded = next.CurrentRevision != nil && next.CurrentRevision.Number == t.Number && t.Number != 0
		d.GatesSince = d.in.GatesSince
		return
	}

	d.recordSuperseded()
	now := apiTime(d.in.Now)
	next.Attempt, next.AttemptTime, next.StartTime, next.Step, next.StepTime, next.ProgressTime = 1, now, now, 0, now, now
	next.Halt, next.Preflight, next.Gates, next.Nodes.Updated = nil, nil, nil, 0
	d.event(false, "RolloutStarted", "revision %d (%s) is the target", t.Number, t.ConfigMapRef.Name)
}

func (d *planner) startAttempt() {
	r := d.in.Spec.Retry
	if r == nil || r.Revision != d.in.Target.Number || r.Attempt <= d.Next.Attempt {
		return
	}

	now := apiTime(d.in.Now)
	d.Next.Attempt, d.Next.AttemptTime, d.Next.ProgressTime, d.Next.Preflight = r.Attempt, now, now, nil
	d.Next.Gates, d.GatesSince = nil, time.Time{}
	if d.Next.Halt != nil {
		d.Next.Halt = nil
		d.event(false, "RolloutRetried", "revision %d is retried (attempt %d)", r.Revision, r.Attempt)
	}
}

// stopped reports whether no node may get the target.
func (d *planner) stopped() bool {
	return d.Next.Halt != nil || d.in.Spec.Paused || d.in.Spec.Frozen || d.in.Invalid != "" || d.asking
}

// lastStep is the number of steps. Status.Step is it when all are done.
func (d *planner) lastStep() int32 { return int32(len(d.in.Spec.Strategy.Steps)) }

// step returns the current step; nil after the last one.
func (d *planner) step() *v1alpha1.RolloutStep {
	if d.Next.Step >= d.lastStep() {
		return nil
	}

	return &d.in.Spec.Strategy.Steps[d.Next.Step]
}

// advance moves to the current step, and checks whether the rollout is
// complete.
func (d *planner) advance() {
	if d.in.Target.Number == 0 || d.stopped() {
		return
	}
	if d.succeeded || d.Next.Step > d.lastStep() {
		d.Next.Step = d.lastStep() // editing the steps of a completed rollout does not reopen it
	}

	passed := false // the gates, just now
	for s := d.step(); s != nil && d.stepDone(s); s = d.step() {
		if passed = d.gatesPass(); !passed {
			break
		}

		d.Next.Step++
		d.Next.StepTime, d.Next.ProgressTime = apiTime(d.in.Now), apiTime(d.in.Now)
		d.GatesSince = time.Time{}
		for i := range d.Next.Gates {
			d.Next.Gates[i].Step = d.Next.Step
		}
	}

	d.complete = d.step() == nil && d.allUpdated() && (d.succeeded || passed || d.gatesPass())
	if d.complete && !d.succeeded {
		d.succeeded = true
		d.event(false, "RolloutComplete", "revision %d is complete: %s", d.in.Target.Number, d.summary())
	}
}

// left counts the nodes that are yet to be updated.
func (c *Counts) left() int32 {
	return c.Pending + c.Assigned + c.Trial + c.Soaking + c.Blocked + c.Draining
}

// allUpdated reports whether no node is left to update.
func (d *planner) allUpdated() bool {
	return d.Counts.left() == 0 && d.Counts.Updated > 0 && (d.succeeded || d.fewMissing())
}

func (d *planner) stepDone(s *v1alpha1.RolloutStep) bool {
	a, c := d.in.Spec.Approval, &d.Counts
	switch {
	case a != nil && a.Revision == d.in.Target.Number && a.Step >= d.Next.Step:
		return true
	case s.Pause != nil && d.in.PassPauses: // an undo is an emergency
		return true
	case approves(s):
		return false
	case s.Pause != nil:
		return !d.before(d.pauseEnds(s))
	case c.Updated >= RoundUp(s.Nodes, c.Members):
		return c.Updated > 0
	}

	return c.Updated > 0 && c.left() == 0 && d.fewMissing()
}

func (d *planner) pauseEnds(s *v1alpha1.RolloutStep) time.Time {
	return TimeOf(d.Next.StepTime).Add(s.Pause.Duration.Duration)
}

// fewMissing reports whether so few nodes are missing that the rollout can
// continue or complete without them: in any fleet, some nodes are down or have
// a silent agent. Many missing nodes are an outage or a mistake.
func (d *planner) fewMissing() bool {
	return d.missing <= max(1, d.Counts.Members/10)
}

// allowed is how many nodes may have the target at this step, not counting
// nodes that failed or refuse it.
func (d *planner) allowed() int32 {
	if d.step() == nil {
		return int32(len(d.nodes))
	}

	most := int32(0)
	for _, s := range d.in.Spec.Strategy.Steps[:d.Next.Step+1] {
		most = max(most, RoundUp(s.Nodes, d.Counts.Members))
	}

	return most
}

// waits reports whether a rollout in this phase makes no progress by itself: it
// is complete, or waits for a person or a time.
func waits(p v1alpha1.RolloutPhase) bool {
	return p != "" && p != v1alpha1.RolloutProgressing && p != v1alpha1.RolloutStuck
}

func (d *planner) checkDeadline() {
	was := &d.in.Status
	d.windowWait = d.awaitsWindow()
	waiting := d.stopped() || d.complete || d.pausing() || d.gates.onlyGates || d.Counts.Members == 0 || d.windowWait
	begun := slices.ContainsFunc(d.Moves, func(m Move) bool { // another offer to a Blocked node is no progress
		return (m.Kind == Assign || m.Kind == Join) && d.States[m.Node] != Blocked
	})
	if d.Next.ProgressTime.IsZero() || begun || d.drainBegun() || waits(was.Phase) && !waiting ||
		d.Counts.Updated != was.Nodes.Updated && d.in.Target.Number == d.in.Status.Target() {
		d.Next.ProgressTime = apiTime(d.in.Now)
	}

	length := seconds(d.in.Spec.ProgressDeadlineSeconds)
	if waiting || length == 0 {
		return
	}

	d.stuck = !d.before(d.deadline(TimeOf(d.Next.ProgressTime), length))
}

// drainBegun reports whether the drain of a node begins that was not Blocked.
func (d *planner) drainBegun() bool {
	return slices.ContainsFunc(d.Taints, func(t Taint) bool { return t.Drain.Since.Equal(d.in.Now) && d.States[t.Node] != Blocked })
}

// pausing reports whether the current step is a pause.
func (d *planner) pausing() bool { return d.step() != nil && d.step().Pause != nil }

// rollsBack reports whether a revision that is stopped is rolled back.
func (d *planner) rollsBack() bool {
	return d.in.Spec.FailurePolicy.Action == v1alpha1.FailureActionRollback
}
