// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/internal/operator/steer"
)

// editCommand returns a command that changes the spec of a rollout by edit, and prints what happens next.
func (a *app) editCommand(use, long, examples string,
	edit func(ctx context.Context, c client.Client, args []string) (string, error)) *cobra.Command {
	short, _, _ := strings.Cut(long, ".\n")
	return &cobra.Command{
		Use: use, Short: short, Long: long, Example: examples, Args: oneRollout, ValidArgsFunction: a.CompleteRollout,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Client()
			if err != nil {
				return err
			}
			return a.print(edit(cmd.Context(), c, args))
		},
	}
}

// simpleCommands returns the commands that change the spec whatever the status is.
func (a *app) simpleCommands() []*cobra.Command {
	var all []*cobra.Command
	for _, s := range []struct {
		name, long string
		change     steer.Change
		request    func(reason string) steer.Change // with --reason
	}{
		{"pause", `Stop assigning the revision to more nodes.

Nodes in flight finish, nodes that join still get a configuration, and a rollback continues.
Use freeze to stop these too.`, nil, steer.Pause},
		{"resume", `Resume a paused rollout.

A halt, a missing approval and a freeze stay.`, steer.Resume, nil},
		{"freeze", `Stop all writes to nodes, including a rollback and nodes that join.

Use unfreeze to continue.`, nil, steer.Freeze},
		{"unfreeze", `End a freeze.

A pause stays.`, steer.Unfreeze, nil},
	} {
		var reason string
		var force bool
		example := "  kubectl evenkeel rollout " + s.name + " workers"
		if s.request != nil {
			example += "\n" + example + ` --reason "incident 4711"`
		}
		cmd := a.editCommand(s.name+" NAME", s.long, example, func(ctx context.Context, c client.Client, args []string) (string, error) {
			if s.request == nil {
				return steer.EditAndTell(ctx, c, args[0], steer.AnyStatus, steer.Onward(s.change, force))
			}
			why, err := steer.Reason(reason)
			if err != nil {
				return "", err
			}
			return steer.Edit(ctx, c, args[0], s.request(why))
		})
		if s.request != nil {
			reasonFlag(cmd, &reason)
		} else {
			forceFlag(cmd, &force)
		}
		all = append(all, cmd)
	}
	return all
}

// reasonFlag adds --reason to a command whose request the rollout shows.
func reasonFlag(cmd *cobra.Command, reason *string) {
	cmd.Flags().StringVar(reason, "reason", "", "why, for other people: shown in the rollout's status")
}

// forceFlag adds --force to a command after which a rollout continues.
func forceFlag(cmd *cobra.Command, force *bool) {
	cmd.Flags().BoolVar(force, "force", false, "continue, although the configuration failed before")
}

// revisionFlag adds --revision to a command that changes the state of the revision that is being rolled out.
func revisionFlag(cmd *cobra.Command, revision *int64) {
	cmd.Flags().Int64Var(revision, "revision", 0, "only if this revision is being rolled out")
}

func (a *app) approveCommand() *cobra.Command {
	var full, force bool
	var revision int64
	var reason string
	cmd := a.editCommand("approve NAME", `Approve the next steps of a rollout that waits at a pause.

The rollout continues after the pause that it has reached. With --full it continues after every later pause too, at any
step; budgets and the failure policy still apply.`, `  kubectl evenkeel rollout approve workers
  kubectl evenkeel rollout approve workers --full`,
		func(ctx context.Context, c client.Client, args []string) (string, error) {
			why, err := steer.Reason(reason)
			if err != nil {
				return "", err
			}
			return steer.EditAndTell(ctx, c, args[0], revision, steer.Onward(steer.Approve(full, why), force))
		})
	cmd.Flags().BoolVar(&full, "full", false, "also continue after every later pause")
	forceFlag(cmd, &force)
	revisionFlag(cmd, &revision)
	reasonFlag(cmd, &reason)
	return cmd
}

func (a *app) abortCommand() *cobra.Command {
	var rollback bool
	var revision int64
	var reason string
	cmd := a.editCommand("abort NAME", `Stop a revision permanently.

Nodes that run it keep it. With --rollback they return to the last revision that succeeded; this also works on a rollout
that has stopped or is complete.`, `  kubectl evenkeel rollout abort workers
  kubectl evenkeel rollout abort workers --rollback --reason "wrong eviction threshold"`,
		func(ctx context.Context, c client.Client, args []string) (string, error) {
			why, err := steer.Reason(reason)
			if err != nil {
				return "", err
			}
			return steer.EditAndTell(ctx, c, args[0], revision, steer.Abort(rollback, why))
		})
	cmd.Flags().BoolVar(&rollback, "rollback", false, "return the nodes to the last revision that succeeded")
	revisionFlag(cmd, &revision)
	reasonFlag(cmd, &reason)
	return cmd
}

func (a *app) retryCommand() *cobra.Command {
	var force bool
	cmd := a.editCommand("retry NAME [NODE...]", `Try a revision again on nodes on which it failed, and lift its stop.

This also lifts an abort. Other nodes wait until the named nodes have proven the revision. Without node names, all nodes on which
it failed try it again, and the rollout goes on with the others: a revision that was stopped needs --force then, except after an
outage (Inconclusive).`, `  kubectl evenkeel rollout retry workers node-7 node-12
  kubectl evenkeel rollout retry workers --force`,
		func(ctx context.Context, c client.Client, args []string) (string, error) {
			return steer.EditAndTell(ctx, c, args[0], 0, steer.Retry(ctx, c, args[1:], force))
		})
	cmd.Flags().BoolVar(&force, "force", false, "go on with all nodes, although the revision was stopped")
	cmd.Args, cmd.ValidArgsFunction = rolloutAndMore, a.completeRetry
	return cmd
}

// print prints the message of an edit, unless it failed.
func (a *app) print(message string, err error) error {
	if err == nil {
		fmt.Fprintln(a.Out, message)
	}
	return err
}
