package rollout

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/steer"
)

// intentCommand returns a command that edits a rollout's spec whatever its status is.
func (a *app) intentCommand(use, short, long, example string, change steer.Change) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: short + ".\n\n" + long, Example: "  kubectl evenkeel rollout " + example,
		Args: oneRollout, ValidArgsFunction: a.CompleteRollout,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Client()
			if err != nil {
				return err
			}
			return a.print(steer.Edit(cmd.Context(), c, args[0], change))
		},
	}
}

func (a *app) pauseCommands() []*cobra.Command {
	return []*cobra.Command{
		a.intentCommand("pause NAME", "Stop assigning the revision to more nodes",
			"Nodes in flight finish, nodes that join still get a configuration, and a rollback continues. Use freeze to stop these too.",
			"pause workers", steer.Pause),
		a.intentCommand("resume NAME", "Resume a paused rollout", "A halt, a missing approval and a freeze stay.",
			"resume workers", steer.Resume),
		a.intentCommand("freeze NAME", "Stop all writes to nodes, including a rollback and nodes that join", "Use unfreeze to continue.",
			"freeze workers", steer.Freeze),
		a.intentCommand("unfreeze NAME", "End a freeze", "A pause stays.", "unfreeze workers", steer.Unfreeze),
	}
}

// revisionFlag adds --revision to a command that changes the state of the revision that is being rolled out.
func revisionFlag(cmd *cobra.Command, revision *int64) {
	cmd.Flags().Int64Var(revision, "revision", 0, "only if this revision is being rolled out")
}

func (a *app) promoteCommand() *cobra.Command {
	var full bool
	var revision int64
	cmd := &cobra.Command{
		Use:   "promote NAME",
		Short: "Approve the next steps of a rollout that waits at a pause",
		Long: `Approve the next steps of a rollout that waits at a pause.

The rollout continues after the pause that it has reached. With --full it continues after every later pause too, at any
step; budgets and the failure policy still apply.`,
		Example: `  kubectl evenkeel rollout promote workers
  kubectl evenkeel rollout promote workers --full`,
		Args: oneRollout, ValidArgsFunction: a.CompleteRollout,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.intend(cmd.Context(), args[0], revision, steer.Promote(full))
		},
	}
	cmd.Flags().BoolVar(&full, "full", false, "also continue after every later pause")
	revisionFlag(cmd, &revision)
	return cmd
}

func (a *app) abortCommand() *cobra.Command {
	var rollback bool
	var revision int64
	cmd := &cobra.Command{
		Use:   "abort NAME",
		Short: "Stop a revision permanently",
		Long: `Stop a revision permanently.

Nodes that run it keep it. With --rollback they return to the last revision that succeeded; this also works on a rollout
that has stopped or is complete.`,
		Example: `  kubectl evenkeel rollout abort workers
  kubectl evenkeel rollout abort workers --rollback`,
		Args: oneRollout, ValidArgsFunction: a.CompleteRollout,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.intend(cmd.Context(), args[0], revision, steer.Abort(rollback))
		},
	}
	cmd.Flags().BoolVar(&rollback, "rollback", false, "return the nodes to the last revision that succeeded")
	revisionFlag(cmd, &revision)
	return cmd
}

func (a *app) retryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retry NAME [NODE...]",
		Short: "Try a revision again on nodes on which it failed, and lift its stop",
		Long: `Try a revision again on nodes on which it failed, and lift its stop. This also lifts an abort.

Without node names, all nodes on which the revision failed try it again.`,
		Example: `  kubectl evenkeel rollout retry workers
  kubectl evenkeel rollout retry workers node-7 node-12`,
		Args: rolloutAndMore, ValidArgsFunction: a.completeRetry,
		RunE: func(cmd *cobra.Command, args []string) error {
			nodes := slices.Compact(slices.Sorted(slices.Values(args[1:])))
			if len(nodes) > v1alpha1.MaxRetryNodes {
				return fmt.Errorf("%d nodes are more than the limit of %d: name no nodes to retry all that failed", len(nodes), v1alpha1.MaxRetryNodes)
			}
			c, err := a.Client()
			if err != nil {
				return err
			}
			return a.print(steer.Intend(cmd.Context(), c, args[0], 0, steer.Retry(cmd.Context(), c, nodes)))
		},
	}
	return cmd
}

// intend changes the spec for the revision that is being rolled out, and prints what happens next.
func (a *app) intend(ctx context.Context, name string, revision int64, change steer.Change) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	return a.print(steer.Intend(ctx, c, name, revision, change))
}

// print prints the message of an edit, unless it failed.
func (a *app) print(words string, err error) error {
	if err == nil {
		fmt.Fprintln(a.Out, words)
	}
	return err
}
