package rollout

import (
	"fmt"
	"slices"
	"time"
)

// Plan decides what one rollout does next. It is called after every change and after Result.RequeueAfter. It converges: when
// its moves were made and nothing else changes, it decides to do nothing.
func Plan(p Policy, was Progress, nodes []Node) Result {
	d := &planner{p: p, was: was, next: was, nodes: nodes, states: make([]State, len(nodes)), moved: make([]bool, len(nodes)), domains: map[string]*domain{}, goingTo: counter{}}
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
	d.startup()            // what new nodes with the startup taint can expect
	d.checkDeadline()      // is the rollout stuck?
	return d.result()
}

// planner is the state of one call of Plan.
type planner struct {
	p         Policy
	was, next Progress
	nodes     []Node

	states  []State
	counts  Counts
	domains map[string]*domain
	// Of the nodes that have the target:
	assigned int     // counted by the step
	missing  int     // members that cannot get the target now
	resting  int     // of these, members under maintenance
	failures int     // counted towards the stop
	refusing int     // Blocked, and still assigned the target
	freeing  int     // Blocked, the assignment was taken back, and the agent is expected to confirm soon
	moving   int     // being rolled back
	leaving  int     // being rolled back, or waiting for it
	goingTo  counter // of leaving: the names of their destinations
	where    string  // what members run, by count, after a rollback
	used     usage

	remaining []string // nodes that still run the target although their assignment was taken back

	observations []NewObservation
	moves        []Move
	moved        []bool // by node
	events       []Event
	failed       []int
	requeueAfter time.Duration
	complete     bool
	stuck        bool
	ask          []int  // nodes to ask about the target
	asking       bool   // the preflight is not over
	waitReason   string // why no candidate moves; empty if there is none
	budgetHeld   bool   // no candidate moves, because nodes that do not answer or are not Ready hold the places of the budgets
	disruption   disruption
	window       windowState
	windowWait   bool // no progress before a window opens

	taints       []Taint
	evict        []int
	handOver     string
	drainsBegun  []string // nodes whose drain begins
	drained      []string // drained nodes that are assigned the target
	measure      []string // gates to evaluate
	waiting      []string // why gates do not let the rollout continue
	troubled     bool     // one of them failed or has no result
	held         bool     // no node is assigned the target, because of a gate
	waitsForGate bool     // the rollout does nothing else

	newcomers      map[int]bool // new nodes that get the target later
	joiningMessage string       // why new nodes wait, and what to do
	joiningStopped bool         // too many new nodes have failed
	joining        bool         // there is a revision for new nodes

	startups []Startup
}

// domain counts the nodes with one value of the topology key.
type domain struct {
	members, inFlight int
	used              usage
}

// usage is what uses up a budget.
type usage struct {
	unavailable int // nodes
	settled     int // of these: those with settledDown
	begun       int // of these: those with hasBegun
}

func (d *planner) event(warning bool, reason, format string, args ...any) {
	d.events = append(d.events, Event{Warning: warning, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// requeueAt requests another plan at a time, if that is in the future.
func (d *planner) requeueAt(t time.Time) {
	if left := t.Sub(d.p.Now); left > 0 && (d.requeueAfter == 0 || left < d.requeueAfter) {
		d.requeueAfter = left
	}
}

func (d *planner) startRevision() {
	if d.p.Target.Number == d.was.Revision {
		return
	}
	now := d.p.Now
	d.next = Progress{Revision: d.p.Target.Number, Attempt: 1, AttemptTime: now, Started: now, StepTime: now, ProgressTime: now}
	d.event(false, "RolloutStarted", "revision %d (%s) is the target", d.p.Target.Number, d.p.Target.Name)
}

func (d *planner) startAttempt() {
	r := d.p.Retry
	if r.Revision != d.next.Revision || r.Attempt <= d.next.Attempt {
		return
	}
	d.next.Attempt, d.next.AttemptTime, d.next.ProgressTime, d.next.Preflight = r.Attempt, d.p.Now, d.p.Now, nil
	d.next.Gates, d.next.GatesSince = nil, time.Time{}
	if d.next.Halt != nil {
		d.next.Halt = nil
		d.event(false, "RolloutRetried", "revision %d is retried (attempt %d)", r.Revision, r.Attempt)
	}
}

// stopped reports whether no node may get the target.
func (d *planner) stopped() bool {
	return d.next.Halt != nil || d.p.Paused || d.p.Frozen || d.p.Invalid != "" || d.asking
}

// advance moves to the current step, and checks whether the rollout is complete.
func (d *planner) advance() {
	if d.next.Revision == 0 || d.stopped() {
		return
	}
	if d.next.Succeeded || d.next.Step > len(d.p.Steps) {
		d.next.Step = len(d.p.Steps) // editing the steps of a completed rollout does not reopen it
	}
	passed := false // the gates, just now
	for d.next.Step < len(d.p.Steps) && d.stepDone(d.p.Steps[d.next.Step]) {
		if passed = d.gatesPass(); !passed {
			break
		}
		d.next.Step++
		d.next.StepTime, d.next.ProgressTime = d.p.Now, d.p.Now
		d.passStep()
	}
	d.complete = d.next.Step == len(d.p.Steps) && d.allUpdated() && (d.next.Succeeded || passed || d.gatesPass())
	if d.complete && !d.next.Succeeded {
		d.next.Succeeded = true
		d.event(false, "RolloutComplete", "revision %d is complete: %s", d.next.Revision, d.summary())
	}
}

// allUpdated reports whether no node is left to update.
func (d *planner) allUpdated() bool {
	c := d.counts
	return c.Pending+c.Assigned+c.Trial+c.Soaking+c.Blocked+c.Draining == 0 && c.Updated > 0 && (d.next.Succeeded || d.fewMissing())
}

func (d *planner) stepDone(s Step) bool {
	c := d.counts
	switch {
	case d.p.Approval.Revision == d.next.Revision && d.p.Approval.Step >= d.next.Step:
		return true
	case s.IsPause() && d.p.PassPauses: // an undo is an emergency
		return true
	case s.IsPause() && s.Pause == 0:
		return false
	case s.IsPause():
		end := d.next.StepTime.Add(s.Pause)
		d.requeueAt(end)
		return !d.p.Now.Before(end)
	}
	if c.Updated >= s.Nodes.RoundUp(c.Members) {
		return c.Updated > 0
	}
	return c.Updated > 0 && c.Pending+c.Assigned+c.Trial+c.Soaking+c.Blocked+c.Draining == 0 && d.fewMissing()
}

// fewMissing reports whether so few nodes are missing that the rollout can continue or complete without them: in any fleet,
// some nodes are down or have a silent agent. Many missing nodes are an outage or a mistake.
func (d *planner) fewMissing() bool {
	return d.missing <= max(1, d.counts.Members/10)
}

// allowed is how many nodes may have the target at this step, not counting nodes that failed or refuse it.
func (d *planner) allowed() int {
	if d.next.Step >= len(d.p.Steps) {
		return len(d.nodes)
	}
	most := 0
	for _, s := range d.p.Steps[:d.next.Step+1] {
		if !s.IsPause() {
			most = max(most, s.Nodes.RoundUp(d.counts.Members))
		}
	}
	return most
}

func (d *planner) checkDeadline() {
	now := d.p.Now
	d.windowWait = d.awaitsWindow()
	d.next.Waiting = d.stopped() || d.complete || d.pausing() || d.waitsForGate || d.counts.Members == 0 || d.windowWait
	begun := slices.ContainsFunc(d.moves, func(m Move) bool { // another offer to a Blocked node is no progress
		return (m.Kind == Assign || m.Kind == Join) && d.states[m.Node] != Blocked
	})
	if d.next.ProgressTime.IsZero() || begun || d.drainBegun() || d.was.Waiting && !d.next.Waiting || d.counts.Updated != d.was.Updated && d.next.Revision == d.was.Revision {
		d.next.ProgressTime = now
	}
	d.next.Updated = d.counts.Updated
	if d.next.Waiting || d.p.ProgressDeadline == 0 {
		return
	}
	end := d.deadline(d.next.ProgressTime, d.p.ProgressDeadline)
	d.stuck = !now.Before(end)
	d.requeueAt(end)
}

// drainBegun reports whether the drain of a node begins that was not Blocked.
func (d *planner) drainBegun() bool {
	return slices.ContainsFunc(d.taints, func(t Taint) bool { return t.Drain.Since.Equal(d.p.Now) && d.states[t.Node] != Blocked })
}

// pausing reports whether the current step is a pause.
func (d *planner) pausing() bool {
	return d.next.Step < len(d.p.Steps) && d.p.Steps[d.next.Step].IsPause()
}

// RoundUp returns the amount of all, a percentage rounded up.
func (a Amount) RoundUp(all int) int {
	if !a.Percent {
		return a.Value
	}
	return (a.Value*all + 99) / 100
}

// roundDown returns the amount of all, a percentage rounded down, but at least 1 unless it is 0%.
func (a Amount) roundDown(all int) int {
	if !a.Percent || a.Value == 0 {
		return a.Value
	}
	return max(1, a.Value*all/100)
}
