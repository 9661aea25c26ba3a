package install

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/fleet/installer"
	"github.com/evenkeel/evenkeel/internal/fleet/query"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// uninstallFlags are what uninstall has beside the others.
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
		Short: "Take evenkeel's agent away from the kubelets of nodes, and then evenkeel from the cluster",
		Long: `Take evenkeel's agent away from the kubelets of nodes, one node after another, and then evenkeel from the cluster.

A node is given the label evenkeel.dev/agent=uninstall. That brings a pod to it, which puts the kubelet's unit back as it
was, restarts the kubelet once, and sees it come back healthy with the node's own configuration. Then the label goes, and
the next node has its turn. The first node that does not come back stops it. To run it again is to go on where it stopped.

With nodes or --selector that is all. Without, it goes to all nodes that "install" has labelled, and when none is left
rollouts are paused, and the controller and the installer deleted. The API stays, with every NodeConfig and rollout: to
install again is to go on with them. --purge deletes it too, after it has shown what is lost with it. What else there is,
rights and policies that nobody uses any more, goes with the manifests or the chart that brought it.

It refuses while a rollout gives nodes a configuration: those nodes would lose it half-way.

Exit codes are those of "install".`,
		Example: `  # One node
  kubectl evenkeel uninstall worker-1

  # All of it
  kubectl evenkeel uninstall`,
		ValidArgsFunction: a.CompleteNodes,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.uninstall(cmd.Context(), args, o) },
	}
	o.add(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.purge, "purge", false, "at the end delete evenkeel's CustomResourceDefinitions, and with them all NodeConfigs and rollouts")
	f.BoolVar(&o.force, "force", false, "do it while a rollout is going on")
	return cmd
}

func (a *app) uninstall(ctx context.Context, names []string, o uninstallFlags) error {
	whole := len(names) == 0 && o.selector == ""
	if o.purge && !whole {
		return errors.New("--purge is for all nodes: give no nodes and no --selector with it")
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
		return fmt.Errorf("rollouts are going on (%s): pause them first (kubectl evenkeel rollout pause %s), or give --force; nothing was changed",
			printable.Few(going), going[0])
	}
	out := a.Out
	if o.output != "" {
		out = a.ErrOut
	}
	if o.purge {
		if err := showLoss(ctx, c, out, rollouts); err != nil {
			return err
		}
	}
	w, err := installer.DesiredOf(ctx, c, installer.Uninstall)
	switch {
	case err == nil:
		if err := a.carry(ctx, c, installer.Uninstall, w, names, selector, o.installFlags); err != nil || !whole {
			return err
		}
	case !whole || !errors.Is(err, installer.ErrApplyFirst): // else it was deleted, after the last node
		return err
	}
	if left, lookErr := installer.LabelledNodes(ctx, c); lookErr != nil {
		return lookErr
	} else if len(left) > 0 && !o.dryRun {
		return errors.Join(err, fmt.Errorf("%s still labelled %s (%s): the controller and the installer stay until they are done; run it again then",
			nodesWord(len(left)), v1alpha1.LabelAgent, printable.Few(left)))
	}
	if o.dryRun {
		fmt.Fprintln(out, "then rollouts would be paused, and the controller and the installer deleted")
		return nil
	}
	return a.uninstallCluster(ctx, c, out, rollouts, o)
}

// showLoss says what --purge deletes for good.
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
	fmt.Fprintf(out, "--purge deletes for good: %d NodeConfigs", all)
	if len(assigned) > 0 {
		fmt.Fprintf(out, ", of which %d assign a configuration (%s)", len(assigned), printable.Few(assigned))
	}
	names := []string{}
	for _, r := range rollouts {
		names = append(names, r.Name)
	}
	fmt.Fprintf(out, "; %d rollouts", len(names))
	if len(names) > 0 {
		fmt.Fprintf(out, " (%s)", printable.Few(names))
	}
	fmt.Fprintf(out, "\nkeep them with: kubectl get nodeconfigs,nodeconfigrollouts -o yaml > evenkeel.yaml\n")
	return nil
}

// uninstallCluster takes away what runs in the cluster when no node needs it any more.
func (a *app) uninstallCluster(ctx context.Context, c client.Client, out io.Writer, rollouts []v1alpha1.NodeConfigRollout, o uninstallFlags) error {
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
	if !o.purge {
		fmt.Fprintf(out, "what is left in the cluster runs nothing; it goes with: kubectl delete -k config/controller; kubectl delete -k config/installer\n"+
			"the API stays, with NodeConfigs and rollouts: kubectl evenkeel uninstall --purge deletes it\n")
		return nil
	}
	fmt.Fprintln(out, "what is left in the cluster runs nothing; it goes with: kubectl delete -k config/default")
	return nil
}
