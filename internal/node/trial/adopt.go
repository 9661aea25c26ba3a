// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// blocker is the reason why the intended configuration does not run, although
// it is not bad.
type blocker struct {
	status metav1.ConditionStatus // False or Unknown
	reason string                 // CamelCase
	cause  string
	detail string
	pods   bool // the decision depends on the node's pods: watch them
}

// adopt adopts the intended configuration if it is new and may run here.
func (d *decider) adopt() bool {
	s, in := &d.next, d.o.Intent
	if d.o.Node.ShuttingDown {
		return true // a trial would begin without its kubelet; decide after the boot
	}

	switch in.Kind {
	case Invalid:
		if d.starting && in.Reason != v1alpha1.ReasonStaleAssignment { // a stale assignment does not cast doubt on the adopted configuration
			s.Run.Deferred = true
		}
	case Nil:
		s.Run.Deferred = false
		return d.adoptLocal()
	case Unassigned:
		return d.adoptRemoval()
	case Assigned:
		s.Run.Deferred = false
		return d.adoptAssigned(in.Config)
	}

	return true
}

// adoptAssigned adopts the assigned configuration, unless a verdict or the
// storage forbids it.
func (d *decider) adoptAssigned(c Config) bool {
	s := &d.next
	if g := &s.LastKnownGood; g.Same(c) && sameContent(g.ConfigRevision, c.ConfigRevision) && c.Checkpoint != "" {
		g.Checkpoint = c.Checkpoint // downloaded again: a rollback needs the digest of the new file
	}

	if s.IsRevoked(c) {
		d.blocked = blocker{status: metav1.ConditionFalse, reason: v1alpha1.ReasonRevoked,
			cause: fmt.Sprintf("refused current %s: it is revoked", c.UIDLabel())}
		return true
	}

	if _, final := s.FinalEntry(c); final {
		return true // the condition shows the verdict
	}

	// An earlier verdict on the content of c stays until c is accepted: another
	// revision with it may be current, and still be rejected.
	if _, bad := s.BadEntry(c); bad && (s.Current.Same(c) || d.o.Verdicts[c.Revision].Outcome == Accepted) {
		if d.o.Storage != "" { // the verdict is withdrawn only together with an adoption
			return d.blockOnStorage()
		}

		if d.forbidden(s.Current.Config) {
			s.Current = s.LastKnownGood                               // withdrawing the verdict must not bring back the previous current
			s.Current.AssignedBy, s.LastKnownGood.AssignedBy = "", "" // nor is its assignment what a removal is about
			d.endTrial()
		}

		s.Bad = slices.DeleteFunc(s.Bad, func(b BadConfig) bool { return b.matches(c) })
		if s.LastKnownGood.Same(s.Current.Config) && d.needsTrial() {
			d.beginTrial()
		}
	}

	if d.hasEnded(c) && !s.Current.Same(c) {
		return true
	}

	if s.Current.Same(c) {
		d.noteEnd(c)
		// The configuration is the same, but its rollout or checkpoint file may
		// have changed. Each copy is checked, because a crash can separate the
		// writes of current and last-known-good.
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
	case Rejected:
		d.reject(c, v)
	case Accepted:
		d.adoptConfig(c)
	default:
		d.blocked = d.guardBlocker(c, v)
	}

	return true
}

// reject records that the dry run rejected c.
func (d *decider) reject(c Config, v Verdict) {
	reason := "failed to validate current " + c.UIDLabel()
	d.markBad(c, v1alpha1.ReasonValidationFailed, reason, v.Message)
	d.event(true, eventConfigRejected, "%s: %s", reason, v.Message)
}

func (d *decider) adoptConfig(c Config) {
	s := &d.next
	s.Current = AdoptedConfig{c, d.o.Now}
	d.noteEnd(c)
	if s.Run.Config.Revision == c.Revision {
		s.Run.Config = c // it had been taken back, and kept running because nothing else could run
	}

	d.endTrial()
	good := true
	switch {
	case s.LastKnownGood.Same(c):
		s.LastKnownGood.Config = c // its checkpoint may have been downloaded again
	case d.sameContentAsGood(c):
		s.LastKnownGood = AdoptedConfig{c, d.o.Now}
	default:
		good = false // also if it was promoted before: the present last-known-good is the better fallback
	}

	if !good || !d.isPromoted(c) {
		d.beginTrial()
	}

	d.startCause = CauseChange
	d.event(false, eventConfigChanged, "now using current %s", c.UIDLabel())
}

// adoptSameContent adopts a revision whose payload already runs: without a
// restart, with the trial or the promotion of the revision that it replaces.
func (d *decider) adoptSameContent(c Config) bool {
	s := &d.next
	old, same := s.Continued(c)
	switch {
	case !same:
		return false
	case s.LastKnownGood.Same(old):
		promoted, onTrial, local := d.isPromoted(old), s.OnTrial(old), d.mergeBase(old) // with this version of the component
		s.Current = AdoptedConfig{c, d.o.Now}
		if s.Run.Started {
			s.Run.Config = c
		}

		s.LastKnownGood = AdoptedConfig{c, s.LastKnownGood.Since}
		switch {
		case onTrial:
			d.editTrial(func(t *Trial) { t.Revision = c.Revision })
		case promoted:
			d.endTrial()
			d.recordPromotion(c, local, s.promotion(old))
		default:
			d.endTrial()
			d.beginTrial()
		}
	default: // on trial
		s.Current = AdoptedConfig{c, d.o.Now}
		d.editTrial(func(t *Trial) { t.Revision = c.Revision })
	}

	if s.Run.Started {
		s.Run.Config = c
	}

	d.noteEnd(c)
	d.event(false, eventConfigChanged, "now using current %s: the kubelet already runs this content", c.UIDLabel())

	return true
}

func (d *decider) adoptLocal() bool {
	s := &d.next
	if s.Current.IsLocal() && s.LastKnownGood.IsLocal() {
		return true
	}
	if d.o.Storage != "" {
		return d.blockOnStorage()
	}

	v, ok := d.o.Verdicts[""]
	if !ok {
		return d.requestVerdict(Config{})
	}

	if v.Outcome == Rejected {
		d.blocked = blocker{status: metav1.ConditionFalse, reason: v1alpha1.ReasonLocalInvalid,
			cause: "failed to validate current " + d.localLabel(), detail: v.Message}
		return true
	}

	if v.Outcome == Refused {
		d.blocked = d.guardBlocker(Config{}, v)
		return true
	}

	if !s.Current.IsLocal() {
		d.event(false, eventConfigChanged, "now using current %s", d.localLabel())
	}

	s.Current, s.LastKnownGood, s.Temporary = AdoptedConfig{Since: d.o.Now}, AdoptedConfig{Since: d.o.Now}, nil
	d.endTrial()
	d.startCause = CauseChange

	return true
}

// adoptRemoval handles an object that assigns nothing. If that object had
// assigned current, a person removed the assignment, which means local, or it
// was taken back or revoked, which means last-known-good. In all other cases
// nothing was removed.
func (d *decider) adoptRemoval() bool {
	s, in := &d.next, d.o.Intent
	if s.Current.IsLocal() && !s.Current.Since.IsZero() { // adopted, perhaps by an interrupted decision; a lost current has no time
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
		return d.blockOnStorage()
	}

	if !good.Same(s.Current.Config) {
		d.event(false, eventConfigChanged, "now using last-known-good %s: the assignment of %s was taken back", label(good.Config, d.o.Local),
			s.Current.UIDLabel())
	}

	d.returnToGood()

	return true
}

// returnToGood makes last-known-good current, as if nobody had assigned it, so
// that the same removal does not mean local later.
func (d *decider) returnToGood() {
	s := &d.next
	if !s.LastKnownGood.Same(s.Current.Config) {
		s.Current = s.LastKnownGood
		d.endTrial()
		if d.needsTrial() {
			d.beginTrial()
		}

		d.startCause = CauseRollback
	}

	s.Current.AssignedBy, s.LastKnownGood.AssignedBy = "", ""
	if s.Run.Config.Revision == s.Current.Revision {
		s.Run.Config = s.Current.Config
	}
}

// requestVerdict requests the verdict on a configuration that is to be adopted.
// A running kubelet continues meanwhile. If none runs, the node waits for the
// verdict, so that it starts once.
func (d *decider) requestVerdict(c Config) bool {
	d.toValidate = append(d.toValidate, c)
	return !d.starting
}

func (d *decider) guardBlocker(c Config, v Verdict) blocker {
	if v.Guard == v1alpha1.ReasonCouldNotValidate || v.Guard == "" {
		cause := fmt.Sprintf("could not validate current %s: %s", label(c, d.o.Local), v.Message)
		return blocker{status: metav1.ConditionUnknown, reason: v1alpha1.ReasonCouldNotValidate, cause: cause, pods: true}
	}

	return blocker{status: metav1.ConditionFalse, reason: v.Guard,
		cause: fmt.Sprintf("refused current %s: %s", label(c, d.o.Local), v.Message), pods: v.Outcome == Refused}
}

// blockOnStorage delays an adoption until the disk accepts writes.
func (d *decider) blockOnStorage() bool {
	d.blocked = blocker{status: metav1.ConditionUnknown, reason: v1alpha1.ReasonSyncFailed,
		cause: "failed to sync, desired config unclear, cause: cannot save it to disk: " + d.o.Storage,
		pods:  true, // the baseline of the trial needs the pods that run at that time
	}
	return true
}
