package rollout

import (
	"fmt"
	"slices"
	"time"
)

// Plan decides what one rollout does next. It is called again and again with what is observed then; with nothing changed
// it decides the same, and that is in the end: nothing.
func Plan(p Policy, was Progress, nodes []Node) Result {
	d := &planner{p: p, was: was, next: was, nodes: nodes, states: make([]State, len(nodes)), moved: make([]bool, len(nodes)), domains: map[string]*domain{}}
	d.target()             // another revision starts anew
	d.attempt()            // a retry lifts a stop, and what failed before counts no more
	d.deriveStates()       // how each node stands to the revision
	d.updateObservations() // what is to be remembered of a node
	d.checkStop()          // too many failures stop it, and so does a person
	d.advance()            // steps that are done, approved or over
	d.takeBack()           // what silent agents, or any after a stop, have not taken up
	d.goBack()             // from a revision that was stopped
	d.join()               // nodes that came later are served
	d.assign()             // the next nodes, as far as the budgets allow
	d.renew()              // what a leader before assigned, and nodes refuse because of that
	d.deadline()           // how long nothing has moved
	return d.result()
}

// planner is one call of Plan.
type planner struct {
	p         Policy
	was, next Progress
	nodes     []Node

	states  []State
	counts  Counts
	domains map[string]*domain
	// Of the nodes that have the target:
	assigned int // those whose step counts them
	missing  int // members that cannot be given it now
	failures int // those that count towards the stop
	refusing int // Blocked, and the assignment still stands
	freeing  int // from which it was taken back because they refused it, and whose agents are about to answer
	moving   int // on their way back
	leaving  int // to go back, or on their way

	remaining []string // that run the target although they were taken off it

	observations []NewObservation
	moves        []Move
	moved        []bool // which nodes move
	events       []Event
	failed       []int
	requeueAfter time.Duration
	complete     bool
	stuck        bool
	waitReason   string // why no candidate moves, if there are any

	newcomers      map[int]bool // nodes that are to join with the target, and are not given it now
	joiningMessage string       // why nodes that join are not served, and what to do
	joiningStopped bool         // too many of those that joined have failed
}

// domain is the nodes of one value of the topology key.
type domain struct {
	members, unavailable, inFlight int
}

func (d *planner) event(warning bool, reason, format string, args ...any) {
	d.events = append(d.events, Event{Warning: warning, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// at has Plan called again at a time, if that is to come.
func (d *planner) requeueAt(t time.Time) {
	if left := t.Sub(d.p.Now); left > 0 && (d.requeueAfter == 0 || left < d.requeueAfter) {
		d.requeueAfter = left
	}
}

func (d *planner) target() {
	if d.p.Target.Number == d.was.Revision {
		return
	}
	now := d.p.Now
	d.next = Progress{Revision: d.p.Target.Number, Attempt: 1, AttemptTime: now, Started: now, StepTime: now, ProgressTime: now}
	d.event(false, "RolloutStarted", "revision %d (%s) is the target", d.p.Target.Number, d.p.Target.Name)
}

func (d *planner) attempt() {
	r := d.p.Retry
	if r.Revision != d.next.Revision || r.Attempt <= d.next.Attempt {
		return
	}
	d.next.Attempt, d.next.AttemptTime, d.next.ProgressTime = r.Attempt, d.p.Now, d.p.Now
	if d.next.Halt != nil {
		d.next.Halt = nil
		d.event(false, "RolloutRetried", "revision %d is tried again (attempt %d)", r.Revision, r.Attempt)
	}
}

// stopped tells whether nothing may move forward.
func (d *planner) stopped() bool {
	return d.next.Halt != nil || d.p.Paused || d.p.Frozen || d.p.Invalid != ""
}

// advance goes on to the step that the rollout is in.
func (d *planner) advance() {
	if d.next.Revision == 0 || d.stopped() {
		return
	}
	if d.next.Succeeded || d.next.Step > len(d.p.Steps) {
		d.next.Step = len(d.p.Steps) // whoever edits the steps of what is done does not undo it
	}
	for d.next.Step < len(d.p.Steps) && d.stepDone(d.p.Steps[d.next.Step]) {
		d.next.Step++
		d.next.StepTime, d.next.ProgressTime = d.p.Now, d.p.Now
	}
	c := d.counts
	d.complete = d.next.Step == len(d.p.Steps) && c.Pending+c.Assigned+c.Trial+c.Soaking+c.Blocked == 0 && c.Updated > 0 &&
		(d.next.Succeeded || d.fewMissing())
	if d.complete && !d.next.Succeeded {
		d.next.Succeeded = true
		d.event(false, "RolloutComplete", "revision %d is complete: %s", d.next.Revision, d.summary())
	}
}

func (d *planner) stepDone(s Step) bool {
	c := d.counts
	switch {
	case d.p.Approval.Revision == d.next.Revision && d.p.Approval.Step >= d.next.Step:
		return true
	case s.IsPause() && s.Pause == 0:
		return false
	case s.IsPause():
		end := d.next.StepTime.Add(s.Pause)
		d.requeueAt(end)
		return !d.p.Now.Before(end)
	}
	if c.Updated >= s.Nodes.roundUp(c.Members) {
		return c.Updated > 0
	}
	return c.Updated > 0 && c.Pending+c.Assigned+c.Trial+c.Soaking+c.Blocked == 0 && d.fewMissing()
}

// tolerable tells whether so few nodes are missing that the rollout can go on, or be complete, without them: a node more
// or less is always down, or has a silent agent. Many of them are an outage, or a mistake.
func (d *planner) fewMissing() bool {
	return d.missing <= max(1, d.counts.Members/10)
}

// allowed is how many nodes may have the target by now, besides those on which it failed and those that refuse it.
func (d *planner) allowed() int {
	if d.next.Step >= len(d.p.Steps) {
		return len(d.nodes)
	}
	most := 0
	for _, s := range d.p.Steps[:d.next.Step+1] {
		if !s.IsPause() {
			most = max(most, s.Nodes.roundUp(d.counts.Members))
		}
	}
	return most
}

func (d *planner) deadline() {
	now := d.p.Now
	d.next.Waiting = d.stopped() || d.complete || d.pausing() || d.counts.Members == 0
	begun := slices.ContainsFunc(d.moves, func(m Move) bool { // another offer gets nobody on
		return (m.Kind == Assign || m.Kind == Join) && d.states[m.Node] != Blocked
	})
	if d.next.ProgressTime.IsZero() || begun || d.was.Waiting && !d.next.Waiting || d.counts.Updated != d.was.Updated && d.next.Revision == d.was.Revision {
		d.next.ProgressTime = now
	}
	d.next.Updated = d.counts.Updated
	if d.next.Waiting || d.p.ProgressDeadline == 0 {
		return
	}
	end := d.since(d.next.ProgressTime).Add(d.p.ProgressDeadline)
	d.stuck = !now.Before(end)
	d.requeueAt(end)
}

// pausing tells whether the rollout is in a pause.
func (d *planner) pausing() bool {
	return d.next.Step < len(d.p.Steps) && d.p.Steps[d.next.Step].IsPause()
}

// up is the amount of all, rounded up; at least 1 unless it is nothing.
func (a Amount) roundUp(all int) int {
	if !a.Percent {
		return a.Value
	}
	return (a.Value*all + 99) / 100
}

// down is the amount of all, rounded down, but at least 1 unless it is nothing.
func (a Amount) roundDown(all int) int {
	if !a.Percent || a.Value == 0 {
		return a.Value
	}
	return max(1, a.Value*all/100)
}
