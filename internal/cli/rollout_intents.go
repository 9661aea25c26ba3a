package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// change edits a rollout's spec and says in words, after the rollout's name, what that did and what comes next. Its error
// goes on after the name too.
type change func(*v1alpha1.NodeConfigRollout) (string, error)

// intentCommand is a command that edits a rollout's spec by what the spec alone says.
func (a *app) intentCommand(use, short, long, example string, change change) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: short + ".\n\n" + long, Example: "  kubectl evenkeel rollout " + example,
		Args: oneRollout, ValidArgsFunction: a.completeRollout,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			return a.edit(cmd.Context(), c, args[0], change)
		},
	}
}

func (a *app) pauseCommands() []*cobra.Command {
	return []*cobra.Command{
		a.intentCommand("pause NAME", "Stop giving nodes the revision",
			"Nodes in flight go on, nodes that join are served, and a rollback is finished. To stop these too: freeze.",
			"pause workers", func(r *v1alpha1.NodeConfigRollout) (string, error) {
				if r.Spec.Paused {
					return "is paused already: nothing changes", nil
				}
				r.Spec.Paused = true
				if halted(r) {
					return "paused; it is " + haltWords(r), nil
				}
				return "paused: nodes in flight go on, no others begin; go on with: kubectl evenkeel rollout resume " + r.Name, nil
			}),
		a.intentCommand("resume NAME", "Take back a pause", "It does not lift a stop, an approval that is missing, or a freeze.",
			"resume workers", resume),
		a.intentCommand("freeze NAME", "Stop everything, rollback and nodes that join included", "Take it back with unfreeze.",
			"freeze workers", func(r *v1alpha1.NodeConfigRollout) (string, error) {
				if r.Spec.Frozen {
					return "is frozen already: nothing changes", nil
				}
				r.Spec.Frozen = true
				return "frozen: no NodeConfig is written any more; go on with: kubectl evenkeel rollout unfreeze " + r.Name, nil
			}),
		a.intentCommand("unfreeze NAME", "Take back a freeze", "A pause stays.", "unfreeze workers",
			func(r *v1alpha1.NodeConfigRollout) (string, error) {
				if !r.Spec.Frozen {
					return "is not frozen: nothing changes", nil
				}
				r.Spec.Frozen = false
				return "unfrozen; " + onward(r), nil
			}),
	}
}

func resume(r *v1alpha1.NodeConfigRollout) (string, error) {
	switch {
	case r.Spec.Paused:
		r.Spec.Paused = false
		return "resumed; " + onward(r), nil
	case halted(r):
		return "", haltedError(r)
	case r.Spec.Frozen:
		return "", fmt.Errorf("is frozen, not paused: kubectl evenkeel rollout unfreeze %s", r.Name)
	case seen(r) && r.Status.Phase == v1alpha1.RolloutAwaitingApproval:
		return "", fmt.Errorf("is not paused, it waits for approval: kubectl evenkeel rollout promote %s", r.Name)
	}
	return "is not paused: nothing changes", nil
}

// next says what comes after an edit: what is still in the way, or how to follow it.
func next(r *v1alpha1.NodeConfigRollout) string {
	switch {
	case r.Spec.Frozen:
		return "it is still frozen: kubectl evenkeel rollout unfreeze " + r.Name
	case r.Spec.Paused:
		return "it is still paused: kubectl evenkeel rollout resume " + r.Name
	}
	return "follow it with: kubectl evenkeel rollout status " + r.Name + " -w"
}

// onward is next of an edit that leaves the revision stopped if it was.
func onward(r *v1alpha1.NodeConfigRollout) string {
	if halted(r) && !r.Spec.Frozen && !r.Spec.Paused {
		return "it is still " + haltWords(r)
	}
	return next(r)
}

func halted(r *v1alpha1.NodeConfigRollout) bool { return r.Status.Halt != nil && seen(r) }

// haltWords says that a rollout was stopped, and what can be done about that.
func haltWords(r *v1alpha1.NodeConfigRollout) string {
	h := r.Status.Halt
	return fmt.Sprintf("%s at revision %d (%s): push a fixed configuration, or kubectl evenkeel rollout retry %s%s",
		phaseWords(r.Status.Phase), h.Revision, h.Reason, r.Name, orUndo(r))
}

func haltedError(r *v1alpha1.NodeConfigRollout) error { return errors.New("is " + haltWords(r)) }

// orUndo offers an undo where there is something to go back to.
func orUndo(r *v1alpha1.NodeConfigRollout) string {
	if before(r) == 0 {
		return ""
	}
	return ", or kubectl evenkeel rollout undo " + r.Name
}

// phaseWords is a phase within a sentence.
func phaseWords(p v1alpha1.RolloutPhase) string {
	var b strings.Builder
	for i, r := range orUnknown(p) {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// revisionFlag adds --revision to a command that is about the revision that is rolled out.
func revisionFlag(cmd *cobra.Command, revision *int64) {
	cmd.Flags().Int64Var(revision, "revision", 0, "only if this is the revision that is rolled out")
}

// intend edits a rollout by what its status says. It waits a little until that answers the spec; if it does not, only an
// intent that is there already is fine. It refuses another revision than the one that is asked for; 0 is any.
func (a *app) intend(ctx context.Context, name string, revision int64, change change) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	_, late := getSeen(ctx, c, name)
	if late != nil && !errors.Is(late, errUnseen) {
		return late
	}
	return a.edit(ctx, c, name, func(r *v1alpha1.NodeConfigRollout) (string, error) {
		if r.Status.UpdateRevision == nil {
			switch {
			case !seen(r):
				return "", fmt.Errorf("has no revision: %w", errUnseen)
			case r.Status.Message != "":
				return "", fmt.Errorf("has no revision (%s: %s)", r.Status.Phase, oneLine(r.Status.Message))
			}
			return "", fmt.Errorf("has no revision: kubectl evenkeel rollout status %s", r.Name)
		}
		if now := r.Status.UpdateRevision.Number; revision != 0 && revision != now {
			return "", fmt.Errorf("is at revision %d, not %d: kubectl evenkeel rollout status %s", now, revision, r.Name)
		}
		before := r.DeepCopy()
		words, err := change(r)
		if !seen(r) && err == nil {
			changes, e := differences(before, r)
			if e != nil {
				return "", e
			}
			if len(changes) > 0 {
				return "", fmt.Errorf("cannot be judged: %w", errUnseen)
			}
			words += "; " + unseen
		}
		return words, err
	})
}

func (a *app) promoteCommand() *cobra.Command {
	var full bool
	var revision int64
	cmd := &cobra.Command{
		Use:   "promote NAME",
		Short: "Let a rollout that waits at a pause go on",
		Long: `Let a rollout that waits at a pause of its steps go on.

It passes the pause that the rollout is at. With --full it passes this and every later pause, wherever the rollout is;
budgets and the failure policy still hold.`,
		Example: `  kubectl evenkeel rollout promote workers
  kubectl evenkeel rollout promote workers --full`,
		Args: oneRollout, ValidArgsFunction: a.completeRollout,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.intend(cmd.Context(), args[0], revision, func(r *v1alpha1.NodeConfigRollout) (string, error) { return promote(r, full) })
		},
	}
	cmd.Flags().BoolVar(&full, "full", false, "pass every later pause as well")
	revisionFlag(cmd, &revision)
	return cmd
}

func promote(r *v1alpha1.NodeConfigRollout, full bool) (string, error) {
	steps, err := stepsOf(r)
	if err != nil {
		return "", err
	}
	st := &r.Status
	revision, step, last := st.UpdateRevision.Number, int(st.Step), len(steps)-1
	switch {
	case st.Halt != nil:
		return "", haltedError(r)
	case st.Phase == v1alpha1.RolloutComplete || step > last:
		return "", fmt.Errorf("has nothing that waits: revision %d is through all its steps", revision)
	case !full && !steps[step].IsPause():
		return "", fmt.Errorf("has nothing that waits: it is %s, at %s; --full passes later pauses ahead", orUnknown(st.Phase), stepName(steps, step))
	}
	target := step
	if full {
		target = last
	}
	if p := r.Spec.Approval; p != nil && p.Revision == revision && int(p.Step) >= target {
		return fmt.Sprintf("has the approval of revision %d up to %s already: nothing changes", revision, stepName(steps, min(int(p.Step), last))), nil
	}
	r.Spec.Approval = &v1alpha1.RolloutApproval{Revision: revision, Step: int32(target)}
	words := fmt.Sprintf("promoted: revision %d passes %s", revision, stepName(steps, target))
	if full {
		words = fmt.Sprintf("promoted: revision %d passes every pause", revision)
	}
	return words + "; " + next(r), nil
}

func (a *app) abortCommand() *cobra.Command {
	var rollback bool
	var revision int64
	cmd := &cobra.Command{
		Use:   "abort NAME",
		Short: "Stop a revision for good",
		Long: `Stop a revision for good.

Nodes that run it keep it; with --rollback they go back to the revision that succeeded last. A rollout that is stopped
already, or complete, can be rolled back with it too.`,
		Example: `  kubectl evenkeel rollout abort workers
  kubectl evenkeel rollout abort workers --rollback`,
		Args: oneRollout, ValidArgsFunction: a.completeRollout,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.intend(cmd.Context(), args[0], revision, func(r *v1alpha1.NodeConfigRollout) (string, error) { return abort(r, rollback) })
		},
	}
	cmd.Flags().BoolVar(&rollback, "rollback", false, "take the nodes back to the revision that succeeded last")
	revisionFlag(cmd, &revision)
	return cmd
}

func abort(r *v1alpha1.NodeConfigRollout, rollback bool) (string, error) {
	st := &r.Status
	revision := st.UpdateRevision.Number
	there := r.Spec.Abort != nil && r.Spec.Abort.Revision == revision
	switch {
	case there && (r.Spec.Abort.Rollback || !rollback):
		return fmt.Sprintf("has the abort of revision %d already: nothing changes", revision), nil
	case st.Halt != nil && (st.Halt.Rollback || !rollback):
		return fmt.Sprintf("is %s at revision %d already (%s): nothing changes", phaseWords(st.Phase), revision, st.Halt.Reason), nil
	case st.Phase == v1alpha1.RolloutComplete && !rollback:
		return "", fmt.Errorf("is complete: there is nothing to stop; kubectl evenkeel rollout abort %s --rollback goes back at the pace of a rollback%s", r.Name, orUndo(r))
	}
	r.Spec.Abort = &v1alpha1.RolloutAbort{Revision: revision, Rollback: rollback}
	words := fmt.Sprintf("aborted: revision %d stops, nodes that run it keep it; ", revision)
	if rollback {
		words = fmt.Sprintf("aborted: revision %d stops and its nodes go back; ", revision)
	}
	if r.Spec.Frozen && rollback {
		return words + next(r), nil
	}
	return words + "push a fixed configuration" + orUndo(r), nil
}

func (a *app) retryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retry NAME [NODE...]",
		Short: "Have nodes on which a revision failed try it again, and lift its stop",
		Long: `Have nodes on which a revision failed try it again, and lift its stop, an abort included.

Without nodes all try it again on which it failed.`,
		Example: `  kubectl evenkeel rollout retry workers
  kubectl evenkeel rollout retry workers node-7 node-12`,
		Args: rolloutAndMore, ValidArgsFunction: a.completeRetry,
		RunE: func(cmd *cobra.Command, args []string) error {
			nodes := slices.Compact(slices.Sorted(slices.Values(args[1:])))
			if len(nodes) > v1alpha1.MaxRetryNodes {
				return fmt.Errorf("%d nodes are more than the %d that can be named: name none to retry all that failed", len(nodes), v1alpha1.MaxRetryNodes)
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			return a.intend(cmd.Context(), args[0], 0, func(r *v1alpha1.NodeConfigRollout) (string, error) {
				before := r.DeepCopy()
				words, err := retry(r, nodes)
				if err == nil && len(nodes) > 0 && !equality.Semantic.DeepEqual(before.Spec, r.Spec) {
					err = checkRetry(cmd.Context(), c, before, nodes)
				}
				return words, err
			})
		},
	}
	return cmd
}

// checkRetry says on which of these nodes the revision did not fail. It is as good as failed on a node that went back and
// remembers it as bad.
func checkRetry(ctx context.Context, c client.Client, r *v1alpha1.NodeConfigRollout, nodes []string) error {
	var all []pair
	f, err := gather(ctx, c, r, func(p pair) { all = append(all, p) })
	if err != nil {
		return fmt.Errorf("cannot be looked at: %w", err)
	}
	target := r.Status.UpdateRevision
	plan := rollout.Plan(f.policy, f.progress, f.nodes)
	why := map[string]string{}
	for i, p := range all {
		bad := p.config != nil && slices.ContainsFunc(p.config.Status.BadConfigs, func(b v1alpha1.BadConfig) bool { return b.UID == target.ConfigMapRef.UID })
		switch s := plan.Standing(i); {
		case s.State == rollout.Conflicted || s.State == rollout.Manual:
			why[p.node.Name] = s.Why
		case s.State == rollout.Failed || bad:
			why[p.node.Name] = ""
		default:
			why[p.node.Name] = "it is " + s.State.String()
		}
	}
	var wrong []string
	for _, name := range nodes {
		words, selected := why[name]
		if !selected {
			words = "the rollout does not select it"
		}
		if words != "" {
			wrong = append(wrong, name+" ("+words+")")
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("cannot retry revision %d on nodes on which it did not fail: %s; kubectl evenkeel nodes --rollout %s --failed lists those on which it did",
			target.Number, few(wrong), r.Name)
	}
	return nil
}

func retry(r *v1alpha1.NodeConfigRollout, nodes []string) (string, error) {
	st := &r.Status
	revision, attempt := st.UpdateRevision.Number, max(st.Attempt, 1)+1
	aborted := r.Spec.Abort != nil && r.Spec.Abort.Revision == revision
	if p := r.Spec.Retry; p != nil && p.Revision == revision && p.Attempt == attempt && slices.Equal(p.Nodes, nodes) && !aborted {
		return fmt.Sprintf("has attempt %d at revision %d asked for already: nothing changes", attempt, revision), nil
	}
	if st.Halt == nil && st.Nodes.Failed == 0 && !aborted {
		return "", fmt.Errorf("has nothing to retry: revision %d failed on no node, and it is %s", revision, orUnknown(st.Phase))
	}
	r.Spec.Retry = &v1alpha1.RolloutRetry{Revision: revision, Attempt: attempt, Nodes: nodes}
	if aborted {
		r.Spec.Abort = nil
	}
	which := "all nodes on which it failed try it again"
	if len(nodes) > 0 {
		which = few(nodes) + " try it again; other nodes wait until those have tried"
	}
	if st.Halt != nil {
		which += "; the stop is lifted"
	}
	return fmt.Sprintf("retried: attempt %d at revision %d begins, %s; %s", attempt, revision, which, next(r)), nil
}
