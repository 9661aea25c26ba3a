// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// Change edits a rollout's spec and returns a message that follows the
// rollout's name. Its error follows the name too.
type Change func(*v1alpha1.NodeConfigRollout) (string, error)

// Pause stops assigning the revision to further nodes.
func Pause(reason string) Change {
	return func(r *v1alpha1.NodeConfigRollout) (string, error) {
		if r.Spec.Paused {
			return "is paused already: nothing changes", nil
		}

		r.Spec.Paused, r.Spec.PausedReason = true, reason
		if Halted(r) {
			return "paused; the rollout is " + HaltWords(r), nil
		}

		return "paused: nodes in flight finish, no others begin; continue with: kubectl evenkeel rollout resume " + r.Name, nil
	}
}

// Freeze stops all assignments, including those of rollbacks and to nodes that
// join.
func Freeze(reason string) Change {
	return func(r *v1alpha1.NodeConfigRollout) (string, error) {
		if r.Spec.Frozen {
			return "is frozen already: nothing changes", nil
		}

		r.Spec.Frozen, r.Spec.FrozenReason = true, reason

		return "frozen: the controller writes no NodeConfigs; continue with: kubectl evenkeel rollout unfreeze " + r.Name, nil
	}
}

// Unfreeze ends a freeze.
func Unfreeze(r *v1alpha1.NodeConfigRollout) (string, error) {
	if !r.Spec.Frozen {
		return "is not frozen: nothing changes", nil
	}

	r.Spec.Frozen, r.Spec.FrozenReason = false, ""

	return "unfrozen; " + nextUnlessHalted(r), nil
}

// Resume ends a pause.
func Resume(r *v1alpha1.NodeConfigRollout) (string, error) {
	switch {
	case r.Spec.Paused:
		r.Spec.Paused, r.Spec.PausedReason = false, ""
		return "resumed; " + nextUnlessHalted(r), nil
	case Halted(r):
		return "", haltedError(r)
	case r.Spec.Frozen:
		return "", fmt.Errorf("is frozen, not paused: kubectl evenkeel rollout unfreeze %s", r.Name)
	case query.Observed(r) && r.Status.Phase == v1alpha1.RolloutAwaitingApproval:
		return "", fmt.Errorf("is not paused, but waits for approval: kubectl evenkeel rollout approve %s", r.Name)
	}

	return "is not paused: nothing changes", nil
}

// Onward is a change after which a rollout continues. It needs force if
// TargetFailed: somebody else, such as a GitOps controller, may have made a
// stopped content the target again.
func Onward(change Change, force bool) Change {
	return func(r *v1alpha1.NodeConfigRollout) (string, error) {
		before := r.DeepCopy()
		words, err := change(r)
		if why := TargetFailed(r); err == nil && why != "" && !force && !equality.Semantic.DeepEqual(before.Spec, r.Spec) {
			return "", fmt.Errorf("would roll out a configuration that failed before: %s; push another one, or use --force if the cause is repaired",
				why)
		}

		return words, err
	}
}

// TargetFailed says how the target's content failed before, if the rollout
// rolls it out now and it has not succeeded since; otherwise empty.
func TargetFailed(r *v1alpha1.NodeConfigRollout) string {
	target, current := r.Status.UpdateRevision, r.Status.CurrentRevision
	if target == nil || r.Status.Halt != nil || r.Spec.Paused || r.Spec.Frozen || current != nil && current.Number == target.Number {
		return ""
	}

	return fleet.FailureOf(&r.Status, nil, target.Number, target.ConfigMapRef.SHA256)
}

// Next names what still blocks the rollout after an edit, or how to follow it.
func Next(r *v1alpha1.NodeConfigRollout) string {
	switch {
	case r.Spec.Frozen:
		return "the rollout is still frozen: kubectl evenkeel rollout unfreeze " + r.Name
	case r.Spec.Paused:
		return "the rollout is still paused: kubectl evenkeel rollout resume " + r.Name
	}

	return "follow it with: kubectl evenkeel rollout status " + r.Name + " -w"
}

// nextUnlessHalted is Next for an edit that does not lift a halt.
func nextUnlessHalted(r *v1alpha1.NodeConfigRollout) string {
	if Halted(r) && !r.Spec.Frozen && !r.Spec.Paused {
		return "the rollout is still " + HaltWords(r)
	}

	return Next(r)
}

// Halted reports whether the revision was stopped.
func Halted(r *v1alpha1.NodeConfigRollout) bool { return r.Status.Halt != nil && query.Observed(r) }

// HaltWords describes a halt, and what to do about it.
func HaltWords(r *v1alpha1.NodeConfigRollout) string {
	h, node := r.Status.Halt, ""
	if failed := r.Status.FailedNodes; len(failed) > 0 {
		node = failed[0].Name
	}

	return fmt.Sprintf("%s at revision %d (%s): %s",
		describe.PhaseWords(r.Status.Phase), r.Status.Target(), h.Reason, rollout.Remedies(r.Name, h.Reason, node,
			fleet.PreviousRevision(&r.Status) != 0))
}

func haltedError(r *v1alpha1.NodeConfigRollout) error { return errors.New("is " + HaltWords(r)) }

// orUndo offers an undo if there is an earlier revision.
func orUndo(r *v1alpha1.NodeConfigRollout) string {
	if fleet.PreviousRevision(&r.Status) == 0 {
		return ""
	}

	return ", or kubectl evenkeel rollout undo " + r.Name
}

// Approve lets a rollout pass the pause at which it waits; with full, every
// later pause as well.
func Approve(full bool, reason string) Change {
	return func(r *v1alpha1.NodeConfigRollout) (string, error) {
		steps, err := describe.StepsOf(r)
		if err != nil {
			return "", err
		}

		st := &r.Status
		revision, step, last := st.UpdateRevision.Number, int(st.Step), len(steps)-1
		switch {
		case st.Halt != nil:
			return "", haltedError(r)
		case st.Phase == v1alpha1.RolloutComplete || step > last:
			return "", fmt.Errorf("does not wait for approval: revision %d has passed all its steps", revision)
		case !full && steps[step].Pause == nil:
			return "", fmt.Errorf("does not wait for approval: it is %s, at %s; to approve later pauses in advance, use --full",
				describe.OrUnknown(st.Phase), stepName(steps, step))
		}

		target := step
		if full {
			target = last
		}

		if p := r.Spec.Approval; p != nil && p.Revision == revision && int(p.Step) >= target {
			return fmt.Sprintf("has the approval of revision %d up to %s already: nothing changes", revision,
				stepName(steps, min(int(p.Step), last))), nil
		}

		r.Spec.Approval = &v1alpha1.RolloutApproval{Revision: revision, Step: int32(target), Reason: reason}
		words := fmt.Sprintf("approved: revision %d passes %s", revision, stepName(steps, target))
		if full {
			words = fmt.Sprintf("approved: revision %d passes every pause", revision)
		}

		return words + "; " + Next(r), nil
	}
}

// Abort stops the revision permanently; with rollback, its nodes return to the
// last succeeded revision.
func Abort(rollback bool, reason string) Change {
	return func(r *v1alpha1.NodeConfigRollout) (string, error) {
		st := &r.Status
		revision := st.UpdateRevision.Number
		there := r.Spec.Abort != nil && r.Spec.Abort.Revision == revision
		switch {
		case there && (r.Spec.Abort.Rollback || !rollback):
			return fmt.Sprintf("has the abort of revision %d already: nothing changes", revision), nil
		case st.Halt != nil && (st.Halt.Rollback || !rollback):
			return fmt.Sprintf("is %s at revision %d already (%s): nothing changes", describe.PhaseWords(st.Phase), revision, st.Halt.Reason), nil
		case st.Phase == v1alpha1.RolloutComplete && !rollback:
			return "", fmt.Errorf("is complete: there is nothing to stop; to roll back: kubectl evenkeel rollout abort %s --rollback%s", r.Name,
				orUndo(r))
		}

		r.Spec.Abort = &v1alpha1.RolloutAbort{Revision: revision, Rollback: rollback, Reason: reason}
		words := fmt.Sprintf("aborted: revision %d stops, and nodes that run it keep it; ", revision)
		if rollback {
			words = fmt.Sprintf("aborted: revision %d stops, and its nodes roll back; ", revision)
		}
		if r.Spec.Frozen && rollback {
			return words + Next(r), nil
		}

		return words + "push a fixed configuration" + orUndo(r), nil
	}
}

// pin makes the revision with this number and content the target in place of
// the template, which can have the same content.
func pin(r *v1alpha1.NodeConfigRollout, template, content payload.Payload, number int64) string {
	target := template.SHA256
	if p := r.Spec.Pin; p != nil && p.Instead == target {
		target = p.SHA256
	}
	if content.SHA256 == target {
		return fmt.Sprintf("already has the configuration of revision %d: nothing changes", number)
	}

	r.Spec.Pin = &v1alpha1.RolloutPin{SHA256: content.SHA256, Instead: template.SHA256}
	until := "until the template changes (spec.pin)"
	if content.SHA256 == template.SHA256 {
		until = "which is that of the template"
	}
	if !fleet.Succeeded(&r.Status, content.SHA256) || failureOf(r, content.SHA256) != "" {
		until += "; it has not succeeded, so the pauses of the steps hold"
	}
	if len(r.Spec.Strategy.Windows) > 0 {
		until += "; nodes wait for the next maintenance window, unlike with abort --rollback"
	}

	return fmt.Sprintf("undone: the configuration of revision %d is the target again, with the next number, %s; %s", number, until, Next(r))
}

// checkRetry returns an error for nodes on which the revision did not fail. A
// node that recorded the revision as bad counts as failed. undecided are nodes
// that have the revision without a verdict: it counts, although their attempt
// is an earlier one.
func checkRetry(ctx context.Context, c client.Reader, r *v1alpha1.NodeConfigRollout, nodes []string) (undecided []string, err error) {
	var all []fleet.Pair
	f, err := query.Gather(ctx, c, r, func(p fleet.Pair) { all = append(all, p) })
	if err != nil {
		return nil, fmt.Errorf("cannot be planned: %w", err)
	}

	target := r.Status.UpdateRevision
	plan := f.Plan()
	why := map[string]string{}
	for i, p := range all {
		bad := p.Config != nil && slices.ContainsFunc(p.Config.Status.BadConfigs,
			func(b v1alpha1.BadConfig) bool { return b.UID == target.ConfigMapRef.UID })
		switch s := plan.NodeState(i); {
		case s.State == rollout.Conflicted || s.State == rollout.Manual:
			why[p.Node.Name] = s.Message
		case s.State == rollout.Failed || s.State == rollout.Blocked || bad:
			why[p.Node.Name] = ""
		default:
			why[p.Node.Name] = "it is " + s.State.String()
			if s.State == rollout.Assigned || s.State == rollout.Trial || s.State == rollout.Soaking {
				undecided = append(undecided, p.Node.Name)
			}
		}
	}

	var wrong []string
	for _, name := range nodes {
		words, selected := why[name]
		if !selected {
			words = "not selected by the rollout"
		}
		if words != "" {
			wrong = append(wrong, name+" ("+words+")")
		}
	}

	if len(wrong) > 0 {
		return nil, fmt.Errorf("cannot retry revision %d on nodes on which it did not fail: %s; to list the failed nodes: kubectl evenkeel "+
			"nodes --rollout %s --failed",
			target.Number, printable.Few(wrong), r.Name)
	}

	return undecided, nil
}

// Retry assigns the revision again to nodes on which it failed, all of them if
// none are named, and lifts a halt. While named nodes try it, the others wait;
// without names it needs force, if the revision was stopped for a reason that
// can be its own.
func Retry(ctx context.Context, c client.Reader, nodes []string, force bool) Change {
	nodes = slices.Compact(slices.Sorted(slices.Values(nodes)))
	var undecided []string
	var checked int64 // the revision: reading the fleet again after a conflict would only lead to the next one
	return func(r *v1alpha1.NodeConfigRollout) (string, error) {
		if len(nodes) > v1alpha1.MaxRetryNodes {
			return "", fmt.Errorf("cannot retry %s, more than the limit of %d: name no nodes to retry all that failed",
				printable.Count(len(nodes), "node"), v1alpha1.MaxRetryNodes)
		}

		before := r.DeepCopy()
		words, err := retry(r, nodes)
		if why := Stopped(before); err == nil && why != "" && len(nodes) == 0 && !force && !equality.Semantic.DeepEqual(before.Spec, r.Spec) {
			return "", fmt.Errorf("was stopped at revision %d (%s): name nodes on which it failed, and the others wait for them; or use --force "+
				"to go on with all nodes",
				before.Status.Target(), why)
		}

		if err != nil || c == nil || equality.Semantic.DeepEqual(before.Spec, r.Spec) {
			return words, err
		}

		if now := r.Status.UpdateRevision.Number; checked != now {
			if undecided, err = checkRetry(ctx, c, before, nodes); err != nil && len(nodes) > 0 {
				return "", err
			}

			checked = now
		}

		if len(undecided) > 0 {
			words += "; a failure still counts on these nodes, which have no verdict yet: " + printable.Few(undecided)
		}

		return words, nil
	}
}

// Stopped says why a revision was stopped: to retry it on all nodes needs
// force. Empty: it was not, or an outage was the cause.
func Stopped(r *v1alpha1.NodeConfigRollout) string {
	if h := r.Status.Halt; h != nil && h.Reason != v1alpha1.HaltInconclusive {
		return rollout.StopMessage(h.Reason, h.Message)
	}

	return ""
}

func retry(r *v1alpha1.NodeConfigRollout, nodes []string) (string, error) {
	st := &r.Status
	revision, attempt := st.UpdateRevision.Number, max(st.Attempt, 1)+1
	aborted := r.Spec.Abort != nil && r.Spec.Abort.Revision == revision
	if p := r.Spec.Retry; p != nil && p.Revision == revision && p.Attempt == attempt && slices.Equal(p.Nodes, nodes) && !aborted {
		return fmt.Sprintf("has a request for attempt %d at revision %d already: nothing changes", attempt, revision), nil
	}

	waiting := st.Nodes.Failed > 0 || st.Nodes.Blocked > 0 || meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionJoiningStopped)
	if st.Halt == nil && !waiting && !aborted {
		return "", fmt.Errorf("has nothing to retry: revision %d failed on no node, and the rollout is %s; see kubectl evenkeel rollout "+
			"status %s", revision, describe.OrUnknown(st.Phase), r.Name)
	}

	r.Spec.Retry = &v1alpha1.RolloutRetry{Revision: revision, Attempt: attempt, Nodes: nodes}
	if aborted {
		r.Spec.Abort = nil
	}

	which := "all failed nodes try it again"
	if len(nodes) > 0 {
		which = printable.Few(nodes) + " try it again; other nodes wait for them"
	}
	if st.Halt != nil {
		which += fmt.Sprintf("; the halt is lifted (%s)", rollout.StopMessage(st.Halt.Reason, st.Halt.Message))
	}

	return fmt.Sprintf("retried: attempt %d at revision %d begins, %s; %s", attempt, revision, which, Next(r)), nil
}

// stepName names a step within a sentence. It names a pause by the step before
// it.
func stepName(steps []v1alpha1.RolloutStep, i int) string {
	switch {
	case steps[i].Pause == nil:
		return "the step of " + describe.StepWords(steps[i])
	case i == 0:
		return "the " + describe.StepWords(steps[i]) + " at the beginning"
	}

	return "the " + describe.StepWords(steps[i]) + " after " + describe.StepWords(steps[i-1])
}
