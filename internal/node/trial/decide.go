package trial

import (
	"fmt"
	"slices"
)

// Decide says which configuration this node runs next, and why. It is pure: no
// I/O, no clock, no randomness.
//
// Deciding again with the same inputs, no time elapsed and the action carried
// out changes nothing.
func Decide(s State, o Observed) Decision {
	d := &decider{next: s.clone(), o: o}
	for _, step := range steps {
		if !step(d) {
			break
		}
	}
	return d.decision()
}

// steps is the whole decision, in order. A step returns false when nothing
// after it can be decided yet.
var steps = []func(*decider) bool{
	(*decider).forgetRequested,  // what an operator wants forgotten first, so that it counts in all that follows
	(*decider).updateRevoked,    // then what must never run here
	(*decider).recoverFromCrash, // complete a transition that a crash interrupted
	(*decider).checkLocal,       // local must be valid at every start, whatever is assigned
	(*decider).updateClocks,     // add up what was observed since the last decision
	(*decider).handleExit,       // an exit counts before anything is said about health
	(*decider).judge,            // pass, fail or go on with the trial
	(*decider).adopt,            // take up a new assignment
	(*decider).chooseConfig,     // what must run now
	(*decider).chooseAction,     // how to get there
}

type decider struct {
	next       State
	o          Observed
	starting   bool // this agent has not started a kubelet yet
	trialBegan bool // a trial begins with this decision
	action     Action
	toValidate []Config
	events     []Event
	blocked    blocker // why the intended configuration does not run, although it is not bad
	choice     Config
	startCause Cause
}

func (d *decider) decision() Decision {
	d.next.Run.Outage, d.next.Run.ClocksPaused = d.outage(), d.clocksPaused()
	s := d.next
	dec := Decision{Next: s, Action: d.action, Validate: d.toValidate, Events: d.events}
	if d.action.Kind == Refuse {
		cause := fmt.Sprintf("failed to validate local (%s)", d.o.Local)
		dec.Status = Status{
			LastKnownGood: s.LastKnownGood, Local: d.o.Local, Bad: s.Bad, Error: cause + ": " + d.action.Words,
			Condition: Condition{"False", reasonLocalInvalid, "no kubelet runs", cause},
		}
		return dec
	}
	dec.Watch = s.Trial != nil || d.blocked.pods
	dec.Wake = d.nextWake()
	if len(d.toValidate) == 0 {
		dec.Status = d.status()
	}
	return dec
}

func (d *decider) forgetRequested() bool {
	for _, revision := range d.o.Forget {
		n := len(d.next.Bad)
		d.next.Bad = slices.DeleteFunc(d.next.Bad, func(b BadConfig) bool { return b.Revision == revision })
		if len(d.next.Bad) < n {
			d.event(false, eventForgotten, "%s is no longer held to be bad, by request", labelUID(revision, d.o.Local))
		}
		if d.next.Trial != nil && d.next.Trial.Revision == revision {
			d.endTrial()
		}
	}
	return true
}

func (d *decider) updateRevoked() bool {
	if d.o.Revoked != nil {
		d.next.Revoked = slices.Clone(*d.o.Revoked)
	}
	return true
}

// settle makes the records agree after a crash between two of them.
func (d *decider) recoverFromCrash() bool {
	s := &d.next
	d.starting = !s.Run.Started
	b, bad := s.BadEntry(s.Current.Config)
	good := s.LastKnownGood.Same(s.Current.Config)
	if s.Trial != nil && (s.Trial.Revision != s.Current.Revision || good && d.isPromotedOn(s.Current.Config, s.Trial.Local) || bad && !b.Provisional) {
		d.endTrial()
	}
	if s.Trial != nil && s.Trial.Terms == (Terms{}) { // the record is of an agent that did not keep them
		d.editTrial(func(t *Trial) { t.Terms = d.terms(s.Current.Asked) })
	}
	unclean := d.rebooted()
	if !s.Current.IsLocal() && !good && !d.forbidden(s.Current.Config) && d.sameContentAsGood(s.Current.Config) {
		s.LastKnownGood, good = Record{s.Current.Config, d.o.Now}, true
		d.endTrial()
	}
	switch {
	case d.needsTrial():
		d.beginTrial()
	case unclean && !d.forbidden(s.Current.Config):
		s.Run.LastExit = "the node went down without a clean shutdown"
		d.editTrial(func(t *Trial) { t.LongestUptime = stableAfter }) // nobody knows how long it lived
		d.countCrash()
	}
	return true
}

// rebooted takes note of another boot, and tells whether the one before ended
// without a clean shutdown while the configuration on trial ran.
func (d *decider) rebooted() bool {
	t := d.next.Trial
	if t == nil || t.BootID == d.o.BootID {
		return false
	}
	d.editTrial(func(t *Trial) { t.BootID, t.Clean = d.o.BootID, true }) // nothing runs yet
	if t.BootID == "" || d.o.BootID == "" {
		return false // nobody knows whether it is another
	}
	return !t.Clean
}

// forbidden tells whether c must not run, whatever the dry run says.
func (d *decider) forbidden(c Config) bool {
	_, bad := d.next.BadEntry(c)
	return bad || d.next.IsRevoked(c)
}

func (d *decider) event(warning bool, reason, format string, args ...any) {
	d.events = append(d.events, Event{Warning: warning, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

func (s State) clone() State {
	s.Revoked = slices.Clone(s.Revoked)
	s.Bad = slices.Clone(s.Bad)
	s.Startups = slices.Clone(s.Startups)
	s.Promoted = slices.Clone(s.Promoted)
	return s
}
