package config

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/kubeadm"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// UpgradeCommand returns "upgrade" and its subcommands.
func UpgradeCommand(env *command.Env) *cobra.Command {
	a := &app{env}
	cmd := command.Group(&cobra.Command{
		Use: "upgrade", Short: "Bring kubeadm's component configurations to another version of Kubernetes",
		Long: `Bring kubeadm's component configurations to another version of Kubernetes.

On a cluster as kubeadm lays it out the configurations of kubelet and kube-proxy are in ConfigMaps of kube-system. What
was generated there, and nobody has changed, is generated anew; what somebody supplied or changed is theirs to migrate,
if the target version's own binary no longer accepts it. The Corefile of CoreDNS is shown and never touched.

The control plane itself, the DaemonSet of kube-proxy and the programs on the nodes are kubeadm's to upgrade.`,
		Example: `  kubectl evenkeel upgrade plan v1.37.0 --component-binary kubelet=./kubelet --component-binary kube-proxy=./kube-proxy
  kubectl evenkeel upgrade apply v1.37.0 --component-binary kubelet=./kubelet --component-binary kube-proxy=./kube-proxy
  kubectl evenkeel upgrade undo`,
	})
	cmd.AddCommand(a.upgradePlanCommand(), a.upgradeApplyCommand(), a.upgradeUndoCommand())
	return cmd
}

// upgradeFlags are what plan, apply and others look at.
type upgradeFlags struct {
	config     string
	components componentFlags
}

func (u *upgradeFlags) add(cmd *cobra.Command) {
	cmd.Flags().Var(&onceFlag{value: &u.config}, "config", "file with a ClusterConfiguration, component configurations, or both; - is standard input")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml", "json")
	u.components.add(cmd)
}

// onceFlag is a file's name, given once: a second one would take the first one's place without a word.
type onceFlag struct{ value *string }

func (f *onceFlag) String() string { return "" }
func (f *onceFlag) Type() string   { return "FILE" }
func (f *onceFlag) Set(s string) error {
	if *f.value != "" {
		return fmt.Errorf("%s is given already: put all documents into one file", *f.value)
	}
	*f.value = s
	return nil
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments: see its --help", cmd.CommandPath())
	}
	return nil
}

func oneVersionAtMost(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("%s needs one version at most, such as v1.37.0: see its --help", cmd.CommandPath())
	}
	return nil
}

// optionalVersion is the target that the arguments name, "" if none.
func optionalVersion(args []string) (string, error) {
	if len(args) == 0 {
		return "", nil
	}
	return kubeadm.ParseTarget(args[0])
}

// given reads --config; nil if it was not given.
func (a *app) given(ctx context.Context, file string) (*kubeadm.Input, error) {
	if file == "" {
		return nil, nil
	}
	data, called, err := a.ReadFile(ctx, file, kubeadm.MaxFile+1)
	if err != nil {
		return nil, err
	}
	return kubeadm.ParseFile(called, data)
}

// makePlan gathers, decides and has the result judged.
func (a *app) makePlan(ctx context.Context, c client.Reader, target string, u upgradeFlags, o kubeadm.Options) (*kubeadm.Plan, error) {
	given, err := a.given(ctx, u.config)
	if err != nil {
		return nil, err
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

func (a *app) upgradePlanCommand() *cobra.Command {
	var u upgradeFlags
	var output printing.Format
	cmd := &cobra.Command{
		Use:   "plan [VERSION]",
		Short: "Show what an upgrade makes of the component configurations, and what needs hands",
		Long: `Show what an upgrade makes of the component configurations, and what needs hands. Nothing is written.

--config may hold a ClusterConfiguration, component configurations, or both. What is in it takes the place of what the
cluster has; what is not comes from the cluster. With a ClusterConfiguration it is all that there will be: component
configurations that do not come with it are generated from it, whatever the cluster has.

Whether a configuration is good for the target version is for that version's own binary to say, or its image, run by the
containerd of this machine. Without it a configuration is unvalidated, and the version that the target prefers unknown.
VERSION may be left out: it is what the binaries are.

Exit codes:
  0  nothing needs hands, as far as could be told: what is unvalidated is said on standard error
  1  wrong usage, or the cluster cannot be read
  2  something has to be migrated by hand before the upgrade`,
		Example: `  # What has to be done before an upgrade to 1.37
  kubectl evenkeel upgrade plan v1.37.0 --component-binary kubelet=./kubelet --component-image kube-proxy=registry.k8s.io/kube-proxy:v1.37.0

  # The same with a new kubelet configuration
  kubectl evenkeel upgrade plan v1.37.0 --config kubelet.yaml --component-binary kubelet=./kubelet`,
		Args: oneVersionAtMost,
		RunE: func(cmd *cobra.Command, args []string) error {
			target, err := optionalVersion(args)
			if err != nil {
				return err
			}
			return a.upgradePlan(cmd.Context(), target, u, output)
		},
	}
	u.add(cmd)
	printing.FormatFlag(cmd, &output, printing.JSON, printing.YAML)
	return cmd
}

func (a *app) upgradePlan(ctx context.Context, target string, u upgradeFlags, output printing.Format) error {
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
	case p.NeedsHands():
		return &command.Exit{Code: command.ExitHalted}
	}
	return nil
}

// showUpgrade prints a plan for people: a table, then what is to be said of each, then what to do.
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
	if err := printing.Table(a.Out, []string{"COMPONENT", "TIER", "ORIGIN", "VERSION", "PREFERRED", "ACTION", "MANUAL UPGRADE"}, rows); err != nil {
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
	hands, unknown := by[kubeadm.ManualYes], by[kubeadm.ManualUnknown]
	switch {
	case len(hands) > 0:
		fmt.Fprintf(a.Out, "By hand, before the upgrade: %s.\n", strings.Join(hands, ", "))
	case len(unknown) == 0:
		fmt.Fprintln(a.Out, "Nothing needs hands.")
	}
	if len(unknown) > 0 {
		fmt.Fprintf(a.Out, "Whether it needs hands could not be told: %s.\n", strings.Join(unknown, ", "))
	}
	switch {
	case view:
		fmt.Fprintln(a.Out, "kubectl evenkeel config view upgradeable prints what is in the cluster; migrated, it goes to --config.")
	case len(hands) > 0 && given != "":
		fmt.Fprintf(a.Out, "Mend %s, and try again.\n", printable.Line(given))
	case len(hands) > 0:
		fmt.Fprintln(a.Out, "Mend the ClusterConfiguration, or give the configuration with --config.")
	}
	return nil
}

// warn prints what a plan could not find out, and what it passed over.
func (a *app) warn(p *kubeadm.Plan) {
	for _, note := range p.Notes {
		fmt.Fprintln(a.ErrOut, "note:", printable.Line(note))
	}
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

// refusal says who has something against a configuration.
func refusal(r kubeadm.Row) string {
	what := "what the cluster has"
	switch r.Action {
	case kubeadm.Replace:
		what = "what is given"
	case kubeadm.Generate, kubeadm.Regenerate:
		what = "what is generated from the ClusterConfiguration"
	}
	if r.ValidatedBy == "" {
		return what + " is none"
	}
	return fmt.Sprintf("%s is rejected by %s", what, r.ValidatedBy)
}

// settled is an error if a plan must not be carried out.
func settled(p *kubeadm.Plan) error {
	if p.NeedsHands() {
		return &command.Exit{Code: command.ExitHalted, Err: errors.New("something has to be migrated by hand first; nothing was written")}
	}
	for _, r := range p.NotValidated() {
		return fmt.Errorf("whether %s accepts its configuration could not be told: mend that, or leave the flag out and store it unvalidated; nothing was written", r.ValidatedBy)
	}
	return nil
}
