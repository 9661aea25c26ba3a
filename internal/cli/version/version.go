// Package version has the command "version", which prints the versions of this program, the controller and the agents.
//
// It must not fail on a cluster in which some of them do not run.
package version

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/fleet/query"
	"github.com/evenkeel/evenkeel/internal/program"
)

// app runs the commands of this package.
type app struct{ *command.Env }

// versions are those of this program and of what runs in the cluster.
type Report struct {
	Client program.Info `json:"client"`
	// Controller is the one that holds the lease; nil if none does, or if that may not be read.
	Controller *Controller `json:"controller,omitempty"`
	// Agents are the agents' Report, most nodes first. Nodes without an agent are under "".
	Agents []Agents `json:"agents,omitempty"`
}

type Controller struct {
	Version string `json:"version"` // empty if it does not say
}

type Agents struct {
	Version string `json:"version"`
	Nodes   int    `json:"nodes"`
}

// Command returns "version".
func Command(env *command.Env) *cobra.Command {
	a := &app{env}
	var output printing.Format
	var clientOnly bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of this program, and of the controller and the agents in the cluster",
		Long: `Show the versions of this program, and of the controller and the agents in the cluster.

The controller is the one that works: others wait for its lease. Agents are counted by the version that they wrote into
the status of their NodeConfig.`,
		Example: `  # All
  kubectl evenkeel version

  # This program alone; no cluster
  kubectl evenkeel version --client`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.showVersions(cmd.Context(), clientOnly, output) },
	}
	cmd.Flags().BoolVar(&clientOnly, "client", false, "only of this program; no cluster is asked")
	printing.FormatFlag(cmd, &output, printing.JSON, printing.YAML)
	return cmd
}

// showVersions shows what this program is before it asks the cluster, unless the answer is one document.
func (a *app) showVersions(ctx context.Context, clientOnly bool, f printing.Format) error {
	v := &Report{Client: a.Program}
	if f == "" {
		if err := v.Client.Print(a.Out, false); err != nil {
			return err
		}
	}
	if !clientOnly {
		c, err := a.Client()
		if err != nil {
			return err
		}
		settings, err := v.ask(ctx, c)
		if err != nil {
			return fmt.Errorf("ask the cluster (--client does not): %w", err)
		}
		a.WarnIfControllerSilent(ctx, c, settings)
	}
	if f != "" {
		return printing.Encode(a.Out, f, v)
	}
	if rows := v.rows(); len(rows) > 0 {
		fmt.Fprintln(a.Out)
		return printing.Table(a.Out, []string{"IN THE CLUSTER", "VERSION", "NODES"}, rows)
	}
	return nil
}

// ask fills in what runs in the cluster, and returns the settings of its controller.
func (v *Report) ask(ctx context.Context, c client.Client) (policy.Settings, error) {
	nodes := map[string]int{}
	for nc, err := range query.Configs(ctx, c) {
		if err != nil {
			return policy.Settings{}, err
		}
		nodes[nc.Status.AgentVersion]++
	}
	for _, version := range printing.MostFirst(nodes) {
		v.Agents = append(v.Agents, Agents{version, nodes[version]})
	}
	settings := policy.DefaultSettings
	if rollouts, err := query.Rollouts(ctx, c); err == nil { // who may not list rollouts sees the usual namespace
		settings = policy.SettingsIn(rollouts.Items)
	}
	lease := &coordinationv1.Lease{}
	err := c.Get(ctx, client.ObjectKey{Namespace: settings.Namespace, Name: v1alpha1.ControllerLease}, lease)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return settings, nil
	case err != nil:
		return settings, err
	}
	if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" {
		v.Controller = &Controller{lease.Labels[v1alpha1.LabelVersion]}
	}
	return settings, nil
}

func (v *Report) rows() [][]string {
	var rows [][]string
	if v.Controller != nil {
		rows = append(rows, []string{"controller", v.Controller.Version, ""})
	}
	for _, one := range v.Agents {
		what := "agent"
		if one.Version == "" {
			what = "no agent yet"
		}
		rows = append(rows, []string{what, one.Version, strconv.Itoa(one.Nodes)})
	}
	return rows
}
