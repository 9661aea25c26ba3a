// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/internal/operator/steer"
)

// intent is a command that changes the spec of a rollout, and what its flags
// say.
type intent struct {
	name, long, examples string
	flags                []string
	change               func(i *intent) steer.Change
	// whatever: the status of the rollout does not matter. quiet: nothing says
	// which nodes change.
	whatever, quiet bool

	reason                string
	revision              int64
	force, full, rollback bool
}

// intents returns the commands that change the spec of one rollout as a whole.
func intents() []*intent {
	return []*intent{
		{name: "pause", whatever: true, quiet: true, long: `Stop assigning the revision to more nodes.

Nodes in flight finish, nodes that join still get a configuration, and a rollback continues.
Use freeze to stop these too.`, examples: `  kubectl evenkeel rollout pause workers
  kubectl evenkeel rollout pause workers --reason "incident 4711"`,
			flags: []string{"reason"}, change: func(i *intent) steer.Change { return steer.Pause(i.reason) }},
		{name: "resume", whatever: true, long: `Resume a paused rollout.

A halt, a missing approval and a freeze stay.`, examples: `  kubectl evenkeel rollout resume workers`,
			flags: []string{"force"}, change: func(i *intent) steer.Change { return steer.Onward(steer.Resume, i.force) }},
		{name: "freeze", whatever: true, quiet: true, long: `Stop all writes to nodes, including a rollback and nodes that join.

Use unfreeze to continue.`, examples: `  kubectl evenkeel rollout freeze workers
  kubectl evenkeel rollout freeze workers --reason "incident 4711"`,
			flags: []string{"reason"}, change: func(i *intent) steer.Change { return steer.Freeze(i.reason) }},
		{name: "unfreeze", whatever: true, long: `End a freeze.

A pause stays.`, examples: `  kubectl evenkeel rollout unfreeze workers`,
			flags: []string{"force"}, change: func(i *intent) steer.Change { return steer.Onward(steer.Unfreeze, i.force) }},
		{name: "approve", long: `Approve the next steps of a rollout that waits at a pause.

The rollout continues after the pause that it has reached. With --full it continues after every later pause too, at any
step; budgets and the failure policy still apply.`, examples: `  kubectl evenkeel rollout approve workers
  kubectl evenkeel rollout approve workers --full`,
			flags:  []string{"full", "force", "revision", "reason"},
			change: func(i *intent) steer.Change { return steer.Onward(steer.Approve(i.full, i.reason), i.force) }},
		{name: "abort", long: `Stop a revision permanently.

Nodes that run it keep it. With --rollback they return to the last revision that succeeded; this also works on a rollout
that has stopped or is complete.`, examples: `  kubectl evenkeel rollout abort workers
  kubectl evenkeel rollout abort workers --rollback --reason "wrong eviction threshold"`,
			flags:  []string{"rollback", "revision", "reason"},
			change: func(i *intent) steer.Change { return steer.Abort(i.rollback, i.reason) }},
	}
}

// command returns the command of an intent.
func (i *intent) command(a *app) *cobra.Command {
	cmd := a.editCommand(i.name+" NAME", i.long, i.examples, func(ctx context.Context, c client.Client, args []string) (string, error) {
		var err error
		if i.reason, err = steer.Reason(i.reason); err != nil {
			return "", err
		}
		if i.quiet {
			return steer.Edit(ctx, c, args[0], i.change(i))
		}
		if i.whatever {
			i.revision = steer.AnyStatus
		}

		return steer.EditAndTell(ctx, c, args[0], i.revision, i.change(i))
	})
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.StringVar(&i.reason, "reason", "", "why, for other people: shown in the rollout's status")
	all.BoolVar(&i.force, "force", false, "continue, although the configuration failed before")
	all.Int64Var(&i.revision, "revision", 0, "only if this revision is being rolled out")
	all.BoolVar(&i.full, "full", false, "also continue after every later pause")
	all.BoolVar(&i.rollback, "rollback", false, "return the nodes to the last revision that succeeded")
	for _, name := range i.flags {
		cmd.Flags().AddFlag(all.Lookup(name))
	}

	return cmd
}

// editCommand returns a command that changes the spec of a rollout by edit, and
// prints what happens next.
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
