package version

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/fleet/query"
	"github.com/evenkeel/evenkeel/internal/program"
)

// versions are those of this program and of what runs in the cluster.
type versions struct {
	Client program.Info `json:"client"`
	// Controller is the one that holds the lease; nil if none does, or if that may not be read.
	Controller *controllerVersion `json:"controller,omitempty"`
	// Agents are the agents' versions, most nodes first. Nodes without an agent are under "".
	Agents []agentVersion `json:"agents,omitempty"`
}

type controllerVersion struct {
	Version string `json:"version"` // empty if it does not say
}

type agentVersion struct {
	Version string `json:"version"`
	Nodes   int    `json:"nodes"`
}

func (a *app) versionCommand() *cobra.Command {
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
	v := &versions{Client: a.program}
	if f == "" {
		if err := v.Client.Print(a.Out, false); err != nil {
			return err
		}
	}
	if !clientOnly {
		c, err := a.client()
		if err != nil {
			return err
		}
		settings, err := v.ask(ctx, c)
		if err != nil {
			return fmt.Errorf("ask the cluster (--client does not): %w", err)
		}
		a.noteController(ctx, c, settings)
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
func (v *versions) ask(ctx context.Context, c client.Client) (policy.Settings, error) {
	nodes := map[string]int{}
	for nc, err := range query.Configs(ctx, c) {
		if err != nil {
			return policy.Settings{}, err
		}
		nodes[nc.Status.AgentVersion]++
	}
	for _, version := range mostFirst(nodes) {
		v.Agents = append(v.Agents, agentVersion{version, nodes[version]})
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
		v.Controller = &controllerVersion{lease.Labels[v1alpha1.LabelVersion]}
	}
	return settings, nil
}

func (v *versions) rows() [][]string {
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

// mostFirst returns what was counted, the most frequent first.
func mostFirst(counted map[string]int) []string {
	return slices.SortedFunc(maps.Keys(counted), func(a, b string) int {
		return cmp.Or(cmp.Compare(counted[b], counted[a]), cmp.Compare(a, b))
	})
}
