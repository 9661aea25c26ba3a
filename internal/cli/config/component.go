// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/operator/kubeadm"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// ComponentCommand returns "component" and its subcommands.
func ComponentCommand(env *command.Env) *cobra.Command {
	a := &app{env}
	cmd := command.Group(&cobra.Command{
		Use: "component", Short: "Adapt kubeadm's component configurations to another version of Kubernetes",
		Long: `Upgrade kubeadm's component configurations to another version of Kubernetes.

kubeadm stores the configurations of kubelet and kube-proxy in ConfigMaps of kube-system. Configurations that were generated
and never changed are generated again. Configurations that a user supplied or changed must be migrated by hand if the binary
of the target version does not accept them. The Corefile of CoreDNS is listed and never changed.

Use kubeadm to upgrade the control plane, the DaemonSet of kube-proxy and the programs on the nodes.`,
		Example: `  kubectl evenkeel component plan v1.37.0 --component-binary kubelet=./kubelet --component-binary kube-proxy=./kube-proxy
  kubectl evenkeel component apply v1.37.0 --component-binary kubelet=./kubelet --component-binary kube-proxy=./kube-proxy
  kubectl evenkeel component undo`,
	})
	cmd.AddCommand(a.componentPlanCommand(), a.componentApplyCommand(), a.componentUndoCommand())

	return cmd
}

// planFlags are the flags that the commands share.
type planFlags struct {
	config     string
	components componentFlags
}

func (u *planFlags) add(cmd *cobra.Command) {
	cmd.Flags().Var(&onceFlag{value: &u.config}, "config",
		"file with a ClusterConfiguration, component configurations, or both; - is standard input")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml", "json")
	u.components.add(cmd)
}

// onceFlag is the name of a file. Giving it twice is an error.
type onceFlag struct{ value *string }

func (f *onceFlag) String() string { return "" }
func (f *onceFlag) Type() string   { return "FILE" }
func (f *onceFlag) Set(s string) error {
	if *f.value != "" {
		return fmt.Errorf("%s was given already: put all documents into one file", *f.value)
	}

	*f.value = s

	return nil
}

var oneVersionAtMost = command.Args(0, 1, "needs one version at most, such as v1.37.0: see its --help")

// optionalVersion returns the target version; "" if there is no argument.
func optionalVersion(args []string) (string, error) {
	if len(args) == 0 {
		return "", nil
	}

	return kubeadm.ParseTarget(args[0])
}

// given reads the file of --config; nil without --config.
func (a *app) given(ctx context.Context, file string) (*kubeadm.Input, error) {
	if file == "" {
		return nil, nil
	}

	data, called, err := a.ReadFile(ctx, file, kubeadm.MaxFile)
	if err != nil {
		return nil, err
	}

	return kubeadm.ParseFile(called, data)
}

// makePlan reads the cluster, makes the plan and validates its result.
func (a *app) makePlan(ctx context.Context, c client.Reader, target string, u planFlags, o kubeadm.Options) (*kubeadm.Plan, error) {
	given, err := a.given(ctx, u.config)
	if err != nil {
		return nil, err
	}
	if given != nil && given.Cluster == nil && len(given.Configs) == 0 {
		return nil, fmt.Errorf("%s has only an InitConfiguration: add a ClusterConfiguration or a component configuration", given.File)
	}

	judges, done, err := u.components.open(a.ErrOut)
	defer done()
	if err != nil {
		return nil, err
	}

	have, err := kubeadm.Gather(ctx, c)
	if err != nil {
		return nil, err
	}

	return kubeadm.MakePlan(ctx, have, given, target, judges, o)
}

func (a *app) componentPlanCommand() *cobra.Command {
	var u planFlags
	var output printing.Format
	cmd := &cobra.Command{
		Use:   "plan [VERSION]",
		Short: "Show how an upgrade changes the component configurations, and which ones must be migrated by hand",
		Long: `Show how an upgrade changes the component configurations, and which ones must be migrated by hand. Nothing is written.

--config may hold a ClusterConfiguration, component configurations, or both, which replace those of the cluster. If it has a
ClusterConfiguration, component configurations that are not in the file are generated from it, whatever the cluster has.

A configuration is validated by the binary of the target version, or by its image, which the containerd of this machine
runs. Without binary and image, the configuration is unvalidated, and the preferred version is unknown. VERSION defaults to
the version of the binaries.

Exit codes:
  0  nothing must be migrated by hand
  1  wrong usage, or the cluster cannot be read
  2  a configuration must be migrated by hand before the upgrade
  3  it is unknown whether one must be: its binary was not given, or gave no verdict`,
		Example: `  # Plan an upgrade to 1.37
  kubectl evenkeel component plan v1.37.0 --component-binary kubelet=kubelet --component-image kube-proxy=registry.k8s.io/kube-proxy:v1.37.0

  # Plan it with a new kubelet configuration
  kubectl evenkeel component plan v1.37.0 --config kubelet.yaml --component-binary kubelet=./kubelet`,
		Args: oneVersionAtMost,
		RunE: func(cmd *cobra.Command, args []string) error {
			target, err := optionalVersion(args)
			if err != nil {
				return err
			}

			return a.componentPlan(cmd.Context(), target, u, output)
		},
	}
	u.add(cmd)
	printing.FormatFlag(cmd, &output, printing.JSON, printing.YAML)

	return cmd
}

func (a *app) componentPlan(ctx context.Context, target string, u planFlags, output printing.Format) error {
	c, err := a.Client()
	if err != nil {
		return err
	}

	p, err := a.makePlan(ctx, c, target, u, kubeadm.Options{})
	if err != nil {
		return err
	}

	if output != "" {
		err = printing.Encode(a.Out, output, p)
	} else {
		err = a.showUpgrade(p, u.config)
	}

	switch {
	case err != nil:
		return err
	case p.NeedsManualUpgrade():
		return &command.Exit{Code: command.ExitHalted}
	case slices.ContainsFunc(p.Components, func(r kubeadm.Row) bool { return r.ManualUpgrade == kubeadm.ManualUnknown }):
		return &command.Exit{Code: command.ExitTimeout}
	}

	return nil
}

// showUpgrade prints a plan for people: a table, then the details of each
// component, then what to do.
func (a *app) showUpgrade(p *kubeadm.Plan, given string) error {
	fmt.Fprintln(a.Out, printable.Line(headline(p)))
	fmt.Fprintln(a.Out)
	var rows [][]string
	for _, r := range p.Components {
		rows = append(rows, []string{
			r.Component, string(r.Tier), string(r.Origin), r.Short(r.CurrentVersion), r.Short(r.Preferred()),
			string(r.Action), strings.ToLower(string(r.ManualUpgrade)),
		})
	}

	if err := printing.Table(a.Out, []string{"COMPONENT", "TIER", "ORIGIN", "VERSION", "PREFERRED", "ACTION", "MANUAL UPGRADE"},
		rows); err != nil {
		return err
	}

	fmt.Fprintln(a.Out)
	by := map[kubeadm.Manual][]string{}
	view := false
	for _, r := range p.Components {
		fmt.Fprintf(a.Out, "%s: %s\n", r.Component, printable.Line(r.Why))
		if len(r.Objections) > 0 {
			fmt.Fprintf(a.Out, "  %s:\n", refusal(r))
			for _, words := range r.Objections {
				fmt.Fprintf(a.Out, "    %s\n", printable.Line(words))
			}
		}

		by[r.ManualUpgrade] = append(by[r.ManualUpgrade], r.Component)
		view = view || r.ManualUpgrade == kubeadm.ManualYes && r.Action == kubeadm.Keep
	}

	a.warn(p)
	fmt.Fprintln(a.Out)
	manual, unknown := by[kubeadm.ManualYes], by[kubeadm.ManualUnknown]
	switch {
	case len(manual) > 0:
		fmt.Fprintf(a.Out, "To migrate by hand before the upgrade: %s.\n", strings.Join(manual, ", "))
	case len(unknown) == 0:
		fmt.Fprintln(a.Out, "Nothing must be migrated by hand.")
	}

	if len(unknown) > 0 {
		fmt.Fprintf(a.Out, "Unknown whether to migrate by hand: %s.\n", strings.Join(unknown, ", "))
	}

	switch {
	case view:
		fmt.Fprintln(a.Out, "Print the configuration of the cluster with: kubectl evenkeel config view upgradeable; migrate it, and pass it "+
			"with --config.")
	case len(manual) > 0 && given != "":
		fmt.Fprintf(a.Out, "Correct %s, and try again.\n", printable.Line(given))
	case len(manual) > 0:
		fmt.Fprintln(a.Out, "Correct the ClusterConfiguration, or pass the configuration with --config.")
	}

	return nil
}

// warn prints the notes and warnings of a plan.
func (a *app) warn(p *kubeadm.Plan) {
	a.Notes(p.Notes...)
	for _, r := range p.Components {
		for _, words := range r.Warnings {
			fmt.Fprintf(a.ErrOut, "warning: %s: %s\n", r.Component, printable.Line(words))
		}
	}
}

func headline(p *kubeadm.Plan) string {
	line := "Component configurations"
	if p.Target != "" {
		line += " for " + p.Target
	}
	if p.Current != "" {
		line += fmt.Sprintf(" (the cluster's ClusterConfiguration says %s)", p.Current)
	}

	return line
}

// refusal returns which configuration is rejected, and by which binary.
func refusal(r kubeadm.Row) string {
	what := "the cluster's configuration"
	switch r.Action {
	case kubeadm.Replace:
		what = "the configuration of --config"
	case kubeadm.Generate, kubeadm.Regenerate:
		what = "the configuration generated from the ClusterConfiguration"
	}

	if r.ValidatedBy == "" {
		return what + " cannot be read"
	}

	return fmt.Sprintf("%s is rejected by %s", what, r.ValidatedBy)
}

// checkComplete returns an error if a plan must not be carried out.
func checkComplete(p *kubeadm.Plan) error {
	if p.NeedsManualUpgrade() {
		return &command.Exit{Code: command.ExitHalted, Err: errors.New("a configuration must be migrated by hand first; nothing was written")}
	}

	for _, r := range p.NotValidated() {
		return fmt.Errorf("unknown whether %s accepts its configuration: solve this, or omit the flag to store the configuration unvalidated; "+
			"nothing was written", r.ValidatedBy)
	}

	return nil
}
