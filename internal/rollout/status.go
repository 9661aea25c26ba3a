// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// completeStatus writes into the next status what follows from the decisions.
func (d *planner) completeStatus(phase v1alpha1.RolloutPhase, message string) {
	st, in := &d.Next, &d.in
	st.ObservedGeneration, st.Controller = in.Generation, &in.Controller
	st.Phase, st.Message = phase, printable.Cut(message, v1alpha1.MaxRolloutMessage)
	if in.Target.Number != 0 {
		st.UpdateRevision = new(in.Target)
		if d.succeeded {
			st.CurrentRevision = new(in.Target)
		}
	}

	st.Nodes, st.NextWindowTime = d.Counts.RolloutCounts, apiTime(d.nextWindow())
	d.listFailed()
	d.listDraining()
	said := d.conditions(phase, message)
	st.Conditions = slices.DeleteFunc(st.Conditions, func(c metav1.Condition) bool { // Reconciling and Stalled exist only where they are True
		return meta.FindStatusCondition(said, c.Type) == nil
	})
	for _, c := range said {
		c.Message, c.ObservedGeneration, c.LastTransitionTime = printable.Cut(c.Message,
			v1alpha1.MaxRolloutMessage), in.Generation, metav1.NewTime(in.Now)
		meta.SetStatusCondition(&st.Conditions, c)
	}

	d.recordOutcome()
	d.updateTargetUID()
	limit := v1alpha1.MaxHistory
	if l := in.Spec.RevisionHistoryLimit; l != nil {
		limit = min(limit, int(*l))
	}
	if st.History = st.History[:min(len(st.History), limit)]; len(st.History) == 0 {
		st.History = nil
	}
}

// listFailed names the first failed nodes. After a rollback it keeps the cause
// of the stop.
func (d *planner) listFailed() {
	var failed []v1alpha1.FailedNode
	for _, i := range d.failed {
		s := d.nodeState(&d.nodes[i])
		failed = append(failed, v1alpha1.FailedNode{Name: d.nodes[i].Name, Reason: s.Reason,
			Message: printable.Cut(s.Message, v1alpha1.MaxFailedMessage)})
	}

	if d.Next.Halt == nil || d.in.Status.Halt == nil || len(failed) >= len(d.Next.FailedNodes) {
		d.Next.FailedNodes = failed
	}
}

// listDraining names the first nodes with the record of a drain of this
// rollout, and those that are about to get it.
func (d *planner) listDraining() {
	var all []v1alpha1.DrainingNode
	for i := range d.nodes {
		if n := &d.nodes[i]; n.Drain.Rollout != "" && n.Drain.Rollout == d.in.DrainID && len(all) < v1alpha1.MaxFailedNodes {
			all = append(all, v1alpha1.DrainingNode{Name: n.Name, Since: metav1.NewTime(n.Drain.Since),
				Message: printable.Cut(d.nodeState(n).Message, v1alpha1.MaxOutcomeMessage)})
		}
	}

	for _, t := range d.Taints { // what begins is shown before it begins
		if n := &d.nodes[t.Node]; n.Drain.Rollout == "" && len(all) < v1alpha1.MaxFailedNodes {
			all = append(all, v1alpha1.DrainingNode{Name: n.Name, Since: metav1.NewTime(d.in.Now), Message: "the drain begins"})
		}
	}

	d.Next.DrainingNodes = all
}

// updateTargetUID writes the UID of the target's ConfigMap, which may have been
// created again, into the other places that name the same content.
func (d *planner) updateTargetUID() {
	st, t := &d.Next, &d.in.Target.ConfigMapRef
	same := func(name, sha256 string) bool { return name == t.Name && sha256 != "" && sha256 == t.SHA256 }
	for i := range st.History {
		if h := &st.History[i]; same(h.ConfigMap, h.SHA256) {
			h.UID = t.UID
		}
	}

	if v := st.CurrentRevision; v != nil && same(v.ConfigMapRef.Name, v.ConfigMapRef.SHA256) {
		v.ConfigMapRef.UID = t.UID
	}
}

// outcome returns the outcome of a revision, as of now.
func (d *planner) outcome(r *v1alpha1.RolloutRevision, what string) v1alpha1.RolloutOutcome {
	st, ref := &d.Next, &r.ConfigMapRef
	return v1alpha1.RolloutOutcome{
		Revision: r.Number, ConfigMap: ref.Name, UID: ref.UID, SHA256: ref.SHA256, Outcome: what,
		StartTime: st.StartTime, EndTime: apiTime(d.in.Now), Updated: st.Nodes.Updated, Failed: st.Nodes.Failed,
	}
}

// recordSuperseded adds the outcome of a revision that another one replaces
// before it succeeded or was stopped. A stop stays, also after a retry.
func (d *planner) recordSuperseded() {
	st, was := &d.Next, d.Next.UpdateRevision
	if was == nil || slices.ContainsFunc(st.History, func(h v1alpha1.RolloutOutcome) bool { return h.Revision == was.Number }) {
		return
	}

	out := d.outcome(was, v1alpha1.OutcomeSuperseded)
	out.Message = fmt.Sprintf("replaced by revision %d", d.in.Target.Number)
	var failed []string
	for _, f := range st.FailedNodes {
		failed = append(failed, f.Name+" "+f.Reason)
	}
	if len(failed) > 0 {
		out.Message += "; failed: " + joinNames(failed)
	}

	d.addOutcome(out)
}

// StopMessage returns the message of the outcome of a stopped revision, which
// begins with the reason.
func StopMessage(reason, message string) string { return reason + ": " + message }

// recordOutcome adds the outcome of the target once it has succeeded or was
// stopped.
func (d *planner) recordOutcome() {
	if d.in.Target.Number == 0 {
		return
	}

	out := d.outcome(d.Next.UpdateRevision, v1alpha1.OutcomeSucceeded)
	if h := d.Next.Halt; h != nil {
		message := h.Message
		if h.Attempt > 1 {
			message = fmt.Sprintf("attempt %d: %s", h.Attempt, message)
		}

		out.Outcome, out.Reason, out.Message = v1alpha1.OutcomeHalted, h.Reason, StopMessage(h.Reason, message)
		if d.Next.Phase == v1alpha1.RolloutRolledBack {
			out.Outcome = v1alpha1.OutcomeRolledBack
		}
	} else if !d.succeeded {
		return
	}

	d.addOutcome(out)
}

// addOutcome adds an outcome to the history, newest first, one for each
// revision. An existing entry changes only if the outcome does, and keeps what
// is said about the stops of earlier attempts. After a rollback it says what
// the nodes run.
func (d *planner) addOutcome(out v1alpha1.RolloutOutcome) {
	st := &d.Next
	add := func(words string) {
		out.Message = printable.Cut(strings.TrimPrefix(out.Message+"; "+words, "; "), v1alpha1.MaxOutcomeMessage)
	}
	out.Message = printable.Cut(out.Message, v1alpha1.MaxOutcomeMessage)
	i := slices.IndexFunc(st.History, func(h v1alpha1.RolloutOutcome) bool { return h.Revision == out.Revision })
	if i < 0 {
		i = len(st.History)
		st.History = append(st.History, v1alpha1.RolloutOutcome{})
	}

	h := st.History[i]
	same := strings.HasPrefix(h.Message, out.Message) // the same stop, or a success
	switch {
	case same && (h.Outcome == out.Outcome || h.Outcome == v1alpha1.OutcomeRolledBack && out.Outcome == v1alpha1.OutcomeHalted):
		return
	case same && out.Outcome == v1alpha1.OutcomeRolledBack:
		out.Updated, out.Failed, out.Message = h.Updated, h.Failed, h.Message // as of the stop: now no node has the revision
	case h.Message != "":
		add("earlier: " + strings.TrimPrefix(h.Message, "earlier: "))
	}

	if d.back.where != "" {
		add(d.back.where)
	}

	st.History[i] = out
	slices.SortStableFunc(st.History, func(a, b v1alpha1.RolloutOutcome) int { return cmp.Compare(b.Revision, a.Revision) })
}
