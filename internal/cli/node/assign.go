// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"github.com/evenkeel/evenkeel/internal/program"
)

// AssignCommand returns "assign".
func AssignCommand(env *command.Env) *cobra.Command {
	a := &app{env}
	o := assignOptions{until: untilProven}
	cmd := &cobra.Command{
		Use:   "assign NODE {-f FILE [--drop-in] | --local | --release}",
		Short: "Assign a kubelet configuration to one node, and wait for the outcome",
		Long: `Assign a kubelet configuration from a file, or the local configuration, to one node, and wait for the outcome.

The command prints the changed fields, and asks the node's agent whether it would adopt the configuration (a preflight, as in
"kubectl evenkeel preflight": its kubelet validates the configuration in a dry run, and nothing changes on the node; for this it
creates a NodeConfigPreflight, also with --dry-run, and deletes it afterwards). It then
asks for confirmation, stores the file in an immutable ConfigMap of evenkeel-system, and writes spec.configSource of the node's
NodeConfig. The node's kubelet runs the configuration on trial; if the trial fails, the node rolls back by itself, even if you
interrupt the command. If you run the command again with the same file, it writes nothing and follows the node.

If the node refuses in the preflight, the command asks whether to assign the configuration anyway; with --yes it assigns nothing
unless --force is given. Without the ClusterRole evenkeel-preflight, or without an answer within a minute, it continues
without a preflight and says why.

With --start-probe, the command also starts and stops one pod in evenkeel-system on the node while the configuration is on trial. It
needs the rights to create, get and delete pods there, to list Events there, and without an IMAGE to list pods where evenkeel-agent
runs (evenkeel-install or kube-system). Name an IMAGE that the node has and whose program runs until
it is told to stop, such as --start-probe=registry.k8s.io/pause:3.10, if no pod of evenkeel-agent runs on the node. The exit code is 1
if the kubelet cannot start or stop the pod, and 3 if the probe has no result. The command deletes the pod, except one that cannot be
started or stopped: it stays for you and the node's agent to look at, and ends by itself.

A rollout that selects the node no longer changes it, until you return the node to the rollout with --release. For many nodes use
"push".

The exit code is 0 when the configuration has passed its trial, 2 when the node refused it or rolled back, and 3 when
--timeout has expired or the agent does not answer. --wait-for ends the wait earlier, with exit code 0:
  --wait-for=proven     when the trial has passed (default)
  --wait-for=trial      when the kubelet runs the configuration on trial
  --wait-for=assigned   when the assignment is written

With --for the assignment ends by itself: after that time, measured by the node's agent from the adoption, the node returns to
its last-known-good configuration, also without the API server, and keeps that until you assign something else. Until then the
configuration is on trial: the default is --wait-for=trial. If you run it again after the end, the node runs the configuration again.`,
		Example: `  # Change a few fields of the node's configuration
  kubectl evenkeel assign worker-17 -f more-pods.yaml --drop-in

  # Replace the node's whole configuration
  kubectl evenkeel assign worker-17 -f kubelet.yaml

  # Return to the node's own configuration
  kubectl evenkeel assign worker-17 --local

  # Return to the configuration of the rollout that selects the node
  kubectl evenkeel assign worker-17 --release

  # Also prove that the node can still start pods
  kubectl evenkeel assign worker-17 -f more-pods.yaml --drop-in --start-probe

  # Change the log level for a quarter of an hour
  kubectl evenkeel assign worker-17 -f debug.yaml --drop-in --for 15m

  # Print the changes only
  kubectl evenkeel assign worker-17 -f more-pods.yaml --drop-in --dry-run`,
		Args: command.Args(1, 1, "needs the name of one node: list them with: kubectl evenkeel nodes; for many nodes use kubectl "+
			"evenkeel push NAME -f FILE --selector LABELS"),
		ValidArgsFunction: a.CompleteNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.node, o.ends = args[0], cmd.Flags().Changed("for")
			if o.ends && !cmd.Flags().Changed("wait-for") {
				o.until = untilTrial
			}
			if err := o.check(cmd.Flags().Changed("timeout")); err != nil {
				return err
			}

			return a.assign(cmd.Context(), o)
		},
	}
	o.addFlags(cmd)

	return cmd
}

func (o *assignOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&o.file, "filename", "f", "", "file with the configuration; - is standard input")
	f.BoolVar(&o.dropIn, "drop-in", false, "the file is partial: merge it over the node's local configuration")
	f.BoolVar(&o.local, "local", false, "assign the node's local configuration; the node forgets its last-known-good")
	f.BoolVar(&o.release, "release", false, "remove what a person assigned, so that a rollout can change the node again; until then it runs "+
		"its local configuration")
	o.trial.Add(cmd)
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask for confirmation")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the changes and the node's answer, and assign nothing")
	f.BoolVar(&o.force, "force", false, "assign the configuration even if the node refuses it in the preflight")
	f.StringVar(&o.startProbe, "start-probe", "", "start and stop a pod on the node while the configuration is on trial; without a value, "+
		"with the image of the node's evenkeel-agent pod")
	f.Lookup("start-probe").NoOptDefVal = agentImage
	program.Choice(cmd, &o.until, "wait-for", "", "wait until", untilProven, untilTrial, untilAssigned)
	f.DurationVar(&o.endAfter, "for", 0, "let the assignment end by itself after this long, from 1m to 168h")
	f.DurationVar(&o.timeout, "timeout", 0, "stop waiting after this long, such as 30m, with exit code 3")
	f.DurationVar(&o.agentTimeout, "agent-timeout", time.Minute,
		"stop waiting if the node's agent does not answer for this long, with exit code 3")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
}

// The values of --wait-for.
const (
	untilProven   = "proven"
	untilTrial    = "trial"
	untilAssigned = "assigned"
)

// assignOptions has the arguments and flags of "assign".
type assignOptions struct {
	node, file, until, startProbe string
	dropIn, local, release        bool
	yes, dryRun, force            bool
	trial                         command.TrialFlags
	ends                          bool // --for was given
	endAfter                      time.Duration
	timeout                       time.Duration // 0: no limit
	agentTimeout                  time.Duration
}

func (o *assignOptions) check(timed bool) error {
	switch {
	case o.release && (o.ends || o.file != "" || o.dropIn || o.local || o.force || o.startProbe != "" || o.trial.Changed()):
		return errors.New("--release assigns nothing: it can only be used with --yes and --dry-run")
	case o.local && (o.file != "" || o.dropIn):
		return errors.New("--local cannot be used with -f or --drop-in, because it assigns the configuration that the node has: omit --local " +
			"or the others")
	case o.startProbe != "" && (o.local || o.until == untilAssigned):
		return errors.New("--start-probe needs a configuration that runs on trial: it cannot be used with --local or --wait-for=assigned")
	case o.local && o.force:
		return errors.New("--local has no preflight: it cannot be used with --force")
	case o.local && o.trial.Changed():
		return errors.New("--local has no trial: it cannot be used with --trial-duration, --crash-loop-threshold or --allow-pod-loss")
	case o.ends && o.local:
		return errors.New("--for needs -f FILE: it cannot be used with --local")
	case o.ends && (o.endAfter < v1alpha1.MinTemporary || o.endAfter > v1alpha1.MaxTemporary):
		return fmt.Errorf("--for must be from 1m to 168h, such as 15m, not %s", o.endAfter)
	case o.ends && o.until == untilProven:
		return errors.New("--wait-for=proven cannot be used with --for, because the configuration is on trial until it ends: " +
			"use --wait-for=trial or --wait-for=assigned")
	case !o.local && !o.release && o.file == "":
		return errors.New("assign needs -f FILE with a kubelet configuration (-f - for standard input), --local for the node's own " +
			"configuration, or --release to return the node to its rollout")
	case timed && o.timeout <= 0:
		return fmt.Errorf("--timeout must be longer than 0, such as 30m, not %s", o.timeout)
	case o.agentTimeout <= 0:
		return fmt.Errorf("--agent-timeout must be longer than 0, such as 1m, not %s", o.agentTimeout)
	}

	return nil
}

// assignment is a change of a node's assignment that has not been written yet.
type assignment struct {
	node    *describe.Node
	config  *v1alpha1.NodeConfig
	content payload.Payload   // zero: local
	name    string            // of the ConfigMap that holds the content
	stored  *corev1.ConfigMap // nil if it does not exist yet
	trial   *v1alpha1.TrialTerms
	ends    *v1alpha1.TemporaryAssignment // nil: it does not end by itself
	release bool                          // nothing is assigned
	machine []payload.Capacity            // of the Node; empty: there is none
}

func (a *app) assign(ctx context.Context, o assignOptions) error {
	trial, err := o.trial.Merge(nil)
	if err != nil {
		return err
	}

	var content payload.Payload
	if o.file != "" {
		if content, err = a.ReadPayload(ctx, o.file, o.dropIn, "changed"); err != nil {
			return err
		}

		a.NoteFewFields(content)
		if _, err := payload.ResolveTrial(content.Trial, trial); err != nil {
			return fmt.Errorf("%s: %w; nothing was changed", o.file, err)
		}
	}

	c, err := a.Client()
	if err != nil {
		return err
	}

	it, err := gather(ctx, c, o, content)
	if err != nil {
		return err
	}
	if o.release {
		return a.release(ctx, c, o, it)
	}

	it.trial = trial
	newTrial := o.trial.Changed() && !equality.Semantic.DeepEqual(it.config.Spec.Trial, trial)
	if source := it.assigned(); source != nil && !newTrial {
		return a.follow(ctx, c, o, it, source)
	}
	if err := it.checkVerdicts(ctx, c); err != nil {
		return err
	}

	sizes, err := describe.SizesOf(it.content, it.machine)
	if err != nil {
		return fmt.Errorf("%s: %w; nothing was changed", o.file, err)
	}
	if err := a.showAssignment(ctx, c, it); err != nil {
		return err
	}

	for _, path := range slices.Sorted(maps.Keys(sizes)) {
		for value := range sizes[path] { // one, of this node
			fmt.Fprintln(a.Out, printable.Line(path+": "+value))
		}
	}

	if err := it.rehearse(ctx, c); err != nil {
		return fmt.Errorf("%w; nothing was changed", err)
	}

	answer, err := a.ask(ctx, c, o, it)
	if err != nil {
		return err
	}
	if err := a.confirmAssignment(ctx, o, it, answer); err != nil || o.dryRun {
		return err
	}

	source, err := it.store(ctx, c)
	if err != nil {
		return err
	}

	stored, err := steer.Assign(ctx, c, it.config, source, it.trial)
	if err != nil {
		return maybeWritten(err)
	}

	if ref := source.ConfigMapRef; ref != nil {
		fmt.Fprintf(a.Out, "node %s is assigned ConfigMap %s/%s\n", o.node, ref.Namespace, ref.Name)
	} else {
		fmt.Fprintf(a.Out, "node %s is assigned its local configuration\n", o.node)
	}

	if o.until == untilAssigned {
		return nil
	}

	return a.probeAndAwait(ctx, c, o, stored, source, false)
}

// confirmAssignment asks whether to assign the configuration, after the node's
// answer; nil if there was none. A dry run is not asked.
func (a *app) confirmAssignment(ctx context.Context, o assignOptions, it *assignment, answer *v1alpha1.PreflightGroup) error {
	refused := answer != nil && answer.Verdict == v1alpha1.PreflightRefused
	question := fmt.Sprintf("Assign this to node %s?", o.node)
	switch {
	case o.dryRun:
		fmt.Fprintln(a.Out, "dry run: nothing was assigned")
		if refused {
			return &command.Exit{Code: command.ExitHalted}
		}

		return nil
	case o.local:
		question = fmt.Sprintf("Return node %s to its local configuration?", o.node)
	case refused && o.yes && !o.force:
		return &command.Exit{Code: command.ExitHalted,
			Err: fmt.Errorf("node %s refuses the configuration (%s); %s; nothing was assigned", o.node, printable.Line(answer.Reason),
				it.afterRefusal(answer))}
	case refused:
		question = fmt.Sprintf("Node %s refuses this. Assign it anyway?", o.node)
	}

	return a.Confirm(ctx, question, o.yes, o.file == "-")
}

// gather reads what the command needs to know before it assigns something to a
// node. It returns an error if the assignment is impossible, or would have no
// effect.
func gather(ctx context.Context, c client.Client, o assignOptions, content payload.Payload) (*assignment, error) {
	view, err := query.ViewNode(ctx, c, o.node)
	if err != nil {
		return nil, err
	}

	node := describe.NodeOf(view, time.Now())
	it := &assignment{node: node, config: node.Config(), content: content, release: o.release}
	if o.ends {
		it.ends = &v1alpha1.TemporaryAssignment{Duration: metav1.Duration{Duration: o.endAfter}, RequestedAt: metav1.Now()}
	}
	if view.Node != nil {
		it.machine = []payload.Capacity{payload.CapacityOf(view.Node.Status.Capacity)}
	}

	switch nc := it.config; {
	case nc == nil:
		return nil, fmt.Errorf("node %s has no NodeConfig: no agent runs there; install one with: kubectl evenkeel install %[1]s; nothing was "+
			"changed", o.node)
	case o.release: // it needs no agent
		return it, nil
	case !fleet.HasReported(nc):
		return nil, fmt.Errorf("no agent has ever reported from node %s: install one with: kubectl evenkeel install %[1]s; nothing was changed",
			o.node)
	case nc.Status.RemoteConfig == v1alpha1.RemoteConfigDisabled:
		return nil, fmt.Errorf("the agent of node %s does not accept remote configuration (--remote-config=false, or no --dynamic-config-dir): "+
			"it would ignore the assignment; nothing was changed", o.node)
	case nc.Status.RemoteConfig == v1alpha1.RemoteConfigConfigMap:
		return nil, fmt.Errorf("node %s follows its own ConfigMap, kubelet-%[1]s, and would ignore the assignment: edit that ConfigMap; "+
			"nothing was changed", o.node)
	}

	if o.file == "" {
		return it, nil
	}

	it.name = steer.ContentName(o.file, content.SHA256)
	it.stored, err = steer.FindContent(ctx, c, it.name, content)

	return it, err
}

// assigned returns the node's source if it already assigns the same content,
// else nil.
func (it *assignment) assigned() *v1alpha1.NodeConfigSource {
	st, source, local := &it.config.Status, it.config.Spec.ConfigSource, it.content.Key == ""
	switch {
	case source == nil:
		// No source means local, unless the node still runs a ConfigMap or a
		// rollout may assign one.
		if local && st.Active == nil && st.LastKnownGood == nil && it.node.Rollout == "" {
			return &v1alpha1.NodeConfigSource{}
		}
	case local:
		if source.Local != nil && source.RolloutRef == nil {
			return source
		}
	case source.ConfigMapRef != nil:
		ref := source.ConfigMapRef
		sum := ref.SHA256
		if sum == "" && st.Assigned != nil && st.Assigned.UID == ref.UID {
			sum = st.Assigned.SHA256
		}
		if sum == it.content.SHA256 && it.endsAs(source) {
			return source
		}
	}

	return nil
}

// endsAs reports whether an existing assignment ends as this one would. One
// that has ended is assigned again.
func (it *assignment) endsAs(source *v1alpha1.NodeConfigSource) bool {
	if it.ends == nil || source.Temporary == nil {
		return it.ends == nil && source.Temporary == nil
	}

	ok := meta.FindStatusCondition(it.config.Status.Conditions, v1alpha1.ConditionConfigOK)

	return it.ends.Duration == source.Temporary.Duration && (ok == nil || ok.Reason != v1alpha1.ReasonAssignmentEnded)
}

// release removes what a person assigned to the node. Rollouts can change the
// node then.
func (a *app) release(ctx context.Context, c client.WithWatch, o assignOptions, it *assignment) error {
	source := it.config.Spec.ConfigSource
	switch {
	case source == nil:
		fmt.Fprintf(a.Out, "node %s has no assignment: nothing changes\n", o.node)
		return nil
	case source.RolloutRef != nil:
		fmt.Fprintf(a.Out, "rollout %s assigned what node %s has: nothing changes\n", source.RolloutRef.Name, o.node)
		return nil
	}

	if err := a.showAssignment(ctx, c, it); err != nil {
		return err
	}

	next := "no rollout selects it, so that it keeps its local configuration"
	if it.node.Rollout != "" {
		next = fmt.Sprintf("it runs its local configuration until rollout %s reaches it", it.node.Rollout)
	}

	if o.dryRun {
		fmt.Fprintf(a.Out, "dry run: node %s was not released; otherwise %s\n", o.node, next)
		return nil
	}

	if err := a.Confirm(ctx, fmt.Sprintf("Release node %s? Then %s.", o.node, next), o.yes, false); err != nil {
		return err
	}
	if _, err := steer.Assign(ctx, c, it.config, nil, nil); err != nil {
		return maybeWritten(err)
	}

	fmt.Fprintf(a.Out, "node %s is released: %s\n", o.node, next)

	return nil
}

// follow waits for a node that already has the assignment. It writes nothing.
func (a *app) follow(ctx context.Context, c client.WithWatch, o assignOptions, it *assignment, source *v1alpha1.NodeConfigSource) error {
	nc := it.config
	by := ""
	if source.RolloutRef != nil {
		by = fmt.Sprintf(" from revision %d of rollout %s", source.RolloutRef.Revision, source.RolloutRef.Name)
	}

	if nc.Spec.ConfigSource == nil {
		fmt.Fprintf(a.Out, "node %s has no assignment and runs its local configuration: nothing changes\n", o.node)
		return nil
	}

	if outcome := describe.OutcomeOf(nc, source, nc.Generation); outcome.Stage == describe.StageProven {
		fmt.Fprintln(a.Out, printable.Line(fmt.Sprintf("node %s already has this assignment%s, and %s: nothing changes", o.node, by,
			outcome.Words)))
		if o.startProbe != "" && !o.dryRun {
			return a.probe(ctx, c, o, nc, source)
		}

		return nil
	}

	fmt.Fprintln(a.Out, printable.Line(fmt.Sprintf("node %s already has this assignment%s: nothing is written", o.node, by)))
	if o.dryRun || o.until == untilAssigned {
		return nil
	}

	return a.probeAndAwait(ctx, c, o, nc, source, true)
}

// checkVerdicts returns an error if the node would not run the content because
// it is revoked or failed there before.
func (it *assignment) checkVerdicts(ctx context.Context, c client.Reader) error {
	if it.content.Key == "" {
		return nil
	}

	nc := it.config
	if it.stored != nil && slices.Contains(nc.Spec.Revoked, it.stored.UID) {
		return &command.Exit{Code: command.ExitHalted,
			Err: fmt.Errorf("this configuration is revoked on node %s: spec.revoked of its NodeConfig lists %s; nothing was changed", nc.Name,
				it.stored.UID)}
	}

	for _, bad := range nc.Status.BadConfigs {
		same := it.stored != nil && bad.UID == it.stored.UID
		if !same && bad.UID != "" {
			// A ConfigMap that is gone or forbidden decides nothing here: the
			// node has the last word.
			cm := &corev1.ConfigMap{}
			err := c.Get(ctx, client.ObjectKey{Namespace: bad.Namespace, Name: bad.Name}, cm)
			same = err == nil && cm.UID == bad.UID && payload.Digest(it.content.Key, []byte(cm.Data[it.content.Key])) == it.content.SHA256
		}

		if !same || bad.Provisional || it.hasOtherValues(bad.Revision) {
			continue
		}

		return &command.Exit{Code: command.ExitHalted,
			Err: fmt.Errorf("this configuration failed on node %s before: %s; the node would not try it again; nothing was changed\nto try it "+
				"again, run on the node: evenkeel-agent forget %s",
				nc.Name, printable.Line(bad.Reason), printable.Line(bad.Revision))}
	}

	return nil
}

// hasOtherValues reports whether the rules of the content give other values on
// the node's present machine than in a failed revision.
func (it *assignment) hasOtherValues(revision string) bool {
	if !it.content.HasRules() || len(it.machine) == 0 {
		return false
	}

	r, err := it.content.Resolve(it.machine[0])

	return err == nil && !strings.HasSuffix(revision, v1alpha1.ValuesSuffix(r.Digest))
}

// showAssignment prints notes about the node, and the changed fields.
func (a *app) showAssignment(ctx context.Context, c client.Client, it *assignment) error {
	nc := it.config
	a.Notes(it.notes()...)
	before := payload.Payload{}
	if active := nc.Status.Active; active != nil {
		var err error
		before, err = query.ActiveContent(ctx, c, active)
		var unreadable *query.Unreadable
		switch {
		case errors.As(err, &unreadable):
			fmt.Fprintf(a.ErrOut, "note: cannot compare with the configuration of node %s: %s\n", nc.Name, printable.Line(describe.Brief(err)))
			return nil
		case err != nil:
			return fmt.Errorf("read the configuration of node %s: %w", nc.Name, err)
		}
	}

	fmt.Fprintf(a.Out, "Node %s runs %s. Changes:\n", nc.Name, describe.Runs(nc))
	a.PrintDiff(describe.ContentDiff(before, it.content, "the node's local configuration"))
	if !equality.Semantic.DeepEqual(nc.Spec.Trial, it.trial) {
		fmt.Fprintf(a.Out, "spec.trial: %s -> %s\n", printing.Value(nc.Spec.Trial), printing.Value(it.trial))
	}

	if it.ends != nil {
		fmt.Fprintf(a.Out, "The assignment ends after %s; the node then returns to its last-known-good configuration.\n",
			describe.Span(it.ends.Duration.Duration))
	}

	return nil
}

// notes returns what a person should know before assigning something to the
// node.
func (it *assignment) notes() []string {
	var notes []string
	nc, name := it.config, it.config.Name
	for _, problem := range it.node.Problems {
		notes = append(notes, fmt.Sprintf("node %s: %s", name, problem))
	}

	handOver := "; to return the node to the rollout: kubectl evenkeel assign " + name + " --release"
	by := nc.Spec.ConfigSource.By()
	switch rollout := it.node.Rollout; {
	case it.release:
	case rollout != "" && by.Name == rollout:
		notes = append(notes, fmt.Sprintf("rollout %s has assigned revision %[3]d to node %[2]s; from now on it will not change the node%[4]s",
			rollout, name, by.Revision, handOver))
	case rollout != "":
		notes = append(notes, fmt.Sprintf("rollout %s selects node %s; it does not change an assignment by a person%s", rollout, name, handOver))
	}

	if ref := nc.Spec.ConfigSource.Content(); ref.Name != "" && (nc.Status.Active == nil || nc.Status.Active.UID != ref.UID) {
		notes = append(notes, fmt.Sprintf("node %s does not run its present assignment, ConfigMap %s/%s; this replaces it", name, ref.Namespace,
			ref.Name))
	}

	if cost := it.node.RestartCost(); cost != nil {
		notes = append(notes, cost.String())
	}

	if it.content.Key == "" && nc.Status.LastKnownGood != nil {
		notes = append(notes, fmt.Sprintf("node %s will forget its last-known-good configuration, ConfigMap %s/%s", name,
			nc.Status.LastKnownGood.Namespace, nc.Status.LastKnownGood.Name))
	}

	return notes
}

// rehearse sends both writes as dry runs, so that a missing right is known
// before the question.
func (it *assignment) rehearse(ctx context.Context, c client.Client) error {
	c = client.NewDryRunClient(c)
	var source *v1alpha1.NodeConfigSource
	if it.stored != nil {
		source = it.sourceOf(it.stored)
	} else {
		var err error
		if source, err = it.store(ctx, c); err != nil {
			return err
		}
	}

	_, err := steer.Assign(ctx, c, it.config, source, it.trial)

	return err
}

// store stores the content, if it is not stored yet, and returns the source
// that names it.
func (it *assignment) store(ctx context.Context, c client.Client) (*v1alpha1.NodeConfigSource, error) {
	if it.content.Key == "" {
		return &v1alpha1.NodeConfigSource{Local: &v1alpha1.LocalSource{}}, nil
	}

	cm, err := steer.CreateContent(ctx, c, it.name, it.content)
	if err != nil {
		return nil, err
	}

	return it.sourceOf(cm), nil
}

// sourceOf returns the source that names the stored content.
func (it *assignment) sourceOf(cm *corev1.ConfigMap) *v1alpha1.NodeConfigSource {
	source := steer.SourceOf(cm, it.content)
	source.Temporary = it.ends
	return source
}

// maybeWritten adds what to do to an error after which the write may have taken
// effect.
func maybeWritten(err error) error {
	var status apierrors.APIStatus
	if errors.Is(err, steer.ErrChanged) || errors.As(err, &status) && status.Status().Code < 500 {
		return err
	}

	return fmt.Errorf("%w\nthe assignment may have been written: run the command again, which follows it if it was", err)
}
