// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

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
	"github.com/evenkeel/evenkeel/internal/operator/installer"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
)

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
