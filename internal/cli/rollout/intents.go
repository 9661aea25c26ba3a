package rollout

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/steer"
)

// intentCommand is a command that edits a rollout's spec by what the spec alone says.
func (a *app) intentCommand(use, short, long, example string, change steer.Change) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: short + ".\n\n" + long, Example: "  kubectl evenkeel rollout " + example,
		Args: oneRollout, ValidArgsFunction: a.CompleteRollout,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Client()
			if err != nil {
				return err
			}
			return a.said(steer.Edit(cmd.Context(), c, args[0], change))
		},
	}
}

func (a *app) pauseCommands() []*cobra.Command {
	return []*cobra.Command{
		a.intentCommand("pause NAME", "Stop giving nodes the revision",
			"Nodes in flight go on, nodes that join are served, and a rollback is finished. To stop these too: freeze.",
			"pause workers", steer.Pause),
		a.intentCommand("resume NAME", "Take back a pause", "It does not lift a stop, an approval that is missing, or a freeze.",
			"resume workers", steer.Resume),
		a.intentCommand("freeze NAME", "Stop everything, rollback and nodes that join included", "Take it back with unfreeze.",
			"freeze workers", steer.Freeze),
		a.intentCommand("unfreeze NAME", "Take back a freeze", "A pause stays.", "unfreeze workers", steer.Unfreeze),
	}
}

// revisionFlag adds --revision to a command that is about the revision that is rolled out.
func revisionFlag(cmd *cobra.Command, revision *int64) {
	cmd.Flags().Int64Var(revision, "revision", 0, "only if this is the revision that is rolled out")
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
		Args: oneRollout, ValidArgsFunction: a.CompleteRollout,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.intend(cmd.Context(), args[0], revision, steer.Promote(full))
		},
	}
	cmd.Flags().BoolVar(&full, "full", false, "pass every later pause as well")
	revisionFlag(cmd, &revision)
	return cmd
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
		Args: oneRollout, ValidArgsFunction: a.CompleteRollout,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.intend(cmd.Context(), args[0], revision, steer.Abort(rollback))
		},
	}
	cmd.Flags().BoolVar(&rollback, "rollback", false, "take the nodes back to the revision that succeeded last")
	revisionFlag(cmd, &revision)
	return cmd
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
			c, err := a.Client()
			if err != nil {
				return err
			}
			return a.said(steer.EditObserved(cmd.Context(), c, args[0], 0, steer.Retry(cmd.Context(), c, nodes)))
		},
	}
	return cmd
}

// intend writes an intent about the revision that is rolled out, and says what that did.
func (a *app) intend(ctx context.Context, name string, revision int64, change steer.Change) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	return a.said(steer.EditObserved(ctx, c, name, revision, change))
}

// said prints what an edit said.
func (a *app) said(words string, err error) error {
	if err == nil {
		fmt.Fprintln(a.Out, words)
	}
	return err
}
