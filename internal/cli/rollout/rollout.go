// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rollout has the commands that create, show and steer rollouts:
// "push", and "rollout" with its subcommands.
//
// It must not decide what a rollout does: it prints plans and status, and
// writes specs.
package rollout

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
)

// app runs the commands of this package.
type app struct{ *command.Env }

// Command returns "rollout" and its subcommands.
func Command(env *command.Env) *cobra.Command {
	a := &app{env}
	cmd := command.Group(&cobra.Command{
		Use:   "rollout",
		Short: "Show and control rollouts",
		Long: `Show and control rollouts.

The commands that control a rollout write its spec, and evenkeel-controller acts on it. Each command prints what it wrote
and what happens next. Running a command twice changes nothing.`,
		Example: `  kubectl evenkeel rollout list
  kubectl evenkeel rollout status workers -w
  kubectl evenkeel rollout approve workers`,
	})
	cmd.AddCommand(a.listCommand(), a.statusCommand(), a.historyCommand(), a.planCommand())
	for _, i := range intents() {
		cmd.AddCommand(i.command(a))
	}

	cmd.AddCommand(a.retryCommand(), a.undoCommand(), a.unpinCommand())

	return cmd
}

func (a *app) listCommand() *cobra.Command {
	var f printing.Format
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List rollouts",
		Example: `  kubectl evenkeel rollout list
  kubectl evenkeel rollout list -o wide`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.Client()
			if err != nil {
				return err
			}

			list, err := query.Rollouts(cmd.Context(), c)
			if err != nil {
				return fmt.Errorf("list rollouts: %w", err)
			}

			return a.printList(cmd.Context(), c, f, list)
		},
	}
	printing.FormatFlag(cmd, &f, printing.Wide, printing.JSON, printing.YAML, printing.Name)

	return cmd
}

func (a *app) printList(ctx context.Context, c client.Client, f printing.Format, list *v1alpha1.NodeConfigRolloutList) error {
	switch {
	case f == printing.Name:
		for i := range list.Items {
			if err := printing.Object(a.Out, f, &list.Items[i]); err != nil {
				return err
			}
		}

		return nil
	case f != "" && f != printing.Wide:
		return printing.Object(a.Out, f, list)
	case len(list.Items) == 0:
		fmt.Fprintln(a.ErrOut, "No rollouts found; create one with: kubectl evenkeel push NAME -f FILE --selector LABELS")
		return nil
	}

	var rows [][]string
	for i := range list.Items {
		rows = append(rows, listRow(f, &list.Items[i]))
	}
	if err := printing.Table(a.Out, listHeader(f), rows); err != nil {
		return err
	}

	settings := fleet.SettingsIn(list.Items)
	away := describe.NoController(query.ControllerRenewal(ctx, c, settings.Namespace), settings.Namespace, time.Now())
	for _, l := range describe.SummaryOf(describe.Situation{Rollouts: list.Items, NoLeader: away}) {
		if l.Level != describe.LevelOK {
			fmt.Fprintf(a.ErrOut, "note: %s: %s\n", l.Words, l.Next)
		}
	}

	return nil
}

func listHeader(f printing.Format) []string {
	header := []string{"NAME", "REVISION", "STATUS", "STEP", "UPDATED", "FAILED", "AGE"}
	if f == printing.Wide {
		header = append(header, "NODES", "MESSAGE")
	}

	return header
}

func listRow(f printing.Format, r *v1alpha1.NodeConfigRollout) []string {
	st := &r.Status
	revision, steps, updated := "", "", ""
	if st.UpdateRevision != nil {
		revision, steps, updated = fmt.Sprint(st.UpdateRevision.Number), stepsDone(r), describe.UpdatedOf(&st.Nodes)
	}

	phase, message := string(st.Phase), st.Message
	if !query.Observed(r) {
		phase, message = "Unseen", query.Unobserved
	} else if describe.UrgencyOf(r).Reason == describe.ReasonRollingBackFrozen {
		phase += ",Frozen"
	}

	row := []string{r.Name, revision, phase, steps, updated, fmt.Sprint(st.Nodes.Failed), describe.Age(r.CreationTimestamp, time.Now())}
	if f == printing.Wide {
		row = append(row, describe.SelectorWords(&r.Spec), message)
	}

	return row
}

// oneRollout accepts the name of a rollout, rolloutAndMore also arguments after
// it.
var (
	oneRollout     = command.Args(1, 1, "needs the name of one rollout: "+listRollouts)
	rolloutAndMore = command.Args(1, math.MaxInt, "needs the name of one rollout, and perhaps names of nodes: "+listRollouts)
)

const listRollouts = "list them with: kubectl evenkeel rollout list"

// completeRetry completes the name of a rollout, and after it those of nodes.
func (a *app) completeRetry(cmd *cobra.Command, args []string, so string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return a.CompleteRollout(cmd, nil, so)
	}

	return a.CompleteNode(cmd, nil, so)
}

// load reads a rollout.
func (a *app) load(ctx context.Context, name string) (client.WithWatch, *v1alpha1.NodeConfigRollout, error) {
	c, err := a.Client()
	if err != nil {
		return nil, nil, err
	}

	r, err := query.Rollout(ctx, c, name)

	return c, r, err
}

// stepsDone counts the finished steps of a rollout and all, such as 2/5; empty
// if the steps are invalid.
func stepsDone(r *v1alpha1.NodeConfigRollout) string {
	steps, err := describe.StepsOf(r)
	if err != nil {
		return ""
	}

	return fmt.Sprintf("%d/%d", min(max(int(r.Status.Step), 0), len(steps)), len(steps))
}
