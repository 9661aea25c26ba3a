// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"time"
)

// Schedule is when a window opens. Times are at least a minute apart.
type Schedule interface {
	// Next returns the first time after t at which the window opens; zero: it
	// does not open within years.
	Next(t time.Time) time.Time
}

// Window is a time that repeats, at which nodes may be assigned the target.
type Window struct {
	Schedule Schedule
	Duration time.Duration
	Within   bool // an assignment is allowed only if the trial can end while a window is open
}

const (
	// windowView is how far into the future the end of open windows is looked
	// for. Then the rollout is planned again.
	windowView = 24 * time.Hour
	// maxOpenings limits how many openings are tried to find one that lasts
	// long enough.
	maxOpenings = 500
)

// windowState is what the windows of a rollout allow at the time of a plan.
type windowState struct {
	closed bool      // the target may not be assigned
	short  bool      // a window is open, but the trial cannot end in it
	ends   time.Time // of an assignment that may be made: no later; zero: it is closed
	next   time.Time // when the target may be assigned again; zero: it may be now, or no such time was found
	tried  time.Time // if none was found: the search ended at this time; zero: no window ever opens again
}

// checkWindows finds out whether the windows allow assignments now.
func (d *planner) checkWindows() {
	if len(d.in.Windows) == 0 {
		return
	}

	d.in.learnTrial(d.nodes)
	d.window = d.in.windowsAt(d.in.Now)
}

// windowsAt returns what the windows allow at a time. Assignments are allowed
// until an instant that does not move before a window opens or closes, so it is
// enough to plan again then.
func (in *Input) windowsAt(now time.Time) windowState {
	if until := in.assignableUntil(now); now.Before(until) {
		return windowState{ends: until}
	}

	s := windowState{closed: true, short: in.open(now)}
	at := now
	for range maxOpenings {
		if at = in.nextOpening(at); at.IsZero() {
			return s
		}

		if at.Before(in.assignableUntil(at)) {
			s.next = at
			return s
		}
	}

	s.tried = at

	return s
}

// nextOpening returns when a window opens next after a time; zero: none does.
func (in *Input) nextOpening(t time.Time) time.Time {
	var first time.Time
	for _, w := range in.Windows {
		if at := w.Schedule.Next(t); !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}

	return first
}

// learnTrial sets the length of a trial that nothing sets to what the nodes
// use: to the median of those that say so, so that a single node cannot close
// the windows for all others.
func (in *Input) learnTrial(nodes []Node) {
	if !in.AnyTrial {
		return
	}

	var known []time.Duration
	for i := range nodes {
		if t := nodes[i].DefaultTrial; t > 0 {
			known = append(known, t)
		}
	}

	if len(known) > 0 {
		slices.Sort(known)
		in.Trial = known[len(known)/2]
	}
}

// trialTime is how long a node takes from its assignment to the end of the
// trial, at most, if it is healthy.
func (in *Input) trialTime() time.Duration { return in.Controller.AgentTimeout.Duration + in.Trial }

// assignableUntil returns when the target may no longer be assigned if nothing
// opens in between, at most windowView from a time; a time that is not later if
// it may not be assigned at the given time.
func (in *Input) assignableUntil(t time.Time) time.Time {
	var until time.Time
	for _, w := range in.Windows {
		opened := w.lastOpening(t)
		if opened.IsZero() {
			continue
		}

		end := opened.Add(w.Duration)
		if w.Within {
			end = in.openUntil(t, t.Add(windowView+in.trialTime())).Add(-in.trialTime())
		}

		until = Latest(until, end)
	}

	return until
}

// openUntil returns when all windows are closed after a time, but no time after
// the limit; the time itself if no window is open. Windows that overlap or
// touch count as one.
func (in *Input) openUntil(t, limit time.Time) time.Time {
	for grown := true; grown && t.Before(limit); {
		grown = false
		for _, w := range in.Windows {
			if opened := w.lastOpening(t); !opened.IsZero() {
				t, grown = opened.Add(w.Duration), true
			}
		}
	}

	if t.After(limit) {
		return limit
	}

	return t
}

// within reports whether trials must end within the windows. Drains that have
// begun are then given up at the end of a window; else they are finished.
func (in *Input) within() bool {
	return slices.ContainsFunc(in.Windows, func(w Window) bool { return w.Within })
}

// open reports whether a window is open.
func (in *Input) open(t time.Time) bool {
	return slices.ContainsFunc(in.Windows, func(w Window) bool { return !w.lastOpening(t).IsZero() })
}

// lastOpening returns when the window that is open at a time was opened last;
// zero if it is closed.
func (w *Window) lastOpening(t time.Time) time.Time {
	next := func(after time.Time) (time.Time, bool) {
		at := w.Schedule.Next(after)
		return at, !at.IsZero() && !at.After(t)
	}
	last, open := next(t.Add(-w.Duration))
	if !open {
		return time.Time{}
	}

	if later, is := next(last); is { // the window opens again while it is open
		last = later
		for end := t; end.Sub(last) >= time.Minute; { // no opening after end
			middle := last.Add(end.Sub(last) / 2)
			if later, is := next(middle); is {
				last = later
			} else {
				end = middle
			}
		}
	}

	return last
}

// closed reports whether the target may not be assigned now.
func (d *planner) closed() bool { return d.window.closed }

// leaveWindow takes assignments back from nodes that would restart for them
// outside of the windows: those that refuse them because of their pods, and
// those that rejected them because an earlier leader made them. Nodes in
// progress finish, and a silent agent gets no more than AgentTimeout at any
// time.
func (d *planner) leaveWindow() {
	if !d.closed() || d.in.Spec.Frozen || d.Next.Halt != nil {
		return
	}

	for i := range d.nodes {
		n, s := &d.nodes[i], d.States[i]
		waits := s == Pending || s == Assigned || s == Blocked || s == Skipped && n.Maintenance != ""
		if d.moved[i] || !waits || !isConfigMap(n.Source) || n.Source.By().Name != d.in.Name || n.joined() ||
			n.Source.Content().SHA256 == d.lastGood().ConfigMapRef.SHA256 || n.Active.Digest() == n.Source.Content().SHA256 {
			continue
		}

		switch to := d.previousSource(n); {
		case to.Content().SHA256 == n.Source.Content().SHA256: // nothing would change
		case n.refuses():
			d.takeBackBlocked(i, n.Reason, n.Error)
		case n.stale():
			d.unassign(i, TakeBack, to, false)
		}
	}
}

// awaitsWindow reports whether the rollout waits for a window. It plans again
// when the windows change.
func (d *planner) awaitsWindow() bool {
	c, w := &d.Counts, &d.window
	if len(d.in.Windows) == 0 || d.in.Target.Number == 0 || d.stopped() || d.complete || c.Members == 0 {
		return false
	}

	for _, t := range []time.Time{w.ends, w.next, w.tried} {
		d.requeueAt(t)
	}

	return w.closed && !d.pausing() && (c.Pending+c.Blocked > 0 || c.Assigned+c.Trial+c.Soaking+c.Draining == 0)
}

// nextWindow returns when the target may be assigned again; zero if it may be
// now, or if that will not happen.
func (d *planner) nextWindow() time.Time {
	if d.complete || d.Next.Halt != nil || d.in.Invalid != "" || d.in.Target.Number == 0 {
		return time.Time{}
	}

	return d.window.next
}

// windowMessage says what the rollout waits for.
func (d *planner) windowMessage() string {
	w, trial := &d.window, fmt.Sprintf("a trial of %s that begins within %s", d.in.Trial, d.in.Controller.AgentTimeout.Duration)
	what := "no window is open"
	if w.short {
		what = trial + " cannot end before the window closes"
	}

	switch {
	case !w.next.IsZero():
		return fmt.Sprintf("%s: waiting until %s", what, w.next.UTC().Format(time.RFC3339))
	case !w.tried.IsZero():
		return fmt.Sprintf("no window until %s is open long enough for %s: lengthen spec.strategy.windows, shorten spec.trial, or set finish: "+
			"Anytime", w.tried.UTC().Format(time.RFC3339), trial)
	}

	return "no window opens again: correct spec.strategy.windows"
}
