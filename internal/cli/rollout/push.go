// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/operator/steer"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// PushCommand returns "push".
func PushCommand(env *command.Env) *cobra.Command {
	a := &app{env}
	var p Push
	cmd := &cobra.Command{
		Use:   "push NAME -f FILE",
		Short: "Create or update a rollout from a kubelet configuration file",
		Long: `Create or update a rollout from a kubelet configuration file.

The command prints the changed fields and the plan of the rollout, and asks for confirmation before it writes. Settings
without a flag do not change: for an existing rollout, -f is enough. A new rollout needs --selector or --all-nodes.

The file holds a KubeletConfiguration, upstream or grouped, in YAML or JSON. With --drop-in it is partial, and is merged
over each node's local configuration. A rollout that was created with --drop-in keeps it, unless --drop-in=false is given.

Steps are a comma-separated list of numbers of nodes, percentages, and pauses. "pause" waits for "rollout approve",
"pause:10m" waits for ten minutes.

With --preflight, every node's agent judges the configuration before the first kubelet is restarted, and the command waits and
prints the answers. The rollout then continues by itself; with --preflight=require (or --preflight alone) it stops instead if
--max-failures nodes or more refuse, except for their pods, and the exit code is 2. The mode is stored in the rollout.`,
		Example: `  # Create a rollout: one node, a pause of ten minutes, 10%, a pause until "approve", all nodes
  kubectl evenkeel push workers -f kubelet.yaml --selector node-restriction.kubernetes.io/pool=workers --steps 1,pause:10m,10%,pause,100%

  # Roll out another configuration to the same nodes, by the same steps
  kubectl evenkeel push workers -f kubelet.yaml

  # Change a few fields on every node, from a script
  kubectl evenkeel push limits -f fields.yaml --drop-in --all-nodes --yes

  # Ask every node first, and stop if one refuses
  kubectl evenkeel push workers -f kubelet.yaml --preflight

  # Print the plan only
  kubectl evenkeel push workers -f kubelet.yaml --dry-run`,
		Args: oneRollout, ValidArgsFunction: a.CompleteRollout,
		RunE: func(cmd *cobra.Command, args []string) error {
			p.Name, p.Changed = args[0], cmd.Flags().Changed
			return a.push(cmd.Context(), p)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&p.File, "filename", "f", "", "file with the configuration; - is standard input")
	f.BoolVar(&p.DropIn, "drop-in", false, "the file is partial: merge it over each node's local configuration")
	p.AddStrategyFlags(cmd)
	f.BoolVarP(&p.yes, "yes", "y", false, "do not ask for confirmation")
	f.BoolVar(&p.dryRun, "dry-run", false, "print the plan, and write nothing")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")

	return cmd
}

// Push is a configuration for a rollout, and the flags that say which nodes it
// goes to and how.
type Push struct {
	Name, File string
	DropIn     bool
	// Changed reports whether a flag was given.
	Changed func(flag string) bool

	selector, steps, maxUnavailable, maxJoining, maxFailures string
	onFailure                                                v1alpha1.FailureAction
	preflight                                                v1alpha1.PreflightMode
	allNodes, inline, yes, dryRun, force                     bool
	trial                                                    command.TrialFlags
}

func (a *app) push(ctx context.Context, p Push) error {
	if problems := validation.IsDNS1123Label(p.Name); len(problems) > 0 {
		return fmt.Errorf("%q is not a valid name of a rollout: use at most 63 lower-case letters, digits and '-', such as workers-1, "+
			"beginning and ending with a letter or digit", p.Name)
	}

	if p.File == "" {
		return errors.New("push needs -f FILE with a kubelet configuration, or -f - for standard input")
	}

	data, _, err := a.ReadFile(ctx, p.File, payload.MaxSize)
	if err != nil {
		return err
	}

	c, err := a.Client()
	if err != nil {
		return err
	}

	old, err := p.Stored(ctx, c)
	if err != nil {
		return err
	}

	change, err := p.Change(old, data)
	if err != nil {
		return err
	}
	if differs, err := p.Rehearse(ctx, a.Env, c, change, p.dryRun); err != nil || !differs {
		return err
	}

	if p.dryRun {
		fmt.Fprintln(a.Out, "dry run: nothing was written")
		return nil
	}

	if err := a.Confirm(ctx, change.Verb()+" rollout "+p.Name+"?", p.yes, p.File == "-"); err != nil {
		return err
	}
	if err := change.Write(ctx, a.Env, c); err != nil {
		return err
	}

	if mode := change.desired.Spec.Strategy.Preflight; p.Changed("preflight") &&
		(mode == v1alpha1.PreflightReport || mode == v1alpha1.PreflightRequire) {
		return a.awaitPreflight(ctx, c, p.Name)
	}

	return nil
}

// Stored reads the rollout of a push; nil if it does not exist yet.
func (p Push) Stored(ctx context.Context, c client.Reader) (*v1alpha1.NodeConfigRollout, error) {
	r := &v1alpha1.NodeConfigRollout{}
	switch err := c.Get(ctx, client.ObjectKey{Name: p.Name}, r); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read rollout %q: %w", p.Name, err)
	}

	return r, nil
}

// Change is what a push makes of a rollout.
type Change struct {
	old, desired *v1alpha1.NodeConfigRollout // old is nil if the rollout does not exist yet
	content      payload.Payload
}

// Verb returns "Create" or "Update".
func (change *Change) Verb() string {
	if change.old == nil {
		return "Create"
	}

	return "Update"
}

// IsDropIn reports whether the rollout's new configuration is a drop-in.
func (change *Change) IsDropIn() bool { return change.content.Key == payload.KeyKubeletDropin }

// Change returns what the push makes of old, which is nil if the rollout does
// not exist yet. Fields without a flag keep their values. The error says what
// is wrong with a flag or with the configuration.
func (p Push) Change(old *v1alpha1.NodeConfigRollout, data []byte) (*Change, error) {
	r := &v1alpha1.NodeConfigRollout{}
	r.Name = p.Name
	if old != nil {
		r = old.DeepCopy()
	}

	key := payload.KeyKubelet
	if p.DropIn || !p.Changed("drop-in") && r.Spec.Template.KubeletDropIn != nil {
		key = payload.KeyKubeletDropin
	}

	content, err := payload.Decode(key, data)
	if err != nil {
		if _, no := ParseManifest(data); no == nil {
			return nil, fmt.Errorf("%[1]s is a NodeConfigRollout, not a kubelet configuration: use kubectl apply -f %[1]s; kubectl evenkeel "+
				"rollout plan -f %[1]s shows what it would do; nothing was changed", p.File)
		}

		return nil, command.Unusable(p.File, err, "changed")
	}

	if ref := r.Spec.Template.ConfigMapRef; ref != nil && !p.inline {
		return nil, fmt.Errorf("rollout %q follows ConfigMap %s/%s: change that ConfigMap, or use --inline to put %s into the rollout in place "+
			"of the reference",
			p.Name, ref.Namespace, ref.Name, p.File)
	}

	r.Spec.Pin = nil // what is pushed is the target
	template, err := steer.TemplateOf(key, data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.File, err)
	}
	if !same(r.Spec.Template, template) { // otherwise the stored bytes stay, so that nothing changes
		r.Spec.Template = template
	}
	if err := p.ApplyFlags(&r.Spec); err != nil {
		return nil, err
	}
	if _, err := describe.StepsOf(r); err != nil {
		return nil, err
	}
	if _, err := payload.ResolveTrial(content.Trial, r.Spec.Trial); err != nil {
		return nil, fmt.Errorf("rollout %q: %w; nothing was changed", p.Name, err)
	}

	if _, err := fleet.SelectionOf(r); err != nil {
		if old == nil && !p.Changed("selector") {
			err = fmt.Errorf("rollout %q does not exist yet: use --selector to choose its nodes, or --all-nodes for every node", p.Name)
		}

		return nil, err
	}

	return &Change{old, r, content}, steer.SaveApplied(old, r)
}

// Rehearse checks the types of the configuration's fields, has the API server
// validate a change without storing it, and prints what changes and what the
// rollout would do. It reports whether anything changes. The error says that
// the configuration failed before, unless --force is given or the run is dry.
func (p Push) Rehearse(ctx context.Context, env *command.Env, c client.Client, change *Change, dry bool) (differs bool, err error) {
	if err := env.CheckFields(change.content); err != nil {
		return false, command.Unusable(p.File, err, "changed")
	}

	env.NoteFewFields(change.content)
	var changes []steer.Operation
	old, desired, rehearsal := change.old, change.desired, client.NewDryRunClient(c)
	if old == nil {
		err = rehearsal.Create(ctx, desired.DeepCopy(), client.FieldValidation(metav1.FieldValidationStrict))
	} else {
		changes, err = change.patch(ctx, rehearsal)
		if err == nil && len(changes) == 0 {
			hint := "kubectl evenkeel rollout status " + p.Name
			if steer.Halted(old) {
				hint = "it is " + steer.HaltWords(old)
			}

			fmt.Fprintf(env.Out, "rollout %s already has this configuration: nothing changes; %s\n", p.Name, printable.Line(hint))

			return false, nil
		}
	}

	if err != nil {
		return false, fmt.Errorf("the API server refuses rollout %q: %w", p.Name, err)
	}

	plan, err := planOf(ctx, c, desired)
	if err != nil {
		return false, fmt.Errorf("plan rollout %q: %w", p.Name, err)
	}

	if p.Changed("steps") { // stored steps stay valid, whatever becomes of the number of nodes
		if err := checkGrowth(plan.steps, plan.members); err != nil {
			return false, fmt.Errorf("--steps: %w; nothing was changed", err)
		}
	}

	var before payload.Payload
	var unknown error
	if old != nil {
		before, unknown = query.ContentIn(ctx, c, old.Spec.Template)
	}

	showEffect(ctx, env, c, plan.effect)
	if len(plan.effect.Moves) == 0 {
		change.showTemplate(env, before, unknown)
	}

	showOperations(env, changes)
	plan.print(env.Out)
	if plan.impossible != nil {
		return false, fmt.Errorf("%s: %w; nothing was changed", p.File, plan.impossible)
	}

	warnOfSelector(env, desired)
	env.Notes(autoscalerNote(before, change.content, plan.autoscaled))
	if old != nil && p.Changed("steps") && !equality.Semantic.DeepEqual(old.Spec.Strategy.Steps, desired.Spec.Strategy.Steps) {
		fmt.Fprintf(env.ErrOut, "note: --steps is stored: later pushes and undos use it too; to return to the present steps, push with --steps "+
			"%s\n", stepsFlag(old.Spec.Strategy.Steps))
	}

	switch {
	case old == nil:
	case !query.Observed(old):
		fmt.Fprintln(env.ErrOut, "note: the controller has not begun with the last change of the rollout, which may be somebody else's: it is "+
			"replaced")
	case unfinished(old) && plan.Revision != old.Status.UpdateRevision.Number:
		st := &old.Status
		fmt.Fprintf(env.ErrOut, "note: revision %d is replaced before its end (%s, %d of %s updated)\n",
			st.UpdateRevision.Number, st.Phase, st.Nodes.Updated, printable.Count(plan.members, "node"))
	}

	if old != nil && steer.Halted(old) && plan.Revision == old.Status.Target() {
		fmt.Fprintf(env.ErrOut, "warning: the rollout stays %s\n", printable.Line(steer.HaltWords(old)))
	}

	return true, refuseFailed(env, p.Name, plan.effect.Failed, p.force, dry)
}

// unfinished reports whether a rollout's revision is on its way to more nodes.
func unfinished(r *v1alpha1.NodeConfigRollout) bool {
	return r.Status.UpdateRevision != nil && slices.Contains([]v1alpha1.RolloutPhase{v1alpha1.RolloutProgressing, v1alpha1.RolloutWaiting,
		v1alpha1.RolloutAwaitingApproval, v1alpha1.RolloutPaused, v1alpha1.RolloutFrozen}, r.Status.Phase)
}

// warnOfSelector prints a warning if nodes can choose by themselves whether a
// rollout selects them.
func warnOfSelector(env *command.Env, r *v1alpha1.NodeConfigRollout) {
	if words := fleet.SelfSelectionWarning(&r.Spec); words != "" {
		fmt.Fprintln(env.ErrOut, "warning:", printable.Line(words))
	}
}

// patch sends a change of an existing rollout, again after conflicts with
// writes that left the spec alone.
func (change *Change) patch(ctx context.Context, c client.Client) ([]steer.Operation, error) {
	for try := 1; ; try++ {
		operations, err := steer.Patch(ctx, c, change.old, change.desired)
		if !apierrors.IsConflict(err) || try == steer.MostConflicts {
			return operations, err
		}

		now := &v1alpha1.NodeConfigRollout{}
		if err := c.Get(ctx, client.ObjectKey{Name: change.old.Name}, now); err != nil {
			return nil, fmt.Errorf("read it again: %w", err)
		}
		if now.UID != change.old.UID || !equality.Semantic.DeepEqual(now.Spec, change.old.Spec) {
			return nil, errors.New("somebody else changed it in the meantime: nothing was written; push again to see what changes now")
		}

		change.old.ObjectMeta = now.ObjectMeta
		if err := steer.SaveApplied(change.old, change.desired); err != nil {
			return nil, err
		}
	}
}

// Write stores a change as it was shown: if the spec has changed since, nothing
// is written.
func (change *Change) Write(ctx context.Context, env *command.Env, c client.Client) error {
	name, did := change.desired.Name, "updated"
	if change.old == nil {
		did = "created"
		err := c.Create(ctx, change.desired.DeepCopy(), client.FieldValidation(metav1.FieldValidationStrict))
		if apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("somebody else created rollout %q in the meantime: nothing was written; push again to see what changes", name)
		}
		if err != nil {
			return fmt.Errorf("create rollout %q: %w", name, err)
		}
	} else if _, err := change.patch(ctx, c); err != nil {
		return fmt.Errorf("write rollout %q: %w", name, err)
	}

	fmt.Fprintf(env.Out, "rollout %s %s; %s\n", name, did, steer.Next(change.desired))

	return nil
}

// showTemplate prints what changes in the template, if no node changes.
func (change *Change) showTemplate(env *command.Env, before payload.Payload, unknown error) {
	if unknown != nil { // the template is replaced anyway
		fmt.Fprintf(env.ErrOut, "note: cannot compare with the present configuration: %s\n", printable.Line(unknown.Error()))
	}

	fmt.Fprintln(env.Out, "No node changes its configuration now. Changes of the template:")
	env.PrintDiff(describe.ContentDiff(before, change.content, describe.LocalOfEach))
}

// showOperations prints what changes in the rollout besides the template.
func showOperations(env *command.Env, changes []steer.Operation) {
	for _, x := range changes {
		switch {
		case x.Path == "/spec/pin":
			fmt.Fprintln(env.Out, "spec.pin, with which undo held an earlier revision in place of the template, is removed")
		case x.Path != "/spec/template":
			fmt.Fprintf(env.Out, "%s: %s -> %s\n", printable.Line(strings.ReplaceAll(x.Path[1:], "/", ".")), printable.Line(printing.Value(x.From)),
				printable.Line(printing.Value(x.Value)))
		}
	}
}

// roomFields are the fields that decide how many pods fit on a node, and of
// which size. An autoscaler predicts that for new nodes.
var roomFields = []string{
	"evictionHard", "kubeReserved", "maxPods", "mergeDefaultEvictionSettings", "podsPerCore", "reservedSystemCPUs", "systemReserved",
}

const karpenterLabel = "karpenter.sh/nodepool"

// groupLabels are on nodes that an autoscaler may add and remove.
var groupLabels = []string{
	karpenterLabel, "eks.amazonaws.com/nodegroup", "cloud.google.com/gke-nodepool", "kubernetes.azure.com/agentpool",
	"node.cluster.x-k8s.io/machine-deployment",
}

// autoscaled returns what says that an autoscaler may manage a node: a label of
// it, or the kind of its provider ID; empty: nothing.
func autoscaled(node *corev1.Node) string {
	for _, label := range groupLabels {
		if node.Labels[label] != "" {
			return "label " + label
		}
	}

	cloud, _, found := strings.Cut(node.Spec.ProviderID, "://")
	if !found || slices.Contains([]string{"k3s", "kind", "rke2"}, cloud) { // these add no nodes
		return ""
	}

	return "provider ID " + cloud + "://"
}

// autoscalerNote says what to change besides the kubelets if the room changes
// on nodes that an autoscaler may manage; empty: nothing.
func autoscalerNote(before, after payload.Payload, nodes map[string]int) string {
	_, changes := describe.ContentChanges(before, after, describe.LocalOfEach)
	var fields []string
	for _, c := range changes {
		if name := payload.TopField(c.Field); slices.Contains(roomFields, name) {
			fields = append(fields, name)
		}
	}

	if len(fields) == 0 || len(nodes) == 0 {
		return ""
	}

	var groups []string
	for _, what := range printable.MostFirst(nodes) {
		groups = append(groups, fmt.Sprintf("%s (%s)", printable.Count(nodes[what], "node"), what))
	}

	do := "an autoscaler that adds nodes to an empty group predicts their room from the cloud's settings"
	if nodes["label "+karpenterLabel] > 0 {
		do = "Karpenter predicts the room of new nodes from spec.kubelet of their NodeClass, and replaces nodes when that changes"
	}

	return fmt.Sprintf("the room for pods changes (%s) on %s: %s; see docs/autoscalers.md", printable.Few(slices.Compact(fields)),
		printable.First(groups, 3, ", "), do)
}
