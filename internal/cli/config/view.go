// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/operator/kubeadm"
	"github.com/evenkeel/evenkeel/internal/printable"
)

func (a *app) configViewCommand() *cobra.Command {
	cmd := command.Group(&cobra.Command{Use: "view", Short: "Print configurations of the cluster",
		Example: `  kubectl evenkeel config view upgradeable --component-binary kubelet=./kubelet`})
	cmd.AddCommand(a.configViewUpgradeableCommand())
	return cmd
}

func (a *app) configViewUpgradeableCommand() *cobra.Command {
	var components componentFlags
	var output string
	cmd := &cobra.Command{
		Use:   "upgradeable [VERSION]",
		Short: "Print the component configurations that must be migrated by hand before an upgrade",
		Long: `Print the component configurations of the cluster that must be migrated by hand before an upgrade: a user supplied or
changed them, and the binary of the target version does not accept them. The output are YAML documents with the reason in a
comment. Pass the migrated documents to "component apply --config". If there are none, standard output is empty, and standard error
says so.

Configurations without a binary or image of the target version are listed on standard error as unvalidated.`,
		Example: `  kubectl evenkeel config view upgradeable --component-binary kubelet=./kubelet --output old.yaml`,
		Args:    oneVersionAtMost,
		RunE: func(cmd *cobra.Command, args []string) error {
			target, err := optionalVersion(args)
			if err != nil {
				return err
			}

			return a.configViewUpgradeable(cmd.Context(), target, components, output)
		},
	}
	components.add(cmd)
	outputFlag(cmd, &output)

	return cmd
}

func (a *app) configViewUpgradeable(ctx context.Context, target string, components componentFlags, output string) error {
	c, err := a.Client()
	if err != nil {
		return err
	}

	p, err := a.makePlan(ctx, c, target, planFlags{components: components}, kubeadm.Options{})
	if err != nil {
		return err
	}

	a.warn(p)
	var documents bytes.Buffer
	for i, change := range p.Changes {
		row := p.Components[i]
		if change.Action != kubeadm.Keep || row.ManualUpgrade != kubeadm.ManualYes {
			continue
		}

		fmt.Fprintf(&documents, "---\n# ConfigMap kube-system/%s, %s: %s:\n", row.ConfigMap, row.Origin, printable.Line(refusal(row)))
		for _, words := range row.Objections {
			fmt.Fprintf(&documents, "#   %s\n", printable.Line(words))
		}

		text := string(change.Current)
		if change.Unreadable != "" { // it may have control characters, which a valid document cannot have
			text = printable.Text(text)
		}

		documents.WriteString(strings.TrimSuffix(text, "\n") + "\n")
	}

	if documents.Len() == 0 {
		fmt.Fprintln(a.ErrOut, nothingToMigrate(p, output))
		return nil
	}

	return a.output(output, documents.Bytes())
}

// nothingToMigrate says that no configuration is known to need a migration by
// hand, and of which that is not known.
func nothingToMigrate(p *kubeadm.Plan, output string) string {
	var unknown []string
	for _, row := range p.Components {
		if row.ManualUpgrade == kubeadm.ManualUnknown {
			unknown = append(unknown, row.Component)
		}
	}

	words := "nothing needs to be migrated by hand"
	if p.Target != "" {
		words += " for " + p.Target
	}
	if len(unknown) > 0 {
		words += " as far as is known; not validated: " + strings.Join(unknown, ", ")
	}
	if output != "" && output != "-" {
		words += "; " + output + " was not written"
	}

	return words
}

func (a *app) configPrintCommand() *cobra.Command {
	cmd := command.Group(&cobra.Command{Use: "print", Short: "Print generated configurations",
		Example: `  kubectl evenkeel config print component-defaults`})
	cmd.AddCommand(a.configPrintDefaultsCommand())
	return cmd
}

func (a *app) configPrintDefaultsCommand() *cobra.Command {
	var only []string
	var file, output string
	cmd := &cobra.Command{
		Use:   "component-defaults",
		Short: "Print the component configurations that are generated for this cluster's settings",
		Long: `Print the component configurations that are generated for a cluster's settings, as YAML documents. They have the fields
that follow from the ClusterConfiguration, without the defaults of the components.

The ClusterConfiguration comes from --config, or from the cluster if --config is not set. For a file with only an
InitConfiguration, kubeadm's defaults are used.`,
		Example: `  # Print the generated configurations for this cluster
  kubectl evenkeel config print component-defaults

  # Print the kubelet's configuration for a new cluster
  kubectl evenkeel config print component-defaults --component kubelet --config cluster.yaml --output kubelet.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("%s takes no arguments; to choose a component use --component %s: see its --help", cmd.CommandPath(), args[0])
			}

			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.configPrintDefaults(cmd.Context(), only, file, output)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&only, "component", nil, "only this component: kubelet or kube-proxy; can be repeated (default all)")
	f.StringVar(&file, "config", "", "file with kubeadm's configuration; - is standard input")
	outputFlag(cmd, &output)

	return cmd
}

func (a *app) configPrintDefaults(ctx context.Context, only []string, file, output string) error {
	var all []string
	for _, c := range kubeadm.Components() {
		all = append(all, c.Name)
	}

	for _, name := range only {
		if !slices.Contains(all, name) {
			return fmt.Errorf("--component: unknown component %q: use one of %s", name, strings.Join(all, ", "))
		}
	}

	given, err := a.given(ctx, file)
	if err != nil {
		return err
	}

	have := &kubeadm.Cluster{}
	switch {
	case given == nil:
		c, err := a.Client()
		if err != nil {
			return err
		}
		if have, err = kubeadm.Gather(ctx, c); err != nil {
			return err
		}
	case given.Cluster == nil && !given.Init:
		return fmt.Errorf("%s holds no ClusterConfiguration, which is needed to generate component configurations", given.File)
	}

	if given != nil {
		if given.Cluster == nil {
			given.Notes = append(given.Notes, given.File+" has no ClusterConfiguration: kubeadm's defaults are used")
		}

		for _, name := range slices.Sorted(maps.Keys(given.Configs)) {
			given.Notes = append(given.Notes, given.Configs[name].Place+" is ignored: it is not generated")
		}

		a.Notes(given.Notes...)
	}

	documents, err := kubeadm.Defaults(have, given, only)
	if err != nil {
		return err
	}

	return a.output(output, documents)
}
