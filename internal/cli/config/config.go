// Package config has the commands about configuration files and about kubeadm's component configurations: "config" and
// "upgrade" with their subcommands.
//
// It must not decide how a component configuration is upgraded: internal/kubeadm does.
package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/fleet/describe"
	"github.com/evenkeel/evenkeel/internal/fleet/query"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// app runs the commands of this package.
type app struct{ *command.Env }

// Command returns "config" and its subcommands.
func Command(env *command.Env) *cobra.Command {
	a := &app{env}
	cmd := command.Group(&cobra.Command{
		Use: "config", Short: "Look at configurations, judge, convert and generate them",
		Example: `  kubectl evenkeel config diff node/worker-17 rollout/workers
  kubectl evenkeel config diff old.yaml new.yaml
  kubectl evenkeel config validate kubelet.yaml --component-binary kubelet=/usr/bin/kubelet
  kubectl evenkeel config convert --form=grouped kubelet.yaml`,
	})
	cmd.AddCommand(a.configDiffCommand(), a.configValidateCommand(), a.configConvertCommand())
	cmd.AddCommand(a.configViewCommand(), a.configPrintCommand(), a.configUploadCommand())
	return cmd
}

// diffOptions is what the flags of config diff ask for.
type diffOptions struct {
	live   bool
	form   string
	output printing.Format
}

func (a *app) configDiffCommand() *cobra.Command {
	var o diffOptions
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Compare two configurations, field by field",
		Long: `Compare two configurations, field by field. Each is one of

  node/NAME              what the node runs, as its NodeConfig says: the ConfigMap of its active revision
  rollout/NAME           the rollout's template, as it is now
  rollout/NAME@REVISION  a revision of it, by its number
  PATH                   a file with a KubeletConfiguration, upstream or grouped (./node/x if it is named like that)

With --live, what a node runs is asked of its kubelet, through the API server: the effective configuration, with
defaults, flags and the node's own files. That needs the right to get nodes/proxy.

A drop-in names only what it changes, and a configuration less than what is effective: of two of such different kinds,
only the fields are compared that the one names which names less. Values that may be secret are masked.

The exit code is 0 whether there are differences or not; scripts read -o json.`,
		Example: `  # What the next rollout changes on a node
  kubectl evenkeel config diff node/worker-17 rollout/workers

  # What changed between two revisions
  kubectl evenkeel config diff rollout/workers@3 rollout/workers@4

  # Whether a node's kubelet really has what the file says
  kubectl evenkeel config diff --live node/worker-17 kubelet.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("%s needs two configurations, such as node/NAME kubelet.yaml: see its --help", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.configDiff(cmd.Context(), args[0], args[1], o) },
	}
	f := cmd.Flags()
	f.BoolVar(&o.live, "live", false, "ask the kubelet of a node for what is effective there")
	f.StringVar(&o.form, "form", "flat", "names of fields: flat, as upstream has them, or grouped")
	printing.FormatFlag(cmd, &o.output, printing.JSON, printing.YAML)
	return cmd
}

func (a *app) configDiff(ctx context.Context, nameA, nameB string, o diffOptions) error {
	switch {
	case o.form != "flat" && o.form != "grouped":
		return fmt.Errorf("unknown form %q: use flat or grouped", o.form)
	case o.live && !strings.HasPrefix(nameA, "node/") && !strings.HasPrefix(nameB, "node/"):
		return errors.New("--live is for nodes: neither is node/NAME")
	}
	var d describe.Comparison
	var err error
	if d.A, err = a.readSide(ctx, nameA, o.live); err != nil {
		return err
	}
	if d.B, err = a.readSide(ctx, nameB, o.live); err != nil {
		return err
	}
	d.Compare(o.form)
	if o.output != "" {
		return printing.Encode(a.Out, o.output, d)
	}
	fmt.Fprintf(a.Out, "--- %s\n+++ %s\n", printable.Line(d.A.Name+" ("+d.A.Source+")"), printable.Line(d.B.Name+" ("+d.B.Source+")"))
	for _, c := range d.Differences {
		fmt.Fprintln(a.Out, printable.Line(c.String()))
	}
	if len(d.Differences) == 0 {
		fmt.Fprintln(a.Out, "no differences")
	}
	if d.NotCompared > 0 {
		fmt.Fprintf(a.Out, "not compared: %d fields that are only in one, since %s is set beside %s\n", d.NotCompared, max(d.A.Extent, d.B.Extent), min(d.A.Extent, d.B.Extent))
	}
	return nil
}

// readSide reads the configuration that an argument names.
func (a *app) readSide(ctx context.Context, name string, live bool) (query.Side, error) {
	kind, rest, _ := strings.Cut(name, "/")
	switch {
	case (kind == "node" || kind == "rollout") && rest == "" && name != kind:
		return query.Side{}, fmt.Errorf("%q lacks a name: %s/NAME", name, kind)
	case kind == "node" && live:
		config, err := a.Connection.ToRESTConfig()
		if err != nil {
			return query.Side{}, err
		}
		return query.LiveSide(ctx, config, rest)
	case kind == "node", kind == "rollout":
		c, err := a.Client()
		if err != nil {
			return query.Side{}, err
		}
		if kind == "rollout" {
			return query.RolloutSide(ctx, c, rest)
		}
		return query.NodeSide(ctx, c, rest)
	}
	p, err := filePayload(name)
	return query.SideOf(name, "file", p), err
}

func filePayload(path string) (payload.Payload, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return payload.Payload{}, fmt.Errorf("%w (node/NAME and rollout/NAME[@REVISION] name what is in the cluster)", err)
	}
	p, err := payload.Decode(payload.KeyKubelet, data)
	if refused := (*payload.Error)(nil); errors.As(err, &refused) {
		return p, fmt.Errorf("file %s is no KubeletConfiguration: %s", path, refused.Message)
	}
	return p, err
}
