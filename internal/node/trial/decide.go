// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// Decide returns which configuration this node runs next, and why. It is pure:
// no I/O, no clock, no randomness.
//
// Called again with the same inputs after the action was carried out, with no
// time elapsed, Decide changes nothing.
//
// The pod guard is asked last: Decide returns nothing but a question if a
// restart for a change depends on the answer.
func Decide(s State, o Observed) Decision {
	o.Now = o.Now.UTC() // as it is recorded
	d := decide(s, o)
	switch q := d.adoption(s, o); {
	case q == nil:
		return d
	case o.Guard == nil || o.Guard.Adoption != *q:
		return Decision{Next: s, Ask: q}
	case o.Guard.Refusal.Outcome != NotValidated:
		o.Verdicts = maps.Clone(o.Verdicts)
		o.Verdicts[q.Config.Revision] = o.Guard.Refusal
		d = decide(s, o)
		d.Refused = true

		return d
	}

	// The baseline of the trial: a pod that has ended since the dry run is not
	// lost. Node.Failing is from the dry run: a pod that has failed since then
	// fails with last-known-good too, and a verdict is withdrawn.
	o.Node.Pods = o.Guard.Pods

	return decide(s, o)
}

// adoption returns the restart that the pod guard must permit, nil if there is
// none. Rollbacks and restarts after a crash are never refused, nor is a return
// to the local configuration from one that is on trial.
func (d Decision) adoption(s State, o Observed) *Adoption {
	c, cause := d.Action.Config, d.Action.Cause
	adopts := cause == CauseChange || cause == CauseBoot && !d.Next.Current.Same(s.Current.Config)
	if !adopts || c.IsLocal() && (s.Trial != nil || !o.Child.Healthy) {
		return nil
	}

	in := o.Intent.Config

	return &Adoption{Config: c, Attempt: in.Rollout.Attempt, AllowPodLoss: in.RequestedTerms.AllowPodLoss}
}

func decide(s State, o Observed) Decision {
	d := &decider{next: s.clone(), o: o}
	for _, step := range steps {
		if !step(d) {
			break
		}
	}

	return d.decision()
}

// steps are the decision, in order. A step returns false if the later steps
// cannot be decided yet.
var steps = []func(*decider) bool{
	(*decider).forgetRequested,  // requests to forget first: all later steps must see their effect
	(*decider).updateRevoked,    // then the list of revisions that must never run here
	(*decider).recoverFromCrash, // complete a transition that a crash interrupted
	(*decider).checkLocal,       // local must be valid at every start, whatever is assigned
	(*decider).updateClocks,     // add the time since the last decision
	(*decider).handleExit,       // an exit counts before health is judged
	(*decider).updateStarts,     // which pods the node could start, and which it could not
	(*decider).judge,            // pass, fail or continue the trial
	(*decider).adopt,            // adopt a new assignment
	(*decider).endTemporary,     // return when the time of a temporary assignment is over
	(*decider).chooseConfig,     // choose what must run now
	(*decider).chooseAction,     // and how to get there
	(*decider).recordStarts,     // a trial that began without a restart has started pods already
	(*decider).confirmVerdicts,  // last: what runs then may prove earlier verdicts
}

type decider struct {
	next        State
	o           Observed
	starting    bool      // this agent has not started a kubelet yet
	trialBegan  bool      // a trial begins with this decision
	replaced    *Baseline // of the trial that this decision ended; nil: none
	unexplained bool      // the pods were lost for an unknown reason, so that the verdict is provisional
	action      Action
	toValidate  []Config
	events      []Event
	blocked     blocker // why the intended configuration does not run, although it is not bad
	choice      Config
	startCause  Cause
}

func (d *decider) decision() Decision {
	d.next.Run.Outage, d.next.Run.ClocksPaused = d.outage(), d.clocksPaused()
	s := d.next
	dec := Decision{Next: s, Action: d.action, Validate: d.toValidate, Events: d.events}
	if d.action.Kind == Refuse {
		cause := "failed to validate local " + d.localLabel()
		dec.Status = Status{
			LastKnownGood: s.LastKnownGood, Local: d.o.Local, Bad: s.Bad, Error: cause + ": " + d.action.Message,
			Condition: Condition{metav1.ConditionFalse, v1alpha1.ReasonLocalInvalid, "no kubelet runs", cause},
		}

		return dec
	}

	refuses := d.o.Node.RefusedUnseen || len(d.o.Node.Refused) > 0
	dec.Watch = s.Trial != nil || d.isDoubted() || d.blocked.pods || s.Run.AfterTrial > 0 && refuses
	dec.Wake = d.nextWake()
	if len(d.toValidate) == 0 {
		dec.Status = d.status()
	}

	return dec
}

func (d *decider) forgetRequested() bool {
	for _, revision := range d.o.Forget {
		if i := slices.IndexFunc(d.next.Bad, func(b BadConfig) bool { return b.Revision == revision }); i >= 0 {
			d.event(false, eventForgotten, "%s is no longer marked as bad: an operator requested it", d.next.Bad[i].UIDLabel())
			d.next.Bad = slices.Delete(d.next.Bad, i, i+1)
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

// recoverFromCrash makes current, last-known-good and the trial agree again
// after a crash between two writes.
func (d *decider) recoverFromCrash() bool {
	s := &d.next
	d.starting = !s.Run.Started
	b, bad := s.BadEntry(s.Current.Config)
	good := s.LastKnownGood.Same(s.Current.Config)
	if s.Trial != nil && (s.Trial.Revision != s.Current.Revision || good && d.isPromotedOn(s.Current.Config, s.Trial.Local) ||
		bad && !b.Provisional) {
		d.endTrial()
		d.replaced = nil // it may be of long ago
	}

	unclean := d.rebooted()
	if !s.Current.IsLocal() && !good && !d.forbidden(s.Current.Config) && d.sameContentAsGood(s.Current.Config) {
		s.LastKnownGood = AdoptedConfig{s.Current.Config, d.o.Now}
		d.endTrial()
	}

	switch {
	case d.needsTrial():
		d.beginTrial()
	case unclean && !d.forbidden(s.Current.Config):
		s.Run.LastExit, s.Run.LastErrors = "the node went down without a clean shutdown", ""
		d.editTrial(func(t *Trial) { t.LongestUptime.Duration = stableAfter }) // its uptime is not known
		d.countCrash()
	}

	return true
}

// rebooted notes a new boot ID, and reports whether the previous boot ended
// without a clean shutdown while the configuration on trial ran.
func (d *decider) rebooted() bool {
	t := d.next.Trial
	if t == nil || t.BootID == d.o.BootID {
		return false
	}

	d.editTrial(func(t *Trial) { t.BootID, t.Clean = d.o.BootID, true }) // no kubelet runs yet
	if t.BootID == "" || d.o.BootID == "" {
		return false // it is not known whether this is another boot
	}

	return !t.Clean && d.starting // a binary that was replaced while the agent runs finds a trial of long ago
}

// forbidden reports whether c must not run, whatever the dry run says.
func (d *decider) forbidden(c Config) bool { return d.next.forbids(c) }

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
