// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node has the commands about nodes: "node", "nodes" and "assign".
//
// It must not talk to an agent: it reads and writes NodeConfigs.
package node

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// app runs the commands of this package.
type app struct{ *command.Env }

// Command returns "node".
func Command(env *command.Env) *cobra.Command {
	a := &app{env}
	var output printing.Format
	cmd := &cobra.Command{
		Use:   "node NAME",
		Short: "Show the state of one node, the reason, and what happens next",
		Example: `  kubectl evenkeel node worker-17
  kubectl evenkeel node worker-17 -o json`,
		Args:              command.Args(1, 1, "needs the name of one node: list them with: kubectl evenkeel nodes"),
		ValidArgsFunction: a.CompleteNode,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.node(cmd.Context(), args[0], output) },
	}
	printing.FormatFlag(cmd, &output, printing.JSON, printing.YAML)
	return cmd
}

func (a *app) node(ctx context.Context, name string, output printing.Format) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	now := time.Now()
	view, err := query.ViewNode(ctx, c, name)
	if err != nil {
		return err
	}
	v := describe.NodeOf(view, now)
	if output != "" {
		return printing.Encode(a.Out, output, v)
	}
	if v.AgentVersion != "" && v.AgentVersion != a.Program.Version {
		fmt.Fprintf(a.ErrOut, "note: the version of the agent (%s) differs from the version of this program (%s)\n",
			printable.Line(v.AgentVersion), a.Program.Version)
	}
	tw := tabwriter.NewWriter(a.Out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(tw, "Node:\t%s\n", printable.Line(v.Name))
	for _, l := range v.Lines(now) {
		fmt.Fprintf(tw, "%s:\t%s\n", l.Key, l.Text)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(a.Out, "\nWhat happens next:")
	for _, s := range v.Next {
		fmt.Fprintf(a.Out, "  - %s\n", printable.Line(s))
	}
	return nil
}
