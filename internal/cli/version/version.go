// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version has the command "version", which prints the versions of this
// program, the controller and the agents.
//
// It must not fail on a cluster in which some of them do not run.
package version

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/program"
)

// app runs the commands of this package.
type app struct{ *command.Env }

// Report is the output of "version".
type Report struct {
	Client program.Info `json:"client"`
	// Controller is the controller that holds the lease; nil if there is none,
	// or if the lease is forbidden.
	Controller *Controller `json:"controller,omitempty"`
	// Agents are the agents' versions, the most frequent first. An empty
	// version counts nodes without an agent.
	Agents []Agents `json:"agents,omitempty"`
}

// Controller is the controller that holds the lease.
type Controller struct {
	Version string `json:"version"` // empty if it is not known
}

// Agents counts the nodes whose agents have one version.
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

The controller is the one that holds the lease. Agents are counted by the version in the status of their NodeConfigs.`,
		Example: `  # All versions
  kubectl evenkeel version

  # The version of this program; no cluster is needed
  kubectl evenkeel version --client`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.showVersions(cmd.Context(), clientOnly, output) },
	}
	cmd.Flags().BoolVar(&clientOnly, "client", false, "only the version of this program; the cluster is not read")
	printing.FormatFlag(cmd, &output, printing.JSON, printing.YAML)

	return cmd
}

// showVersions prints the version of this program before it reads the cluster,
// unless the output is one document.
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
			return fmt.Errorf("read the versions in the cluster (not needed with --client): %w", err)
		}

		a.WarnIfControllerSilent(ctx, c, settings, false)
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

// ask reads the versions in the cluster, and returns the settings of the
// controller.
func (v *Report) ask(ctx context.Context, c client.Client) (v1alpha1.RolloutController, error) {
	nodes := map[string]int{}
	for nc, err := range query.Configs(ctx, c) {
		if err != nil {
			return v1alpha1.RolloutController{}, err
		}

		nodes[nc.Status.AgentVersion]++
	}

	for _, version := range printable.MostFirst(nodes) {
		v.Agents = append(v.Agents, Agents{version, nodes[version]})
	}

	settings := fleet.DefaultSettings
	if rollouts, err := query.Rollouts(ctx, c); err == nil { // without the right to list rollouts, use the default namespace
		settings = fleet.SettingsIn(rollouts.Items)
	}

	lease, err := query.ControllerLease(ctx, c, settings.Namespace)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		err = nil
	}
	if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" {
		v.Controller = &Controller{lease.Labels[v1alpha1.LabelVersion]}
	}

	return settings, err
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
