package trial

import (
	"fmt"
	"slices"
)

// hold is why an assignment that is known is not taken up.
type blocker struct {
	status string // False or Unknown
	reason string // CamelCase
	cause  string
	detail string
	pods   bool // it is decided again when the node's pods change
}

// adopt takes up what is intended, if it is new and may run here.
func (d *decider) adopt() bool {
	s, in := &d.next, d.o.Intent
	if d.o.Node.ShuttingDown {
		return true // a trial would begin without its kubelet; the next boot asks again
	}
	switch in.Kind {
	case Invalid:
		if d.starting && in.Reason != reasonStaleAssignment { // that says nothing against what was taken up before
			s.Run.Deferred = true
		}
		return true
	case Nil:
		s.Run.Deferred = false
		return d.adoptLocal()
	case Unassigned:
		return d.adoptRemoval()
	case Assigned:
		s.Run.Deferred = false
	default:
		return true
	}
	c := in.Config
	if g := &s.LastKnownGood; g.Same(c) && g.Payload == c.Payload && c.Checkpoint != "" {
		g.Checkpoint = c.Checkpoint // it was downloaded anew: a rollback is to find what is there
	}
	if s.IsRevoked(c) {
		d.blocked = blocker{status: "False", reason: reasonRevoked, cause: fmt.Sprintf("refused current (UID: %s): it is revoked", c.Revision)}
		return true
	}
	if _, bad := s.BadEntry(c); bad {
		if slices.ContainsFunc(s.Bad, func(b BadConfig) bool { return b.matches(c) && c.Rollout.Attempt <= b.Attempt }) {
			return true // status says why
		}
		if d.o.Storage != "" { // a verdict is lifted for what is taken up, and for nothing else
			return d.blockOnStorage()
		}
		if d.forbidden(s.Current.Config) {
			s.Current = s.LastKnownGood // lifting must not bring back more than what is adopted below
			d.endTrial()
		}
		s.Bad = slices.DeleteFunc(s.Bad, func(b BadConfig) bool { return b.matches(c) })
		if s.LastKnownGood.Same(s.Current.Config) && d.needsTrial() {
			d.beginTrial()
		}
	}
	if s.Current.Same(c) {
		// Who assigned it may have changed, or its checkpoint was healed; not what it is. Each record is looked at, since
		// a crash may have come between two.
		s.Current.Config = c
		if s.LastKnownGood.Same(c) {
			s.LastKnownGood.Config = c
		}
		if s.Run.Config.Revision == c.Revision {
			s.Run.Config = c
		}
		return true
	}
	if d.o.Storage != "" {
		return d.blockOnStorage()
	}
	if d.adoptSameContent(c) {
		return true
	}
	v, ok := d.o.Verdicts[c.Revision]
	if !ok {
		return d.requestVerdict(c)
	}
	switch v.Outcome {
	case RejectedOutcome:
		d.markBad(c, Rejected, fmt.Sprintf("failed to validate current (UID: %s)", c.Revision), v.Words)
		d.event(true, eventConfigRejected, "failed to validate current (UID: %s): %s", c.Revision, v.Words)
	case Refused, Protected:
		d.blocked = guardBlocker(c, v)
	case Accepted:
		d.adoptConfig(c)
	default:
		d.blocked = blocker{status: "Unknown", reason: reasonCouldNotValidate, cause: fmt.Sprintf("could not validate current (UID: %s): %s", c.Revision, v.Words), pods: true}
	}
	return true
}

func (d *decider) adoptConfig(c Config) {
	s := &d.next
	s.Current = Record{c, d.o.Now}
	if s.Run.Config.Revision == c.Revision {
		s.Run.Config = c // it was taken back, and ran on because there was nothing else
	}
	d.endTrial()
	good := true
	switch {
	case s.LastKnownGood.Same(c):
		s.LastKnownGood.Config = c // its checkpoint may have been downloaded anew
	case d.sameContentAsGood(c):
		s.LastKnownGood = Record{c, d.o.Now}
	default:
		good = false // also if it was promoted before: the one now is known to be good now
	}
	if !good || !d.isPromoted(c) {
		d.beginTrial()
	}
	d.startCause = CauseChange
	d.event(false, eventConfigChanged, "now using current (UID: %s)", c.Revision)
}

// inherits takes up a revision whose payload already runs: without a restart,
// and with the standing of the one it replaces.
func (d *decider) adoptSameContent(c Config) bool {
	s := &d.next
	old := s.Current.Config
	if s.Run.Started {
		old = s.Run.Config
	}
	if old.IsLocal() || old.Payload != c.Payload || d.forbidden(old) {
		return false
	}
	switch {
	case s.LastKnownGood.Same(old):
		promoted, onTrial, local := d.isPromoted(old), s.OnTrial(old), d.mergeBase(old) // with this version of the component
		s.Current = Record{c, d.o.Now}
		if s.Run.Started {
			s.Run.Config = c
		}
		s.LastKnownGood = Record{c, s.LastKnownGood.Since}
		switch {
		case onTrial:
			d.editTrial(func(t *Trial) { t.Revision = c.Revision })
		case promoted:
			d.endTrial()
			d.recordPromotion(c, local)
		default:
			d.endTrial()
			d.beginTrial()
		}
	case s.OnTrial(old):
		s.Current = Record{c, d.o.Now}
		d.editTrial(func(t *Trial) { t.Revision = c.Revision })
	default:
		return false
	}
	if s.Run.Started {
		s.Run.Config = c
	}
	d.event(false, eventConfigChanged, "now using current (UID: %s), whose content already ran", c.Revision)
	return true
}

func (d *decider) adoptLocal() bool {
	s := &d.next
	if s.Current.IsLocal() && s.LastKnownGood.IsLocal() {
		return true
	}
	if d.o.Storage != "" {
		d.blocked = storageBlocker(d.o.Storage)
		return true
	}
	v, ok := d.o.Verdicts[""]
	if !ok {
		return d.requestVerdict(Config{})
	}
	if v.Outcome == RejectedOutcome {
		d.blocked = blocker{status: "False", reason: reasonLocalInvalid, cause: fmt.Sprintf("failed to validate current (%s)", d.o.Local), detail: v.Words}
		return true
	}
	if !s.Current.IsLocal() {
		d.event(false, eventConfigChanged, "now using current (%s)", d.o.Local)
	}
	s.Current, s.LastKnownGood = Record{Since: d.o.Now}, Record{Since: d.o.Now}
	d.endTrial()
	d.startCause = CauseChange
	return true
}

// removed deals with an object that assigns nothing. If it had assigned current, a person removed that, which means
// local; or it was taken back or revoked, which means last-known-good. Otherwise nothing was removed.
func (d *decider) adoptRemoval() bool {
	s, in := &d.next, d.o.Intent
	if s.Current.IsLocal() && !s.Current.Since.IsZero() { // adopted, and maybe interrupted; a current that was lost has no time
		return d.adoptLocal()
	}
	if !s.RemovedBy(in) {
		return true
	}
	good := s.LastKnownGood
	if good.IsLocal() || !in.takesBack(s.Current.Config) && !s.IsRevoked(s.Current.Config) {
		s.Run.Deferred = false
		return d.adoptLocal()
	}
	if d.o.Storage != "" {
		d.blocked = storageBlocker(d.o.Storage)
		return true
	}
	if !good.Same(s.Current.Config) {
		d.event(false, eventConfigChanged, "now using last-known-good %s: the assignment of (UID: %s) was taken back", label(good.Config, d.o.Local), s.Current.Revision)
		s.Current = good
		d.endTrial()
		if d.needsTrial() {
			d.beginTrial()
		}
		d.startCause = CauseRollback
	}
	s.Current.AssignedBy, s.LastKnownGood.AssignedBy = "", "" // the same removal must not mean local later
	if s.Run.Config.Revision == s.Current.Revision {
		s.Run.Config = s.Current.Config
	}
	return true
}

// awaitVerdict asks for a verdict on what is to be adopted. What runs goes on
// meanwhile; where nothing runs yet, the node waits, so that it starts once.
func (d *decider) requestVerdict(c Config) bool {
	d.toValidate = append(d.toValidate, c)
	return !d.starting
}

func guardBlocker(c Config, v Verdict) blocker {
	return blocker{status: "False", reason: v.Guard, cause: fmt.Sprintf("refused current (UID: %s): %s", c.Revision, v.Words), pods: v.Outcome == Refused}
}

// awaitStorage holds an assignment until the disk takes what it changes.
func (d *decider) blockOnStorage() bool {
	d.blocked = storageBlocker(d.o.Storage)
	d.blocked.pods = true // when it can be recorded, the trial is to begin with those that run then
	return true
}

func storageBlocker(why string) blocker {
	return blocker{status: "Unknown", reason: reasonSyncFailed, cause: "failed to sync, desired config unclear, cause: cannot record it: " + why}
}
