// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install has the commands "install" and "uninstall", which bring
// evenkeel's agent to nodes and remove it.
//
// It must not decide which node is next: internal/operator/installer does.
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
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/doctor"
	"github.com/evenkeel/evenkeel/internal/operator/installer"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// app runs the commands of this package.
type app struct{ *command.Env }

// installFlags are the flags that install and uninstall share.
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
	f.StringVar(&o.maxUnavailable, "max-unavailable", "1", "largest number of nodes in progress at the same time, such as 5 or 10%")
	f.DurationVar(&o.timeout, "timeout", 10*time.Minute,
		"time limit for one node; it must be longer than a rollback on the node, which takes some minutes")
	f.BoolVar(&o.retry, "retry", false, "try failed nodes again")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the nodes, and change nothing")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask for confirmation")
	printing.FormatFlag(cmd, &o.output, printing.JSON, printing.YAML)
}

// Command returns "install".
func Command(env *command.Env) *cobra.Command {
	a := &app{env}
	var o installFlags
	cmd := &cobra.Command{
		Use:   "install [NODE...]",
		Short: "Install or upgrade evenkeel's agent on nodes, one node after another",
		Long: `Install or upgrade evenkeel's agent on nodes, one node after another.

The command labels a node evenkeel.dev/agent=install. The installer's pod then starts on the node and restarts the kubelet
once, under the agent. If the kubelet is not healthy or the Node is not Ready afterwards, the pod restores the node. The
next node starts when the Node is Ready and its agent has reported. After the first node that fails, no other node starts.

Run the command again to continue: it skips nodes that are done, and nodes that failed unless --retry is given. Nodes that
are cordoned or not Ready are skipped too, and listed. Without node names, --selector and --all-nodes, the command handles
the nodes that have the label. To upgrade evenkeel, apply the manifests of the new version and run the command again; no
kubelet restarts before that.

If you interrupt the command, nodes in progress finish by themselves, and no other node is changed.

Exit codes:
  0  all nodes that were not skipped are done
  1  wrong usage, the cluster lacks something, or the API server refuses the request or does not answer
  2  a node failed, now or before
  3  a node did not finish within --timeout`,
		Example: `  # Install the agent on one node
  kubectl evenkeel install worker-1

  # Install the agent on a pool, three nodes at a time
  kubectl evenkeel install --selector node-restriction.kubernetes.io/pool=workers --max-unavailable 3

  # Continue, or upgrade
  kubectl evenkeel install`,
		ValidArgsFunction: a.CompleteNodes,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.install(cmd.Context(), args, o) },
	}
	o.add(cmd)
	cmd.Flags().BoolVar(&o.allNodes, "all-nodes", false, "select every node")
	cmd.Flags().StringVar(&o.version, "agent-version", "",
		"version that the agents must report, if it is not the tag of the image; \"any\" accepts every version")

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
	if err := doctor.CheckCRD(ctx, c); err != nil {
		return err
	}

	w, err := installer.DesiredOf(ctx, c, installer.Install)
	if err != nil {
		return err
	}
	if w.Version = cmp.Or(o.version, w.Version); o.version == "any" {
		w.Version = ""
	}

	return a.run(ctx, c, installer.Install, w, names, selector, o)
}

// choice returns the selector of the nodes; nil if nodes are named. The default
// are the nodes that have the label.
func (o installFlags) choice(names []string) (labels.Selector, error) {
	if _, err := command.ParseAmount(o.maxUnavailable, 1); err != nil {
		return nil, fmt.Errorf("--max-unavailable: %w", err)
	}

	switch {
	case len(names) > 0 && (o.selector != "" || o.allNodes), o.selector != "" && o.allNodes:
		return nil, errors.New("use only one of node names, --selector and --all-nodes")
	case o.timeout <= 0:
		return nil, fmt.Errorf("--timeout must be longer than 0, not %s", o.timeout)
	case len(names) > 0:
		return nil, nil
	case o.allNodes:
		return labels.Everything(), nil
	case o.selector == "":
		return labels.Parse(v1alpha1.LabelAgent)
	}

	return command.ParseSelector(o.selector)
}

// messages returns where messages go. With -o only the result goes to standard
// output.
func (a *app) messages(o installFlags) io.Writer {
	if o.output != "" {
		return a.ErrOut
	}

	return a.Out
}

// run asks for confirmation, runs an operation on the selected nodes, and
// prints their progress.
func (a *app) run(ctx context.Context, c client.Client, op installer.Operation, desired installer.Desired, names []string,
	selector labels.Selector, o installFlags) error {
	nodes, err := op.Nodes(ctx, c, names, selector)
	if err != nil {
		return err
	}

	switch {
	case len(nodes) > 0:
	case o.selector != "":
		return fmt.Errorf("--selector %s selects no node", o.selector)
	case op == installer.Install && !o.allNodes:
		return fmt.Errorf("no node has the label %s yet: name nodes, or use --selector or --all-nodes", v1alpha1.LabelAgent)
	}

	out := a.messages(o)
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

// confirmRestarts asks for confirmation if there are nodes that have not
// started.
func (a *app) confirmRestarts(ctx context.Context, p *installer.Pacer, yes bool) error {
	n := len(p.Progress.In(installer.ToDo))
	if n == 0 {
		return nil
	}

	question := fmt.Sprintf("%s evenkeel's agent on %s, %d at a time? Each kubelet restarts once; pods keep running.",
		strings.ToUpper(p.Policy.Operation.Verb[:1])+p.Policy.Operation.Verb[1:], printable.Count(n, "node"), p.Policy.MaxUnavailable)

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
		fmt.Fprintf(out, "%s: %s\n", n.Name, printable.Line(strings.TrimSpace(op.Past+" "+s.Why))+took)
	case installer.Failed:
		fmt.Fprintf(out, "%s: FAILED: %s\n", n.Name, printable.Line(s.Why)+took)
	case installer.Skipped:
		fmt.Fprintf(out, "%s: skipped: %s\n", n.Name, printable.Line(s.Why))
	default:
		fmt.Fprintf(out, "%s: %s\n", n.Name, printable.Line(s.Why))
	}
}

// showWork prints how many nodes are in each stage, and the order in which
// nodes start.
func showWork(out io.Writer, p *installer.Pacer) {
	counts := []string{}
	for _, s := range []struct {
		Stage installer.Stage
		words string
	}{
		{installer.ToDo, "to " + p.Policy.Operation.Verb}, {installer.Doing, "in progress"}, {installer.Done,
			p.Policy.Operation.Past + " already"},
		{installer.Failed, "failed before"}, {installer.Skipped, "skipped"},
	} {
		if n := len(p.Progress.In(s.Stage)); n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, s.words))
		}
	}

	fmt.Fprintf(out, "%s, %d at a time, with %s: %s\n", printable.Count(len(p.Progress.Nodes), "node"), p.Policy.MaxUnavailable,
		p.Policy.Desired.Image, cmp.Or(strings.Join(counts, ", "), "nothing to do"))
	for _, n := range p.Progress.Nodes {
		if s := n.State; s.Stage == installer.Skipped || s.Stage == installer.Failed || s.Stage == installer.Doing {
			sayNode(out, p.Policy.Operation, n)
		}
	}

	if names := p.Progress.In(installer.ToDo); len(names) > 0 {
		fmt.Fprintf(out, "in this order: %s\n", printable.Few(names))
	}
}

// interrupted explains what happens to the nodes of a command that ends early,
// and returns why it ends.
func interrupted(out io.Writer, p *installer.Pacer, why error) error {
	if on := p.Progress.In(installer.Doing); len(on) > 0 {
		fmt.Fprintf(out, "%s: finishes without this command: %s, or restored\n", printable.Few(on), p.Policy.Operation.Past)
	}
	if left := p.Progress.In(installer.ToDo); len(left) > 0 {
		fmt.Fprintf(out, "%s: not started\n", printable.Few(left))
	}

	return why
}

// Report is the output of -o json.
type Report struct {
	Image string       `json:"image"`
	Nodes []NodeReport `json:"nodes"`
}

// NodeReport is the state of one node.
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

// conclude prints the result of an operation, why nodes failed, and what to do
// next.
func (a *app) conclude(ctx context.Context, c client.Client, out io.Writer, p *installer.Pacer) error {
	for _, n := range p.Progress.Nodes {
		if n.State.Stage == installer.Failed && !n.Begun.IsZero() {
			showFailure(ctx, c, out, n)
		}
	}

	words := fmt.Sprintf("%d of %s %s", len(p.Progress.In(installer.Done)), printable.Count(len(p.Progress.Nodes), "node"),
		p.Policy.Operation.Past)
	if n := len(p.Progress.In(installer.ToDo)); n > 0 {
		words += fmt.Sprintf(", %d not started", n)
	}
	if n := len(p.Progress.In(installer.Skipped)); n > 0 {
		words += fmt.Sprintf(", %d skipped", n)
	}

	failed := p.Progress.In(installer.Failed)
	if len(failed) == 0 {
		fmt.Fprintln(out, words)
		return nil
	}

	kept := "runs its previous kubelet service"
	if p.Policy.Operation != installer.Install {
		kept = "still has its agent"
	}

	verdict := fmt.Errorf("%s; failed on %s, which %s unless a message above says otherwise\n"+
		"if its pod has run, `journalctl -u kubelet` there says more; after the repair: kubectl evenkeel %s --retry %s; without --retry the "+
		"command continues with the other nodes",
		words, printable.Few(failed), kept, p.Policy.Operation.Verb, strings.Join(failed[:min(len(failed), 10)], " "))
	if p.Progress.TimedOut() {
		return &command.Exit{Code: command.ExitTimeout, Err: verdict}
	}

	return &command.Exit{Code: command.ExitHalted, Err: verdict}
}

// mostEvents is the largest number of Events that are printed for a node.
const mostEvents = 3

// showFailure prints the end of the log of a failed node's pod, and the Node's
// last Events.
func showFailure(ctx context.Context, c client.Client, out io.Writer, n installer.NodeProgress) {
	if n.State.Said != "" {
		fmt.Fprintf(out, "last output of its pod:\n")
		for line := range strings.Lines(n.State.Said) {
			fmt.Fprintf(out, "  %s\n", printable.Line(line))
		}
	}

	events, err := installer.Events(ctx, c, n.Name, n.Begun, mostEvents)
	if err != nil {
		fmt.Fprintf(out, "cannot read its Events: %s\n", printable.Line(describe.Brief(err)))
		return
	}

	for i, e := range events {
		if i == 0 {
			fmt.Fprintf(out, "last Events of the Node:\n")
		}

		fmt.Fprintf(out, "  %s  %s  %s\n", printable.Line(e.Type), printable.Line(e.Reason), printing.Cell(e.Message))
	}
}

// uninstallFlags are the flags of uninstall.
type uninstallFlags struct {
	installFlags
	purge, force bool
}

// UninstallCommand returns "uninstall".
func UninstallCommand(env *command.Env) *cobra.Command {
	a := &app{env}
	var o uninstallFlags
	cmd := &cobra.Command{
		Use:   "uninstall [NODE...]",
		Short: "Remove evenkeel's agent from nodes, and then evenkeel from the cluster",
		Long: `Remove evenkeel's agent from nodes, one node after another, and then evenkeel from the cluster.

The command labels a node evenkeel.dev/agent=uninstall. A pod then starts on the node, restores the kubelet's unit, restarts
the kubelet once, and checks that it is healthy with the node's own configuration. Then the label is removed and the next
node starts. After the first node that fails, no other node starts. Run the command again to continue.

With node names or --selector, only those nodes change. Without, the command handles all nodes that "install" has labelled,
then pauses all rollouts, and deletes the controller and the installer. The API with all NodeConfigs and rollouts remains
for a later install; --purge deletes it too, after it has listed what will be lost. To remove roles and policies, delete
the manifests or the chart that created them.

The command refuses to run while a rollout is in progress: its nodes would lose the configuration halfway.

Exit codes are those of "install".`,
		Example: `  # Remove the agent from one node
  kubectl evenkeel uninstall worker-1

  # Remove evenkeel from all nodes and from the cluster
  kubectl evenkeel uninstall`,
		ValidArgsFunction: a.CompleteNodes,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.uninstall(cmd.Context(), args, o) },
	}
	o.add(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.purge, "purge", false, "at the end delete evenkeel's CustomResourceDefinitions, and so all NodeConfigs and rollouts")
	f.BoolVar(&o.force, "force", false, "continue even if a rollout is in progress")

	return cmd
}

func (a *app) uninstall(ctx context.Context, names []string, o uninstallFlags) error {
	whole := len(names) == 0 && o.selector == ""
	if o.purge && !whole {
		return errors.New("--purge cannot be used with node names or --selector")
	}

	selector, err := o.choice(names)
	if err != nil {
		return err
	}

	c, err := a.Client()
	if err != nil {
		return err
	}

	rollouts, err := installer.Rollouts(ctx, c)
	if err != nil {
		return err
	}

	if going := installer.ActiveRollouts(rollouts); len(going) > 0 && !o.force {
		return fmt.Errorf("rollouts are in progress (%s): pause them first (kubectl evenkeel rollout pause %s), or use --force; nothing was "+
			"changed",
			printable.Few(going), going[0])
	}

	out := a.messages(o.installFlags)
	if o.purge {
		if err := showLoss(ctx, c, out, rollouts); err != nil {
			return err
		}
	}

	w, err := installer.DesiredOf(ctx, c, installer.Uninstall)
	switch {
	case err == nil:
		if err := a.run(ctx, c, installer.Uninstall, w, names, selector, o.installFlags); err != nil || !whole {
			return err
		}
	case !whole || !errors.Is(err, installer.ErrApplyFirst): // otherwise an earlier run deleted it
		return err
	}

	if left, lookErr := installer.LabelledNodes(ctx, c); lookErr != nil {
		return lookErr
	} else if len(left) > 0 && !o.dryRun {
		return errors.Join(err, fmt.Errorf("%s still labelled %s (%s): the controller and the installer remain until these are done; run the "+
			"command again then",
			printable.Count(len(left), "node"), v1alpha1.LabelAgent, printable.Few(left)))
	}

	if o.dryRun {
		fmt.Fprintln(out, "then rollouts would be paused, and the controller and the installer deleted")
		return nil
	}

	return a.uninstallCluster(ctx, c, out, rollouts, o)
}

// showLoss lists what --purge deletes permanently.
func showLoss(ctx context.Context, c client.Client, out io.Writer, rollouts []v1alpha1.NodeConfigRollout) error {
	all, assigned := 0, []string{}
	for nc, err := range query.Configs(ctx, c) {
		if meta.IsNoMatchError(err) {
			break
		}
		if err != nil {
			return fmt.Errorf("list NodeConfigs: %w", err)
		}

		all++
		if nc.Spec.ConfigSource != nil && nc.Spec.ConfigSource.ConfigMapRef != nil {
			assigned = append(assigned, nc.Name)
		}
	}

	fmt.Fprintf(out, "--purge permanently deletes %s", printable.Count(all, "NodeConfig"))
	if len(assigned) > 0 {
		fmt.Fprintf(out, ", of which %d assign a configuration (%s)", len(assigned), printable.Few(assigned))
	}

	names := []string{}
	for _, r := range rollouts {
		names = append(names, r.Name)
	}

	fmt.Fprintf(out, ", and %s", printable.Count(len(names), "rollout"))
	if len(names) > 0 {
		fmt.Fprintf(out, " (%s)", printable.Few(names))
	}

	fmt.Fprintf(out, "\nto save them: kubectl get nodeconfigs,nodeconfigrollouts -o yaml > evenkeel.yaml\n")

	return nil
}

// uninstallCluster removes what runs in the cluster, after the last node.
func (a *app) uninstallCluster(ctx context.Context, c client.Client, out io.Writer, rollouts []v1alpha1.NodeConfigRollout,
	o uninstallFlags) error {
	question := "Pause all rollouts, and delete evenkeel's controller and installer?"
	if o.purge {
		question = "Delete evenkeel's controller, installer, NodeConfigs and rollouts?"
	}
	if err := a.Confirm(ctx, question, o.yes, false); err != nil {
		return err
	}
	if err := installer.RemoveFromCluster(ctx, c, rollouts, o.purge, func(done string) { fmt.Fprintln(out, done) }); err != nil {
		return err
	}

	rest := "its API, roles and policies remain, with NodeConfigs and rollouts; delete them with: kubectl evenkeel uninstall --purge"
	if o.purge {
		rest = "its namespaces, roles and policies remain; delete them with: kubectl delete --ignore-not-found -f install.yaml " +
			"(Helm: helm uninstall RELEASE)"
	}

	fmt.Fprintln(out, "nothing of evenkeel runs any more;", rest)

	return nil
}
