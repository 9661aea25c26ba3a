// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/cli/rollout"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/kubeadm"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// componentApply has the arguments and flags of "component apply" and "config
// upload".
type componentApply struct {
	planFlags
	target      string
	init, force bool
	yes, dryRun bool
	rollout     rollout.Push // without a name: no rollout
}

func (a *app) componentApplyCommand() *cobra.Command {
	var u componentApply
	cmd := &cobra.Command{
		Use:   "apply VERSION",
		Short: "Store the component configurations for another version of Kubernetes",
		Long: `Store the component configurations for another version of Kubernetes.

The command does what "component plan" shows, with the same --config: generated configurations are generated again and signed;
configurations in --config are stored unsigned, as the user's; configurations that a user supplied or changed stay. While a
configuration must be migrated by hand, it writes nothing and exits with code 2. It prints the changed fields and asks for
confirmation. It is safe to run it again, also after an interruption. "component undo" restores the previous content.

kubeadm gives kubelet-config to nodes that join or are upgraded; running kubelets do not read it. With --rollout, the new
kubelet configuration is also rolled out by a NodeConfigRollout: step by step, with validation, trial and rollback on each
node. An existing rollout keeps its nodes and steps, and stays a drop-in or a whole configuration. A new rollout needs
--selector or --all-nodes, and is a drop-in (see "push"), because kubeadm sets some fields on each node itself, such as
resolvConf.

kube-proxies read the stored configuration when they start. Running ones go on with what they have read; an upgrade by kubeadm replaces
them. To restart them before: kubectl --namespace kube-system rollout restart daemonset/kube-proxy`,
		Example: `  # Print the changes only
  kubectl evenkeel component apply v1.37.0 --dry-run

  # Store the migrated kubelet configuration, and roll it out to the workers
  kubectl evenkeel component apply v1.37.0 --config kubelet.yaml --component-binary kubelet=./kubelet \
    --rollout workers --selector node-restriction.kubernetes.io/pool=workers --steps 1,pause,10%,100%`,
		Args: command.Args(1, 1, "needs the version of Kubernetes, such as v1.37.0: see its --help"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if u.target, err = kubeadm.ParseTarget(args[0]); err != nil {
				return err
			}

			u.rollout.Changed = cmd.Flags().Changed
			u.force = cmd.Flags().Lookup("force").Value.String() == "true"

			return a.applyComponents(cmd.Context(), u)
		},
	}
	f := cmd.Flags()
	u.add(cmd)
	f.BoolVarP(&u.yes, "yes", "y", false, "do not ask for confirmation")
	f.BoolVar(&u.dryRun, "dry-run", false, "print the changes, and write nothing")
	f.StringVar(&u.rollout.Name, "rollout", "", "name of a rollout for the kubelet's configuration")
	f.BoolVar(&u.rollout.DropIn, "drop-in", true,
		"the rollout merges the configuration over each node's local one; false: it replaces the local one")
	u.rollout.AddStrategyFlags(cmd)
	f.Lookup("force").Usage = "store a configuration that loses fields that kubeadm sets, and roll out one that was stopped"
	_ = cmd.RegisterFlagCompletionFunc("rollout", a.CompleteRollout)

	return cmd
}

func (a *app) configUploadCommand() *cobra.Command {
	u := componentApply{init: true}
	cmd := &cobra.Command{
		Use:   "upload",
		Short: "Store the component configurations of a new cluster",
		Long: `Store the component configurations of a new cluster: like "component apply" for the version of the cluster, also if
kube-proxy is not installed yet.

They are generated from the ClusterConfiguration of --config, or of the cluster's ConfigMap kubeadm-config, and signed;
component configurations in --config are stored unsigned, as the user's. The command prints the changes and asks for
confirmation. kubeadm's phases upload-config and addon create the roles with which joining nodes read the ConfigMaps.`,
		Example: `  kubectl evenkeel config upload --config cluster.yaml --component-binary kubelet=/usr/bin/kubelet`,
		Args:    command.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.applyComponents(cmd.Context(), u) },
	}
	f := cmd.Flags()
	u.add(cmd)
	f.BoolVarP(&u.yes, "yes", "y", false, "do not ask for confirmation")
	f.BoolVar(&u.dryRun, "dry-run", false, "print the changes, and write nothing")
	f.BoolVar(&u.force, "force", false, "store a configuration that loses fields that kubeadm sets")

	return cmd
}

func (a *app) applyComponents(ctx context.Context, u componentApply) error {
	if err := u.check(); err != nil {
		return err
	}

	c, err := a.Client()
	if err != nil {
		return err
	}

	plan, err := a.makePlan(ctx, c, u.target, u.planFlags, kubeadm.Options{Init: u.init})
	if err != nil {
		return err
	}
	if err := a.showUpgrade(plan, u.config); err != nil {
		return err
	}
	if err := checkComplete(plan); err != nil {
		return err
	}

	writes := plan.Writes()
	if len(writes) == 0 {
		fmt.Fprintln(a.Out, "The cluster already has these configurations: no ConfigMap changes.")
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
		return nil // a message about this has been printed
	case u.dryRun:
		fmt.Fprintln(a.Out, "dry run: nothing was written")
		return nil
	}

	for _, change := range plan.Changes {
		if change.Loss != "" && !u.force {
			return &command.Exit{Code: command.ExitHalted, Err: fmt.Errorf(
				"%s; add them (kubectl evenkeel config print component-defaults), or use --force; nothing was written", change.Loss)}
		}
	}

	if err := a.Confirm(ctx, question(writes, u.rollout.Name, change), u.yes, u.config == "-"); err != nil {
		return err
	}

	if len(writes) > 0 {
		if err := kubeadm.Store(ctx, c, cmp.Or(plan.Target, plan.Current), writes); err != nil {
			return err
		}

		fmt.Fprintf(a.Out, "stored: %s; restore the previous content with: kubectl evenkeel component undo\n", names(writes))
	}

	if change == nil {
		return nil
	}
	if err := change.Write(ctx, a.Env, c); err != nil {
		return fmt.Errorf("the ConfigMaps are stored, but not the rollout; run the command again: %w", err)
	}

	return nil
}

// check validates the flags.
func (u *componentApply) check() error {
	if u.init {
		return nil
	}

	if u.rollout.Name == "" {
		for _, flag := range rollout.StrategyFlags {
			if flag != "force" && u.rollout.Changed(flag) {
				return fmt.Errorf("--%s needs --rollout", flag)
			}
		}

		return nil
	}

	if problems := validation.IsDNS1123Label(u.rollout.Name); len(problems) > 0 {
		return fmt.Errorf("--rollout: %q is not a valid name of a rollout: %s", u.rollout.Name, problems[0])
	}

	return u.rollout.ApplyFlags(&v1alpha1.NodeConfigRolloutSpec{})
}

// showWrites prints the changed fields of each ConfigMap.
func (a *app) showWrites(writes []kubeadm.Write, proxies bool) {
	for _, w := range writes {
		a.showWrite(w)
		if proxies && w.Name() == "kube-proxy" {
			fmt.Fprintln(a.ErrOut, "note: running kube-proxies go on with what they have read; each that starts from now on reads the change, "+
				"also one of the old version; to restart them: kubectl --namespace kube-system rollout restart daemonset/kube-proxy")
		}
	}
}

// showWrite prints the changes of one ConfigMap.
func (a *app) showWrite(w kubeadm.Write) {
	old, now := cmp.Or(w.Old, &corev1.ConfigMap{}), cmp.Or(w.New, &corev1.ConfigMap{})
	switch {
	case w.Old == nil:
		fmt.Fprintf(a.Out, "\nConfigMap kube-system/%s, new:\n", w.Name())
	case w.New == nil:
		fmt.Fprintf(a.Out, "\nConfigMap kube-system/%s is deleted\n", w.Name())
		return
	default:
		fmt.Fprintf(a.Out, "\nConfigMap kube-system/%s:\n", w.Name())
	}

	for _, key := range keysOf(old.Data, now.Data) {
		if old.Data[key] != now.Data[key] {
			a.showDocument(w.Name(), key, old.Data[key], now.Data[key])
		}
	}

	for _, key := range keysOf(old.BinaryData, now.BinaryData) {
		before, was := old.BinaryData[key]
		after, is := now.BinaryData[key]
		switch {
		case !was:
			fmt.Fprintf(a.Out, "  %s, binary, is added\n", printable.Line(key))
		case !is:
			fmt.Fprintf(a.Out, "  %s, binary, is removed\n", printable.Line(key))
		case !bytes.Equal(before, after):
			fmt.Fprintf(a.Out, "  %s, binary, is changed\n", printable.Line(key))
		}
	}

	was, _ := kubeadm.OriginOf(old)
	is, _ := kubeadm.OriginOf(now)
	switch {
	case w.Name() == kubeadm.KubeadmConfigMap:
	case w.Old == nil || was != is:
		fmt.Fprintf(a.Out, "  marked as %s\n", is)
	case maps.Equal(old.Data, now.Data) && maps.EqualFunc(old.BinaryData, now.BinaryData, bytes.Equal):
		fmt.Fprintln(a.Out, "  only its signatures")
	}
}

// showDocument prints the changed fields of one document. Fields with a zero
// value, which means the default, are only counted.
func (a *app) showDocument(name, key, old, now string) {
	before, after := documentFields(old), documentFields(now)
	all := describe.Changes(before, after)
	for _, c := range kubeadm.Components() {
		if c.ConfigMap == name && c.Key == key {
			before, after = kubeadm.WithoutZeroes(c, before), kubeadm.WithoutZeroes(c, after)
		}
	}

	shown := map[string]bool{}
	for _, c := range describe.Changes(before, after) {
		shown[c.Field] = true
	}

	silent := 0
	for _, c := range all {
		if !shown[c.Field] {
			silent++
			continue
		}

		fmt.Fprintf(a.Out, "  %s: %s\n", printable.Line(key), printable.Line(c.String()))
	}

	if silent > 0 {
		fmt.Fprintf(a.Out, "  %s: %d more fields with a zero value before or after (0s, null, \"\"), which means the component's default\n",
			printable.Line(key), silent)
	}

	if len(all) == 0 {
		fmt.Fprintf(a.Out, "  %s: only comments, order or formatting\n", printable.Line(key))
	}
}

// keysOf returns the keys of two maps, sorted.
func keysOf[V any](a, b map[string]V) []string {
	all := maps.Collect(maps.All(a))
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}

// documentFields returns the fields of a document, or the whole text as one
// field. It masks the users of a kubeconfig.
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

// changeRollout rehearses and prints the change of the rollout that takes the
// kubelet's configuration to the nodes; nil if no rollout was asked for, or if
// nothing changes.
func (a *app) changeRollout(ctx context.Context, c client.Client, u *componentApply, plan *kubeadm.Plan) (*rollout.Change, error) {
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
	if differs, err := p.Rehearse(ctx, a.Env, c, change, u.dryRun); err != nil || !differs {
		if exit := (*command.Exit)(nil); errors.As(err, &exit) {
			return nil, &command.Exit{Code: exit.Code, Err: fmt.Errorf("%w; nothing was written", err)}
		}

		return nil, err
	}

	if change.IsDropIn() {
		var stay []string
		before, after := documentFields(string(kubelet.Current)), documentFields(string(data))
		for _, gone := range describe.Changes(kubeadm.WithoutZeroes(kubelet.Component, before), after) {
			if gone.B == payload.Unset {
				stay = append(stay, printable.Line(gone.Field))
			}
		}

		if len(stay) > 0 {
			fmt.Fprintf(a.Out, "note: the new configuration does not have %s any more: nodes keep their values, because the rollout is a drop-in\n",
				strings.Join(stay, ", "))
		}
	}

	return change, nil
}

func (a *app) componentUndoCommand() *cobra.Command {
	var yes, dryRun, overwrite bool
	cmd := &cobra.Command{
		Use:   "undo",
		Short: "Restore the ConfigMaps of the last component apply",
		Long: `Restore the content and the signatures of the ConfigMaps that the last "component apply" or "config upload" changed, and
delete those that it created. Run it again to undo the change before: the last ten changes are kept.

The command prints the changes and asks for confirmation. If somebody has changed a ConfigMap since, it refuses, unless
--overwrite is given. It does not change a rollout of the kubelet's configuration: use kubectl evenkeel rollout undo NAME, or
rollout abort --rollback for the first revision.`,
		Example: `  kubectl evenkeel component undo --dry-run
  kubectl evenkeel component undo`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.componentUndo(cmd.Context(), yes, dryRun, overwrite)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	f.BoolVar(&dryRun, "dry-run", false, "print the changes, and write nothing")
	f.BoolVar(&overwrite, "overwrite", false, "also restore ConfigMaps that somebody has changed since")

	return cmd
}

func (a *app) componentUndo(ctx context.Context, yes, dryRun, overwrite bool) error {
	c, err := a.Client()
	if err != nil {
		return err
	}

	record, err := kubeadm.LatestUndoRecord(ctx, c)
	if err != nil {
		return err
	}
	if record == nil {
		return errors.New("nothing to undo: no upgrade has changed a ConfigMap, or all changes were undone")
	}

	writes, err := record.Undo(ctx, c, overwrite)
	if err != nil {
		return err
	}

	fmt.Fprintf(a.Out, "Restore the state before %s\n", printable.Line(record.String()))
	have, err := kubeadm.Gather(ctx, c)
	if err != nil {
		return err
	}

	a.showWrites(writes, have.ProxyImage != "")
	if len(writes) == 0 {
		fmt.Fprintln(a.Out, "The ConfigMaps already have this content: only the record of the change is removed.")
	}
	if err := kubeadm.DryRun(ctx, c, writes); err != nil {
		return err
	}

	if dryRun {
		fmt.Fprintln(a.Out, "dry run: nothing was written")
		return nil
	}

	question := "Remove the record?"
	if len(writes) > 0 {
		question = "Restore " + names(writes) + "?"
	}
	if err := a.Confirm(ctx, question, yes, false); err != nil {
		return err
	}
	if err := kubeadm.Restore(ctx, c, record, writes); err != nil {
		return err
	}
	if len(writes) > 0 {
		fmt.Fprintf(a.Out, "restored: %s\n", names(writes))
	}

	return nil
}
