// Package install has the commands "install" and "uninstall", which bring evenkeel's agent to nodes and remove it.
//
// It must not decide which node is next: internal/fleet/installer does.
package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/fleet/describe"
	"github.com/evenkeel/evenkeel/internal/fleet/installer"
	"github.com/evenkeel/evenkeel/internal/fleet/query"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// app runs the commands of this package.
type app struct{ *command.Env }

// installFlags are what install and uninstall have in common.
type installFlags struct {
	selector       string
	allNodes       bool
	maxUnavailable string
	timeout        time.Duration
	retry          bool
	dryRun, yes    bool
	version        string // of agents
	output         printing.Format
}

func (o *installFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&o.selector, "selector", "l", "", "labels of the nodes, such as node-restriction.kubernetes.io/pool=workers")
	f.StringVar(&o.maxUnavailable, "max-unavailable", "1", "how many nodes at a time, such as 5 or 10%")
	f.DurationVar(&o.timeout, "timeout", 10*time.Minute, "how long one node may take; longer than it takes its agent to go back, which is some minutes")
	f.BoolVar(&o.retry, "retry", false, "try nodes again on which it has failed")
	f.BoolVar(&o.dryRun, "dry-run", false, "show which nodes it would go to, and change nothing")
	f.BoolVar(&o.yes, "yes", false, "do not ask")
	printing.FormatFlag(cmd, &o.output, printing.JSON, printing.YAML)
}

// Command returns "install".
func Command(env *command.Env) *cobra.Command {
	a := &app{env}
	var o installFlags
	cmd := &cobra.Command{
		Use:   "install [NODE...]",
		Short: "Put evenkeel's agent in front of the kubelets of nodes, one node after another",
		Long: `Put evenkeel's agent in front of the kubelets of nodes, one node after another; or upgrade it there.

A node is given the label evenkeel.dev/agent=install. That brings the installer's pod to it, which restarts the kubelet
once, sees it come back healthy and the Node Ready, and else puts everything back as it was. Only when the Node is Ready
and its agent has reported does the next node have its turn. The first node that does not come back stops it.

Nodes that are done are seen as done, so that to run it again is to go on where it stopped. A node on which it has failed
is left alone until --retry. A node that is cordoned or not Ready is passed over, and named. Without nodes, --selector and
--all-nodes it goes to those that are labelled already. To upgrade evenkeel, apply the next version's manifests, then run
that: no kubelet restarts before.

Interrupt it at any time: a node on which nothing has begun is let go, one that is in the middle of it comes to its end by
itself.

Exit codes:
  0  every node that could be gone to is done
  1  wrong usage, the cluster lacks something, or the API server refuses or does not answer
  2  a node has failed, now or before
  3  a node has not come to its end within --timeout`,
		Example: `  # One node, to see
  kubectl evenkeel install worker-1

  # A pool, three at a time
  kubectl evenkeel install --selector node-restriction.kubernetes.io/pool=workers --max-unavailable 3

  # Go on after a stop, or upgrade
  kubectl evenkeel install`,
		ValidArgsFunction: a.CompleteNodes,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.install(cmd.Context(), args, o) },
	}
	o.add(cmd)
	cmd.Flags().BoolVar(&o.allNodes, "all-nodes", false, "every node is meant")
	cmd.Flags().StringVar(&o.version, "agent-version", "", "the version that agents are to report, if the image's tag does not name it; any is any")
	return cmd
}

func (a *app) install(ctx context.Context, names []string, o installFlags) error {
	selector, err := o.choice(names)
	if err != nil {
		return err
	}
	c, err := a.Client()
	if err != nil {
		return err
	}
	if err := installer.CheckCRD(ctx, c); err != nil {
		return err
	}
	w, err := installer.DesiredOf(ctx, c, installer.Install)
	if err != nil {
		return err
	}
	switch o.version {
	case "":
	case "any":
		w.Version = ""
	default:
		w.Version = o.version
	}
	return a.carry(ctx, c, installer.Install, w, names, selector, o)
}

// choice returns which nodes are chosen beside those that are named; those that have been before, if nothing is said.
func (o installFlags) choice(names []string) (labels.Selector, error) {
	given := 0
	for _, one := range []bool{len(names) > 0, o.selector != "", o.allNodes} {
		if one {
			given++
		}
	}
	if given > 1 {
		return nil, errors.New("names of nodes, --selector and --all-nodes each choose nodes: give one of them")
	}
	if _, err := command.ParseAmount(o.maxUnavailable, 1); err != nil {
		return nil, fmt.Errorf("--max-unavailable: %w", err)
	}
	if o.timeout <= 0 {
		return nil, fmt.Errorf("--timeout must be more than 0, not %s", o.timeout)
	}
	switch {
	case len(names) > 0:
		return nil, nil
	case o.allNodes:
		return labels.Everything(), nil
	case o.selector == "":
		return labels.Parse(v1alpha1.LabelAgent)
	}
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return nil, fmt.Errorf("--selector %q: %w", o.selector, err)
	}
	return selector, nil
}

// carry takes the chosen nodes through an operation, when that is confirmed, and shows how.
func (a *app) carry(ctx context.Context, c client.Client, op installer.Operation, desired installer.Desired, names []string, selector labels.Selector, o installFlags) error {
	nodes, err := op.Nodes(ctx, c, names, selector)
	if err != nil {
		return err
	}
	switch {
	case len(nodes) > 0:
	case o.selector != "":
		return fmt.Errorf("--selector %s selects no node", o.selector)
	case op == installer.Install && !o.allNodes:
		return fmt.Errorf("no node is labelled %s yet: name nodes, or give --selector or --all-nodes", v1alpha1.LabelAgent)
	}
	out := a.Out // what people read, as long as it is not in the way of what programs do
	if o.output != "" {
		out = a.ErrOut
	}
	most, err := command.ParseAmount(o.maxUnavailable, 1)
	if err != nil {
		return err
	}
	budget, err := intstr.GetScaledValueFromIntOrPercent(&most, len(nodes), false)
	if err != nil {
		return fmt.Errorf("--max-unavailable: %w", err)
	}
	policy := installer.Policy{Operation: op, Desired: desired, MaxUnavailable: max(1, budget), Timeout: o.timeout, Retry: o.retry}
	p := &installer.Pacer{
		Client: c, Policy: policy, Progress: installer.Start(policy, nodes),
		Tell: func(n installer.NodeProgress) { sayNode(out, op, n) },
	}
	showWork(out, p)
	if len(p.Progress.In(installer.ToDo))+len(p.Progress.In(installer.Doing)) > 0 && !o.dryRun {
		if err := a.confirmRestarts(ctx, p, o.yes); err != nil {
			return err
		}
		if err := p.Run(ctx); err != nil {
			return interrupted(out, p, err)
		}
	}
	if o.output != "" {
		if err := printing.Encode(a.Out, o.output, reportOf(p)); err != nil {
			return err
		}
	}
	if o.dryRun {
		return nil
	}
	return a.conclude(ctx, c, out, p)
}

// confirmRestarts asks, unless nothing is to begin.
func (a *app) confirmRestarts(ctx context.Context, p *installer.Pacer, yes bool) error {
	n := len(p.Progress.In(installer.ToDo))
	if n == 0 {
		return nil
	}
	question := fmt.Sprintf("%s evenkeel's agent on %s, %d at a time? Each kubelet restarts once; pods go on.", strings.ToUpper(p.Policy.Operation.Verb[:1])+p.Policy.Operation.Verb[1:], nodesWord(n), p.Policy.MaxUnavailable)
	return a.Confirm(ctx, question, yes, false)
}

// sayNode prints the state of a node.
func sayNode(out io.Writer, op installer.Operation, n installer.NodeProgress) {
	took := ""
	if !n.Begun.IsZero() {
		took = ", after " + describe.Span(time.Since(n.Begun))
	}
	switch s := n.State; s.Stage {
	case installer.Done:
		fmt.Fprintf(out, "%s: %s\n", n.Name, printable.Line(joinWith(op.Past, s.Why))+took)
	case installer.Failed:
		fmt.Fprintf(out, "%s: FAILED: %s\n", n.Name, printable.Line(s.Why)+took)
	case installer.Skipped:
		fmt.Fprintf(out, "%s: passed over: %s\n", n.Name, printable.Line(s.Why))
	default:
		fmt.Fprintf(out, "%s: %s\n", n.Name, printable.Line(s.Why))
	}
}

// joinWith puts what is known more about something after it.
func joinWith(what, more string) string {
	if more == "" {
		return what
	}
	return what + " " + more
}

// showWork prints how many nodes are in each stage, and the order of those that begin.
func showWork(out io.Writer, p *installer.Pacer) {
	counts := []string{}
	for _, s := range []struct {
		Stage installer.Stage
		words string
	}{
		{installer.ToDo, "to " + p.Policy.Operation.Verb}, {installer.Doing, "in the middle of it"}, {installer.Done, p.Policy.Operation.Past + " already"},
		{installer.Failed, "failed before"}, {installer.Skipped, "passed over"},
	} {
		if n := len(p.Progress.In(s.Stage)); n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, s.words))
		}
	}
	fmt.Fprintf(out, "%s, %d at a time, with %s: %s\n", nodesWord(len(p.Progress.Nodes)), p.Policy.MaxUnavailable, p.Policy.Desired.Image, cmp.Or(strings.Join(counts, ", "), "nothing to do"))
	for _, n := range p.Progress.Nodes {
		if s := n.State; s.Stage == installer.Skipped || s.Stage == installer.Failed || s.Stage == installer.Doing {
			sayNode(out, p.Policy.Operation, n)
		}
	}
	if names := p.Progress.In(installer.ToDo); len(names) > 0 {
		fmt.Fprintf(out, "in this order: %s\n", printable.Few(names))
	}
}

func nodesWord(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

// interrupted explains what happens to the nodes of a command that ends early, and returns why it ends.
func interrupted(out io.Writer, p *installer.Pacer, why error) error {
	if on := p.Progress.In(installer.Doing); len(on) > 0 {
		fmt.Fprintf(out, "%s: comes to its end without this command: %s, or back as before\n", printable.Few(on), p.Policy.Operation.Past)
	}
	if left := p.Progress.In(installer.ToDo); len(left) > 0 {
		fmt.Fprintf(out, "%s: nothing has begun there\n", printable.Few(left))
	}
	return why
}

// Report is what -o prints.
type Report struct {
	Image string       `json:"image"`
	Nodes []NodeReport `json:"nodes"`
}

type NodeReport struct {
	Name  string          `json:"name"`
	State installer.Stage `json:"state"`
	Why   string          `json:"why,omitempty"`
}

func reportOf(p *installer.Pacer) Report {
	r := Report{Image: p.Policy.Desired.Image, Nodes: []NodeReport{}}
	for _, n := range p.Progress.Nodes {
		r.Nodes = append(r.Nodes, NodeReport{n.Name, n.State.Stage, n.State.Why})
	}
	return r
}
