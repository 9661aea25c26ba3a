// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node has the commands about nodes: "node", "nodes" and "assign".
//
// It must not talk to an agent: it reads and writes NodeConfigs.
package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// nodesOptions has the flags of "nodes".
type nodesOptions struct {
	selector, rollout string
	failed, problems  bool
	drift             bool
	compared          *driftRows          // counts nodes; nil without --drift
	seen              *describe.Situation // counts all nodes
	output            printing.Format
}

// NodesCommand returns "nodes".
func NodesCommand(env *command.Env) *cobra.Command {
	a := &app{env}
	var o nodesOptions
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "List nodes with their assigned, active and last-known-good configurations",
		Long: `List nodes with their health and their assigned, active and last-known-good configurations, one line for each node.

HEALTH says how the node fares: Healthy, OnTrial, Failed, NotReady, Unknown (its agent is silent, or does not know), NoAgent, or
OptedOut. A note counts the nodes that need a person, and the NodeConfigs without a Node, which are not listed. ASSIGNED is a
rollout and its revision, the name of a ConfigMap that a person assigned, or local. CONFIGOK is the status and the reason of the
node's ConfigOK condition. TRIAL is the age of the trial and its shortest duration. SINCE is the time since CONFIGOK changed.
Nodes without an agent are listed too.

With --rollout, POSITION is the node's place in the rollout: Waiting, InFlight, Updated, Failed, Blocked (its pods prevent a
restart) or Skipped, and after a slash the rollout's own name for the state.

With --drift, the list has only nodes whose running kubelet or local files differ from what the agent started, and what differs:
running: fields that the kubelet's /configz shows with other values; file: files that were edited since. Agents compare every 10
minutes and correct nothing.

Without permission to list Nodes, the command lists NodeConfigs.

-o wide adds the versions of kubelet and agent, the source of the agent's configuration, and the agent's run mode: Host, a
service of the host; Bootstrap, until a self-hosted agent takes over; SelfHosted, in a pod.`,
		Example: `  # All nodes
  kubectl evenkeel nodes

  # Nodes of a pool that have problems
  kubectl evenkeel nodes -l node-restriction.kubernetes.io/pool=workers --problems

  # Nodes of a rollout with their position in it; those of them that failed
  kubectl evenkeel nodes --rollout workers
  kubectl evenkeel nodes --rollout workers --failed

  # Nodes on which somebody edited a file, or whose kubelet runs with something else
  kubectl evenkeel nodes --drift`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.nodes(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVarP(&o.selector, "selector", "l", "", "only nodes with these labels")
	f.StringVar(&o.rollout, "rollout", "", "only nodes that this rollout selects, with their position in it")
	f.BoolVar(&o.failed, "failed", false, "only nodes whose health is Failed, and with --rollout, nodes that failed in it for another "+
		"reason, such as a timeout")
	f.BoolVar(&o.problems, "problems", false, "only nodes with any kind of problem")
	f.BoolVar(&o.drift, "drift", false, "only nodes whose running kubelet or local files differ from what was started, and what differs")
	printing.FormatFlag(cmd, &o.output, printing.Wide, printing.JSON, printing.YAML, printing.Name)
	_ = cmd.RegisterFlagCompletionFunc("rollout", func(cmd *cobra.Command, _ []string, so string) ([]string, cobra.ShellCompDirective) {
		return a.CompleteRollout(cmd, nil, so)
	})

	return cmd
}

func (a *app) nodes(ctx context.Context, o nodesOptions) error {
	switch {
	case o.failed && o.problems:
		return errors.New("--failed and --problems cannot be used together: use --problems, which includes failed nodes")
	case o.selector != "" && o.rollout != "":
		return errors.New("--selector and --rollout cannot be used together, because a rollout has a selector of its own: omit one of them")
	}

	selector, err := command.ParseSelector(o.selector)
	if err != nil {
		return err
	}

	c, err := a.Client()
	if err != nil {
		return err
	}
	if o.drift {
		o.compared = &driftRows{notCompared: map[string]int{}}
	}

	o.seen = &describe.Situation{}
	rows, err := a.rows(ctx, c, o, selector)
	if err != nil {
		return err
	}

	return a.printNodes(rows, o)
}

// rows returns the nodes that the flags select, in the natural order of their
// names.
func (a *app) rows(ctx context.Context, c client.Client, o nodesOptions, selector labels.Selector) (rows []describe.Row, err error) {
	settings := fleet.DefaultSettings
	if all, err := query.Rollouts(ctx, c); err == nil { // otherwise the error about the nodes says why
		o.seen.Rollouts, settings = all.Items, fleet.SettingsIn(all.Items)
	}

	defer func() {
		slices.SortFunc(rows, func(a, b describe.Row) int { return printable.CompareNatural(a.Name, b.Name) })
	}()
	show := func(p fleet.Pair, row describe.Row) {
		if o.seen.Add(p, row.Standing, settings.Maintenance, time.Now()); p.Node == nil && !p.NodeUnread {
			return
		}
		if o.drift && !o.compared.count(row) {
			return
		}

		failed := row.Health == describe.HealthFailed || row.Position == describe.PositionFailed
		bad := failed || row.Health == describe.HealthUnknown || row.Position == describe.PositionBlocked || len(row.Problems) > 0
		if (!o.failed || failed) && (!o.problems || bad) {
			rows = append(rows, row)
		}
	}
	if o.rollout != "" {
		err = a.rolloutNodes(ctx, c, o.rollout, settings.AgentTimeout.Duration, show)
		return rows, err
	}

	failed := describe.FailedIn(o.seen.Rollouts)
	pairs, unread := query.Pairs(ctx, c, selector), selector.Empty() && query.MayNotListNodes(ctx, c)
	if unread {
		pairs = query.ConfigPairs(ctx, c)
	}

	for p, err := range pairs {
		if err != nil {
			return nil, err
		}

		row := describe.RowOf(p, nil, settings.AgentTimeout.Duration, time.Now())
		if s := failed(p); s != nil {
			row.Standing = row.In(*s)
		}

		show(p, row)
	}

	if unread {
		fmt.Fprintln(a.ErrOut, "note: you are not allowed to list Nodes: nodes without a NodeConfig, zones, and whether Nodes are Ready are "+
			"not shown")
	}

	return rows, nil
}

// rolloutNodes shows the nodes that a rollout selects, with their state in it.
func (a *app) rolloutNodes(ctx context.Context, c client.Client, name string, agentTimeout time.Duration,
	show func(fleet.Pair, describe.Row)) error {
	r, err := query.Rollout(ctx, c, name)
	if err != nil {
		return err
	}

	var pairs []fleet.Pair
	f, err := query.Gather(ctx, c, r, func(p fleet.Pair) { pairs = append(pairs, p) })
	if err != nil {
		return err
	}
	if f.Input.Invalid != "" {
		a.Notes(fmt.Sprintf("rollout %s is invalid: %s", r.Name, f.Input.Invalid))
	}

	plan := f.Plan()
	for i, p := range pairs {
		state := f.NodeState(&plan, i)
		show(p, describe.RowOf(p, &state, agentTimeout, time.Now()))
	}

	return nil
}

// printNodes prints nodes, and notes about them.
func (a *app) printNodes(rows []describe.Row, o nodesOptions) error {
	if o.drift {
		defer o.compared.notes(a.ErrOut, len(rows))
	}

	switch o.output {
	case printing.JSON, printing.YAML:
		return printing.Encode(a.Out, o.output, map[string][]describe.Row{"items": append([]describe.Row{}, rows...)})
	case printing.Name:
		for _, row := range rows {
			if _, err := fmt.Fprintf(a.Out, "node/%s\n", row.Name); err != nil {
				return err
			}
		}

		return nil
	}

	defer a.Notes(summaryNote(describe.SummaryOf(*o.seen)))
	if len(rows) == 0 {
		if !o.drift {
			fmt.Fprintln(a.ErrOut, "No nodes found")
		}

		return nil
	}

	agents, modes := map[string]int{}, map[string]int{}
	table, sizes := make([][]string, len(rows)), describe.Sizes{}
	for i, row := range rows {
		sizes.Add(row.ResolvedValues)
		table[i] = o.cells(row)
		if row.AgentVersion != "" {
			agents[row.AgentVersion]++
		}
		if row.RunMode != "" {
			modes[row.RunMode]++
		}
	}

	if err := printing.Table(a.Out, o.header(), table); err != nil {
		return err
	}

	a.Notes(sizes.Lines()...)
	a.Notes(versionNote(agents), bootstrapNote(modes))

	return nil
}

// summaryNote says in one line which nodes need a person, and how many
// NodeConfigs have no Node.
func summaryNote(s describe.Summary) string {
	var words []string
	for _, l := range s {
		if l.Level != describe.LevelOK && !strings.HasPrefix(l.Reason, "Rollouts") || l.Reason == describe.ReasonOrphans {
			words = append(words, l.Words)
		}
	}

	return strings.Join(words, ", ")
}

// versionNote returns a note about agents whose version differs from most; ""
// if all have the same version.
func versionNote(agents map[string]int) string {
	versions := printable.MostFirst(agents)
	if len(versions) < 2 {
		return ""
	}

	others, all := 0, 0
	for i, v := range versions {
		if all += agents[v]; i > 0 {
			others += agents[v]
		}
	}

	return fmt.Sprintf("the version of %d of %s (%s) differs from most (%s): -o wide lists it", others, printable.Count(all, "agent"),
		printable.Few(versions[1:]), versions[0])
}

// bootstrapNote returns a note about nodes on which the bootstrap kubelet runs;
// "" if there are none.
func bootstrapNote(modes map[string]int) string {
	waits := modes[string(v1alpha1.RunModeBootstrap)]
	if waits == 0 {
		return ""
	}

	all := 0
	for _, n := range modes {
		all += n
	}

	return fmt.Sprintf("the bootstrap kubelet still runs on %d of %s: -o wide lists the run mode", waits, printable.Count(all, "node"))
}

func (o nodesOptions) header() []string {
	if o.drift {
		return o.compared.header(o.output)
	}

	out := []string{"NAME", "HEALTH", "ASSIGNED", "ACTIVE", "LAST-KNOWN-GOOD", "CONFIGOK", "TRIAL", "SINCE"}
	if o.rollout != "" {
		out = append(out, "POSITION")
	}

	if o.output == printing.Wide {
		out = append(out, "ZONE", "KUBELET", "AGENT", "SOURCE", "RUN-MODE", "PROBLEMS")
		if o.rollout != "" {
			out = append(out, "WHY")
		}
	}

	return out
}

func (o nodesOptions) cells(row describe.Row) []string {
	if o.drift {
		return o.compared.cells(row, o.output)
	}

	ok := "no agent yet"
	if row.ConfigOK.Status != "" {
		ok = row.ConfigOK.Status + "/" + row.ConfigOK.Reason
	}

	trial := "-"
	if t := row.Trial; t != nil {
		trial = describe.Span(time.Duration(t.ElapsedSeconds)*time.Second) + "/" + describe.Span(time.Duration(t.DurationSeconds)*time.Second)
	}

	since := ""
	if t := row.ConfigOK.Since; t != nil {
		since = describe.Age(*t, time.Now())
	}

	out := []string{row.Name, string(row.Health), row.Assigned, row.Active, row.LastKnownGood, ok, trial, since}
	if o.rollout != "" {
		out = append(out, row.Place())
	}

	if o.output == printing.Wide {
		out = append(out, row.Zone, row.ComponentVersion, row.AgentVersion, row.RemoteConfig, row.RunMode,
			printing.Cell(strings.Join(row.Problems, "; ")))
		if o.rollout != "" {
			out = append(out, printing.Cell(row.Why))
		}
	}

	return out
}

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
		a.Notes(fmt.Sprintf("the version of the agent (%s) differs from the version of this program (%s)", v.AgentVersion, a.Program.Version))
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

// driftRows are the columns and notes of `nodes --drift`.
type driftRows struct {
	agents      int            // of all nodes, with drift and without
	silent      int            // agents that report no comparison
	filesOnly   int            // nodes whose /configz is not compared
	notCompared map[string]int // why, with the number of nodes
}

// count counts a node, and reports whether it has drifted.
func (r *driftRows) count(row describe.Row) bool {
	if row.AgentVersion == "" {
		return false
	}

	r.agents++
	switch d := row.Drift; {
	case d == nil:
		r.silent++
	case d.NotCompared != "":
		r.filesOnly++
		r.notCompared[d.NotCompared]++
	}

	return row.Drift.Drifted()
}

func (r *driftRows) header(format printing.Format) []string {
	out := []string{"NAME", "DRIFT", "SINCE", "DIFFERS"}
	if format == printing.Wide {
		out = append(out, "ACTIVE", "KUBELET", "AGENT", "NOT-COMPARED")
	}

	return out
}

func (r *driftRows) cells(row describe.Row, format printing.Format) []string {
	const few = 3
	d := row.Drift
	out := []string{row.Name, d.Reason, describe.Age(*d.Since, time.Now()), d.Differs(few)}
	if format == printing.Wide {
		out[3] = d.Differs(math.MaxInt)
		out = append(out, row.Active, row.ComponentVersion, row.AgentVersion, d.NotCompared)
	}

	return out
}

// notes prints what the list does not show: n is the number of its nodes.
func (r *driftRows) notes(w io.Writer, n int) {
	if n == 0 {
		fmt.Fprintf(w, "No drift reported: %s compared\n", printable.Count(r.agents-r.silent, "node"))
	}

	if r.silent > 0 {
		fmt.Fprintf(w, "note: agents that do not report drift: %d of %d; they are older, or started their kubelet seconds ago\n", r.silent,
			r.agents)
	}

	if r.filesOnly > 0 {
		words := fmt.Sprintf("note: on %d of %s, only files are compared: ", r.filesOnly, printable.Count(r.agents, "node"))
		why := printable.MostFirst(r.notCompared)
		if words += why[0]; len(why) > 1 {
			words += "; -o json lists other causes"
		}

		fmt.Fprintln(w, printable.Line(words))
	}
}
