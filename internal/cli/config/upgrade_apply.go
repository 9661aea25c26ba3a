package config

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/rollout"
	"github.com/evenkeel/evenkeel/internal/fleet/report"
	"github.com/evenkeel/evenkeel/internal/kubeadm"
)

// upgrade is what the command line of an upgrade asks for.
type upgrade struct {
	upgradeFlags
	target      string
	init        bool
	yes, dryRun bool
	rollout     rollout.Push // without a name: no rollout
}

func (a *app) upgradeApplyCommand() *cobra.Command {
	var u upgrade
	cmd := &cobra.Command{
		Use:   "apply VERSION",
		Short: "Store the component configurations for another version of Kubernetes",
		Long: `Store the component configurations for another version of Kubernetes.

It does what "upgrade plan" shows, with the same --config: what was generated is generated anew and signed; what is given
is stored as the user's, unsigned; what a user supplied or changed stays. It refuses, with exit code 2, while something
has to be migrated by hand. It shows what changes, field by field, asks, and writes. To run it again does no harm, also
after it was interrupted. "upgrade undo" restores what was there before.

kubelet-config is what kubeadm gives to nodes that join or are upgraded; kubelets that run do not read it. With --rollout
the new kubelet configuration is handed to a NodeConfigRollout, which takes it to the nodes step by step, judged, tried
and rolled back by each of them. A rollout that there is keeps its nodes and steps, and is a drop-in or not as it was. A
new one needs --selector or --all-nodes, and lays the configuration over what each node has (as --drop-in does for push),
since kubeadm sets some fields on each node itself, such as resolvConf.

kube-proxies that run read what is stored within minutes, on all nodes at a time.`,
		Example: `  # See what it would do
  kubectl evenkeel upgrade apply v1.37.0 --dry-run

  # Migrate the kubelet's configuration, and take it to the workers by a rollout
  kubectl evenkeel upgrade apply v1.37.0 --config kubelet.yaml --component-binary kubelet=./kubelet \
    --rollout workers --selector node-restriction.kubernetes.io/pool=workers --steps 1,pause,10%,100%`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%s needs the version of Kubernetes, such as v1.37.0: see its --help", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if u.target, err = kubeadm.ParseTarget(args[0]); err != nil {
				return err
			}
			u.rollout.Changed = cmd.Flags().Changed
			return a.upgrade(cmd.Context(), u)
		},
	}
	f := cmd.Flags()
	u.add(cmd)
	f.BoolVarP(&u.yes, "yes", "y", false, "do not ask")
	f.BoolVar(&u.dryRun, "dry-run", false, "show what it would do, and write nothing")
	f.StringVar(&u.rollout.Name, "rollout", "", "name of the rollout that takes the kubelet's configuration to the nodes")
	f.BoolVar(&u.rollout.DropIn, "drop-in", true, "the rollout lays the configuration over each node's local one; false: it takes its place")
	u.rollout.AddStrategyFlags(cmd)
	_ = cmd.RegisterFlagCompletionFunc("rollout", a.CompleteRollout)
	return cmd
}

func (a *app) configUploadCommand() *cobra.Command {
	u := upgrade{init: true}
	cmd := &cobra.Command{
		Use:   "upload",
		Short: "Store the component configurations of a cluster that is being made",
		Long: `Store the component configurations of a cluster that is being made: what "upgrade apply" does, at the version that the
cluster has, and also where kube-proxy is not installed yet.

They are generated from the ClusterConfiguration of --config, else of the cluster's ConfigMap kubeadm-config, and signed;
component configurations that --config holds are stored as the user's, unsigned. It shows what changes, asks, and writes.
The rights by which joining nodes read the ConfigMaps are made by kubeadm's phases upload-config and addon.`,
		Example: `  kubectl evenkeel config upload --config cluster.yaml --component-binary kubelet=/usr/bin/kubelet`,
		Args:    noArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.upgrade(cmd.Context(), u) },
	}
	f := cmd.Flags()
	u.add(cmd)
	f.BoolVarP(&u.yes, "yes", "y", false, "do not ask")
	f.BoolVar(&u.dryRun, "dry-run", false, "show what it would do, and write nothing")
	return cmd
}

func (a *app) upgrade(ctx context.Context, u upgrade) error {
	if err := u.check(); err != nil {
		return err
	}
	c, err := a.Client()
	if err != nil {
		return err
	}
	plan, err := a.makePlan(ctx, c, u.target, u.upgradeFlags, kubeadm.Options{Init: u.init})
	if err != nil {
		return err
	}
	if err := a.showUpgrade(plan, u.config); err != nil {
		return err
	}
	if err := settled(plan); err != nil {
		return err
	}
	writes := plan.Writes()
	if len(writes) == 0 {
		fmt.Fprintln(a.Out, "The cluster has all of this already: no ConfigMap changes.")
	}
	a.showWrites(writes, plan.RunningProxy != "")
	if err := kubeadm.DryRun(ctx, c, writes); err != nil {
		return err
	}
	change, err := a.changeRollout(ctx, c, &u, plan)
	if err != nil {
		return err
	}
	switch {
	case len(writes) == 0 && change == nil:
		return nil // that nothing changes was said
	case u.dryRun:
		fmt.Fprintln(a.Out, "dry run: nothing was written")
		return nil
	}
	if err := a.Confirm(ctx, question(writes, u.rollout.Name, change), u.yes, u.config == "-"); err != nil {
		return err
	}
	if len(writes) > 0 {
		if err := kubeadm.Store(ctx, c, cmp.Or(plan.Target, plan.Current), writes); err != nil {
			return err
		}
		fmt.Fprintf(a.Out, "stored: %s; kubectl evenkeel upgrade undo restores what was there\n", names(writes))
	}
	if change == nil {
		return nil
	}
	if err := change.Write(ctx, a.Env, c); err != nil {
		return fmt.Errorf("the ConfigMaps are as they should be; the rollout is not, run it again: %w", err)
	}
	return nil
}

// check looks at flags alone.
func (u *upgrade) check() error {
	if u.init {
		return nil
	}
	if u.rollout.Name == "" {
		for _, flag := range rollout.StrategyFlags {
			if u.rollout.Changed(flag) {
				return fmt.Errorf("--%s is for the rollout: name it with --rollout", flag)
			}
		}
		return nil
	}
	if problems := validation.IsDNS1123Label(u.rollout.Name); len(problems) > 0 {
		return fmt.Errorf("--rollout: %q cannot be the name of a rollout: %s", u.rollout.Name, problems[0])
	}
	return u.rollout.ApplyFlags(&v1alpha1.NodeConfigRolloutSpec{})
}

// showWrites prints what each ConfigMap's documents become, field by field.
func (a *app) showWrites(writes []kubeadm.Write, proxies bool) {
	for _, w := range writes {
		a.showWrite(w)
	}
	for _, w := range writes {
		if proxies && w.Name() == "kube-proxy" {
			fmt.Fprintln(a.ErrOut, "warning: the kube-proxies that run read kube-system/kube-proxy within minutes of a change, on all nodes, and restart by themselves")
		}
	}
}

// showWrite prints what becomes of one ConfigMap.
func (a *app) showWrite(w kubeadm.Write) {
	old, now := orEmpty(w.Old), orEmpty(w.New)
	switch {
	case w.Old == nil:
		fmt.Fprintf(a.Out, "\nConfigMap kube-system/%s, new:\n", w.Name())
	case w.New == nil:
		fmt.Fprintf(a.Out, "\nConfigMap kube-system/%s is deleted\n", w.Name())
		return
	default:
		fmt.Fprintf(a.Out, "\nConfigMap kube-system/%s:\n", w.Name())
	}
	keys := maps.Clone(old.Data)
	if keys == nil {
		keys = map[string]string{}
	}
	maps.Copy(keys, now.Data)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if old.Data[key] != now.Data[key] {
			a.showDocument(w.Name(), key, old.Data[key], now.Data[key])
		}
	}
	binary := map[string]string{}
	for key := range old.BinaryData {
		binary[key] = "is gone"
	}
	for key, value := range now.BinaryData {
		switch before, there := old.BinaryData[key]; {
		case !there:
			binary[key] = "is new"
		case bytes.Equal(before, value):
			delete(binary, key)
		default:
			binary[key] = "is another"
		}
	}
	for _, key := range slices.Sorted(maps.Keys(binary)) {
		fmt.Fprintf(a.Out, "  %s, binary, %s\n", printable.Line(key), binary[key])
	}
	was, _ := kubeadm.OriginOf(old)
	is, _ := kubeadm.OriginOf(now)
	switch {
	case w.Name() == kubeadm.KubeadmConfigMap:
	case w.Old == nil || was != is:
		fmt.Fprintf(a.Out, "  marked as %s\n", is)
	case maps.Equal(old.Data, now.Data) && len(binary) == 0:
		fmt.Fprintln(a.Out, "  its signatures alone")
	}
}

// showDocument prints what becomes of one document. What only says that a field has its default is counted.
func (a *app) showDocument(name, key, old, now string) {
	before, after := documentFields(old), documentFields(now)
	all := describe.Changes(before, after)
	for _, c := range kubeadm.Components() {
		if c.ConfigMap == name && c.Key == key {
			before, after = kubeadm.WithoutZeroes(c, before), kubeadm.WithoutZeroes(c, after)
		}
	}
	said := map[string]bool{}
	for _, c := range describe.Changes(before, after) {
		said[c.Field] = true
	}
	silent := 0
	for _, c := range all {
		if !said[c.Field] {
			silent++
			continue
		}
		fmt.Fprintf(a.Out, "  %s: %s\n", printable.Line(key), printable.Line(c.String()))
	}
	if silent > 0 {
		fmt.Fprintf(a.Out, "  %s: %d more that say nothing, before or after (0s, null, \"\"): they have the component's defaults\n", printable.Line(key), silent)
	}
	if len(all) == 0 {
		fmt.Fprintf(a.Out, "  %s: only comments, order or formatting\n", printable.Line(key))
	}
}

func orEmpty(cm *corev1.ConfigMap) *corev1.ConfigMap {
	if cm == nil {
		return &corev1.ConfigMap{}
	}
	return cm
}

// documentFields are the fields of a document, or all of the text under one name. Of a kubeconfig nothing is shown of who
// its users are but for their names.
func documentFields(text string) map[string]any {
	fields, err := kubeadm.Fields([]byte(text))
	if err != nil {
		return map[string]any{"text": text}
	}
	if users, ok := fields["users"].([]any); ok && fields["kind"] == "Config" {
		delete(fields, "users")
		for _, u := range users {
			if user, ok := u.(map[string]any); ok {
				digest := sha256.Sum256(fmt.Append(nil, user["user"]))
				fields[fmt.Sprintf("users %v", user["name"])] = fmt.Sprintf("masked, with the digest %x", digest[:4])
			}
		}
	}
	return fields
}

func names(writes []kubeadm.Write) string {
	var all []string
	for _, w := range writes {
		all = append(all, "kube-system/"+w.Name())
	}
	return strings.Join(all, ", ")
}

func question(writes []kubeadm.Write, name string, change *rollout.Change) string {
	var parts []string
	if len(writes) > 0 {
		parts = append(parts, "Store "+names(writes))
	}
	if change != nil {
		parts = append(parts, strings.ToLower(change.Verb())+" rollout "+name)
	}
	words := strings.Join(parts, ", ")
	return strings.ToUpper(words[:1]) + words[1:] + "?"
}

// changeRollout rehearses and prints the change of the rollout that takes the kubelet's configuration to the nodes; nil if no
// rollout was asked for, or if nothing changes.
func (a *app) changeRollout(ctx context.Context, c client.Client, u *upgrade, plan *kubeadm.Plan) (*rollout.Change, error) {
	p := u.rollout
	if p.Name == "" {
		return nil, nil
	}
	kubelet := &plan.Changes[slices.IndexFunc(plan.Changes, func(c kubeadm.Change) bool { return c.Component.Name == "kubelet" })]
	old, err := p.Stored(ctx, c)
	if err != nil {
		return nil, err
	}
	p.File = "the kubelet configuration"
	p.DropIn = p.DropIn && (old == nil || p.Changed("drop-in"))
	data := kubelet.Next
	if p.DropIn || old != nil && old.Spec.Template.KubeletDropIn != nil && !p.Changed("drop-in") {
		if data, err = kubelet.Overlay(); err != nil {
			return nil, err
		}
	}
	change, err := p.Change(old, data)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(a.Out, "\nRollout %s:\n", p.Name)
	if differs, err := p.Rehearse(ctx, a.Env, c, change); err != nil || !differs {
		return nil, err
	}
	if change.IsDropIn() {
		var stay []string
		before, after := documentFields(string(kubelet.Current)), documentFields(string(data))
		for _, gone := range describe.Changes(kubeadm.WithoutZeroes(kubelet.Component, before), after) {
			if gone.B == describe.Unset {
				stay = append(stay, printable.Line(gone.Field))
			}
		}
		if len(stay) > 0 {
			fmt.Fprintf(a.Out, "note: the new configuration no longer has %s: what a node has there stays, since the rollout lays it over\n", strings.Join(stay, ", "))
		}
	}
	return change, nil
}
