// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// End is when an assignment ends by itself. Zero: never.
type End struct {
	After     metav1.Duration `json:"after"`
	Requested string          `json:"requestedAt"` // identifies the request: the same configuration can be assigned again for as long
}

// Temporary is the progress of an assignment that ends by itself. It is on
// trial until then, so that it never becomes last-known-good.
type Temporary struct {
	Revision string          `json:"revision"` // that the source knows: other values on a machine that grew are the same assignment
	End      End             `json:"end"`
	Ran      metav1.Duration `json:"ran"`              // since it was adopted, as the agents observed it, saved in steps
	Ended    time.Time       `json:"endedAt,omitzero"` // when its time was over; zero: it is not
}

// temporarySaveStep limits by how much a crash of the agent can delay the end.
const temporarySaveStep = 20 * time.Second

// isTemporary reports whether current ends by itself, or has ended. It does not
// any more if the same is assigned without an end.
func (d *decider) isTemporary() bool {
	t, in := d.next.Temporary, d.o.Intent
	if in.Kind == Assigned && in.Config.End == (End{}) && d.next.Current.Same(in.Config) {
		return false
	}

	return t != nil && d.next.Current.SourceRevision() == t.Revision
}

// hasEnded reports whether the time of an assignment is over.
func (d *decider) hasEnded(c Config) bool {
	t := d.next.Temporary
	return t != nil && t.Revision == c.SourceRevision() && t.End == c.End && !t.Ended.IsZero()
}

// noteEnd begins the time of an adopted assignment, unless it is the same
// request as before. The content of last-known-good does not end: there is
// nothing to return to.
func (d *decider) noteEnd(c Config) {
	s := &d.next
	switch t := s.Temporary; {
	case c.End == End{} || d.sameContentAsGood(c):
		s.Temporary = nil
	case t == nil || t.Revision != c.SourceRevision() || t.End != c.End:
		s.Temporary, s.Run.UnsavedTemporary = &Temporary{Revision: c.SourceRevision(), End: c.End}, 0
	}
}

// endTemporary lets the node return to last-known-good when the time of
// current is over. Like a rollback, it needs no network, and the pod guard does
// not delay it.
func (d *decider) endTemporary() bool {
	s := &d.next
	if s.Current.End != (End{}) && !d.isTemporary() && !d.sameContentAsGood(s.Current.Config) {
		d.noteEnd(s.Current.Config) // a crash separated the writes, or the record is lost
	}

	t := s.Temporary
	if !d.isTemporary() {
		return true
	}

	if t.Ended.IsZero() {
		s.Run.UnsavedTemporary += d.o.Elapsed
		ran := t.Ran.Duration + s.Run.UnsavedTemporary
		if over := ran >= t.End.After.Duration; over || s.Run.UnsavedTemporary >= temporarySaveStep {
			s.Temporary = &Temporary{Revision: t.Revision, End: t.End, Ran: metav1.Duration{Duration: ran}}
			if s.Run.UnsavedTemporary = 0; over {
				s.Temporary.Ended = d.o.Now
			}
		}
	}

	old, target := s.Current, s.LastKnownGood.Config
	if s.Temporary.Ended.IsZero() || d.forbidden(old.Config) || d.o.Storage != "" || d.o.Node.ShuttingDown {
		return true
	}
	if d.forbidden(target) {
		target = Config{}
	}

	if v, known := d.o.Verdicts[target.Revision]; s.Run.Config.Revision != target.Revision || !s.Run.Started {
		if !known {
			return d.requestVerdict(target)
		}

		if !v.mayStart(target) {
			if d.blocked.status != "" {
				return true // the next assignment has to wait too, which matters more
			}

			d.blocked = blocker{status: metav1.ConditionFalse, reason: v1alpha1.ReasonAssignmentEnded, detail: v.Message, cause: fmt.Sprintf(
				"the assignment of current %s ended at %s, but the node cannot return to %s", old.UIDLabel(), clock(s.Temporary.Ended),
				label(target, d.o.Local))}

			return true
		}
	}

	d.returnToGood()
	d.event(false, eventAssignmentEnded, "returned to %s: the assignment of %s ended after %s", label(target, d.o.Local), old.UIDLabel(),
		s.Temporary.End.After.Duration)

	return true
}

func clock(t time.Time) string { return t.Format("2006-01-02 15:04 MST") }
