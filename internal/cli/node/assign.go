package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/fleet/query"
	"github.com/evenkeel/evenkeel/internal/fleet/steer"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// AssignCommand returns "assign".
func AssignCommand(env *command.Env) *cobra.Command {
	a := &app{env}
	var w assign
	cmd := &cobra.Command{
		Use:   "assign NODE {-f FILE [--drop-in] | --local}",
		Short: "Give one node a kubelet configuration, and wait until it has proven it",
		Long: `Give one node a kubelet configuration from a file, or its local one, and wait for the outcome.

It shows what changes field by field, asks, keeps the content of the file in an immutable ConfigMap of evenkeel-system,
and writes spec.configSource of the node's NodeConfig. The node's kubelet validates the configuration, runs it on trial,
and the node goes back by itself if it is bad. Interrupting the command stops none of that. Run again with the same file,
it writes nothing and follows the node.

A rollout that selects the node leaves it alone from then on. For many nodes use "push".

It ends with 0 when the configuration has passed its trial, with 2 when the node has refused it or gone back, and with 3
when --timeout is over or the agent does not answer. --for ends it earlier, with 0:
  --for=proven     the same as nothing
  --for=trial      as soon as the kubelet runs with it, on trial
  --for=assigned   as soon as it is written: nothing is waited for`,
		Example: `  # A few fields over what the node has
  kubectl evenkeel assign worker-17 -f more-pods.yaml --drop-in

  # A whole configuration, which replaces the node's own
  kubectl evenkeel assign worker-17 -f kubelet.yaml

  # Back to the node's own configuration
  kubectl evenkeel assign worker-17 --local

  # Only see what would change
  kubectl evenkeel assign worker-17 -f more-pods.yaml --drop-in --dry-run`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return fmt.Errorf("%s needs the name of one node: kubectl evenkeel nodes shows them; for many nodes there is kubectl evenkeel push", cmd.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: a.CompleteNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			w.node = args[0]
			if err := w.check(cmd.Flags().Changed("timeout")); err != nil {
				return err
			}
			return a.assign(cmd.Context(), w)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&w.file, "filename", "f", "", "file with the configuration; - is standard input")
	f.BoolVar(&w.dropIn, "drop-in", false, "the file is partial: lay it over the node's local configuration")
	f.BoolVar(&w.local, "local", false, "assign the node's local configuration; the node forgets its last-known-good")
	w.terms.Add(cmd)
	f.BoolVarP(&w.yes, "yes", "y", false, "do not ask")
	f.BoolVar(&w.dryRun, "dry-run", false, "show what would change, and write nothing")
	f.StringVar(&w.until, "for", untilProven, "wait until: proven, trial, assigned")
	f.DurationVar(&w.timeout, "timeout", 0, "end with exit code 3 after waiting this long, such as 30m")
	f.DurationVar(&w.agentTimeout, "agent-timeout", time.Minute, "end with exit code 3 if the node's agent does not answer for this long")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	_ = cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions([]string{untilProven, untilTrial, untilAssigned}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// The values of --for.
const (
	untilProven   = "proven"
	untilTrial    = "trial"
	untilAssigned = "assigned"
)

// assign is what the command line of an assign asks for.
type assign struct {
	node, file, until          string
	dropIn, local, yes, dryRun bool
	terms                      command.TrialFlags
	timeout                    time.Duration // 0: as long as it takes
	agentTimeout               time.Duration
}

func (w *assign) check(timed bool) error {
	switch {
	case w.local && (w.file != "" || w.dropIn):
		return errors.New("--local is the node's own configuration: it goes with neither -f nor --drop-in")
	case w.local && w.terms.Changed():
		return errors.New("--local has no trial: it goes with none of --trial-duration, --crash-loop-threshold and --allow-pod-loss")
	case !w.local && w.file == "":
		return errors.New("assign needs -f FILE with a kubelet configuration (-f - for standard input), or --local for the node's own one")
	case w.until != untilProven && w.until != untilTrial && w.until != untilAssigned:
		return fmt.Errorf("--for must be proven, trial or assigned, not %q", w.until)
	case timed && w.timeout <= 0:
		return fmt.Errorf("--timeout must be more than nothing, such as 30m, not %s", w.timeout)
	case w.agentTimeout <= 0:
		return fmt.Errorf("--agent-timeout must be more than nothing, such as 1m, not %s", w.agentTimeout)
	}
	return nil
}

// assignment is one change of what a node is assigned, before it is made.
type assignment struct {
	node    *describe.Node
	config  *v1alpha1.NodeConfig
	content policy.Content    // zero: local
	name    string            // of the ConfigMap that holds the content
	kept    *corev1.ConfigMap // nil if it is not there yet
	asked   *v1alpha1.TrialTerms
}

func (a *app) assign(ctx context.Context, w assign) error {
	content, err := a.contentFor(ctx, w)
	if err != nil {
		return err
	}
	asked, err := w.terms.Merge(nil)
	if err != nil {
		return err
	}
	if !w.local {
		if _, err := content.TrialTerms(asked); err != nil {
			return fmt.Errorf("%s: %w; nothing was changed", w.file, err)
		}
	}
	c, err := a.Client()
	if err != nil {
		return err
	}
	it, err := lookAt(ctx, c, w, content)
	if err != nil {
		return err
	}
	it.asked = asked
	other := w.terms.Changed() && !equality.Semantic.DeepEqual(it.config.Spec.Trial, asked)
	if source := it.assigned(); source != nil && !other {
		return a.follow(ctx, c, w, it, source)
	}
	if err := it.known(ctx, c); err != nil {
		return err
	}
	if err := a.showAssignment(ctx, c, it); err != nil {
		return err
	}
	if err := it.rehearse(ctx, c); err != nil {
		return err
	}
	if w.dryRun {
		fmt.Fprintln(a.Out, "dry run: nothing was written")
		return nil
	}
	question := fmt.Sprintf("Assign this to node %s?", w.node)
	if w.local {
		question = fmt.Sprintf("Take node %s back to its local configuration?", w.node)
	}
	if err := a.Confirm(ctx, question, w.yes, w.file == "-"); err != nil {
		return err
	}
	source, stored, err := it.write(ctx, c)
	if err != nil {
		return err
	}
	it.config = stored
	if ref := source.ConfigMapRef; ref != nil {
		fmt.Fprintf(a.Out, "node %s is assigned ConfigMap %s/%s\n", w.node, ref.Namespace, ref.Name)
	} else {
		fmt.Fprintf(a.Out, "node %s is assigned its local configuration\n", w.node)
	}
	if w.until == untilAssigned {
		return nil
	}
	return a.awaitNode(ctx, c, w, stored, source, false)
}

// contentFor reads and decodes the file that is to be assigned; zero if that is none.
func (a *app) contentFor(ctx context.Context, w assign) (policy.Content, error) {
	if w.local {
		return policy.Content{}, nil
	}
	data, _, err := a.ReadFile(ctx, w.file, payload.MaxSize+1)
	if err != nil {
		return policy.Content{}, err
	}
	key := payload.KeyKubelet
	if w.dropIn {
		key = payload.KeyKubeletDropin
	}
	decoded, err := payload.Decode(key, data)
	if err != nil {
		return policy.Content{}, fmt.Errorf("%s: %w; nothing was changed", w.file, err)
	}
	for _, note := range command.UnknownFields(decoded.Fields) {
		fmt.Fprintln(a.ErrOut, note)
	}
	return policy.Content{Key: key, Data: string(data), SHA256: decoded.SHA256}, nil
}

// lookAt finds out what there is to know before a node is assigned something. The error says why it cannot be, or why
// that would have no effect.
func lookAt(ctx context.Context, c client.Client, w assign, content policy.Content) (*assignment, error) {
	view, err := query.ViewNode(ctx, c, w.node)
	if err != nil {
		return nil, err
	}
	node := describe.NodeOf(view, time.Now())
	it := &assignment{node: node, config: node.Config(), content: content}
	switch nc := it.config; {
	case nc == nil:
		return nil, fmt.Errorf("node %s has no NodeConfig: no agent runs there; put one on it with: kubectl evenkeel install %[1]s; nothing was changed", w.node)
	case !query.HasReported(nc):
		return nil, fmt.Errorf("no agent has ever reported on node %s: put one on it with: kubectl evenkeel install %[1]s; nothing was changed", w.node)
	case nc.Status.RemoteConfig == v1alpha1.RemoteConfigDisabled:
		return nil, fmt.Errorf("the agent of node %s has opted out of remote configuration (--remote-config=false, or no --dynamic-config-dir): it would not look at the assignment; nothing was changed", w.node)
	case nc.Status.RemoteConfig == v1alpha1.RemoteConfigConfigMap:
		return nil, fmt.Errorf("node %s follows a ConfigMap of its own, kubelet-%[1]s: edit that one; it would not look at the assignment; nothing was changed", w.node)
	}
	if w.local {
		return it, nil
	}
	it.name = steer.ContentName(w.file, content.SHA256)
	it.kept, err = steer.FindContent(ctx, c, it.name, content)
	return it, err
}

// assigned returns the source that assigns the same already, nil if there is none.
func (it *assignment) assigned() *v1alpha1.NodeConfigSource {
	nc := it.config
	source := nc.Spec.ConfigSource
	switch {
	case it.content.Key == "" && source == nil:
		// Nothing is assigned. That means local, unless the node still runs something; a rollout may still write it.
		if nc.Status.Active == nil && nc.Status.LastKnownGood == nil && it.node.Rollout == "" {
			return &v1alpha1.NodeConfigSource{}
		}
		return nil
	case source == nil:
		return nil
	case it.content.Key == "":
		if source.Local != nil && source.RolloutRef == nil {
			return source
		}
		return nil
	case source.ConfigMapRef == nil:
		return nil
	}
	ref := source.ConfigMapRef
	sum := ref.SHA256
	if known := nc.Status.Assigned; sum == "" && known != nil && known.UID == ref.UID {
		sum = known.SHA256
	}
	if sum != it.content.SHA256 {
		return nil
	}
	return source
}

// follow is for a node that is assigned the same already: nothing is written.
func (a *app) follow(ctx context.Context, c client.WithWatch, w assign, it *assignment, source *v1alpha1.NodeConfigSource) error {
	nc := it.config
	by := ""
	if source.RolloutRef != nil {
		by = fmt.Sprintf(" by revision %d of rollout %s", source.RolloutRef.Revision, source.RolloutRef.Name)
	}
	if nc.Spec.ConfigSource == nil { // what is not assigned is local
		fmt.Fprintf(a.Out, "node %s runs its local configuration, and nothing is assigned to it: nothing changes\n", w.node)
		return nil
	}
	switch o := describe.OutcomeOf(nc, source, nc.Generation); {
	case o.Stage == describe.StageProven:
		fmt.Fprintln(a.Out, printable.Line(fmt.Sprintf("node %s is assigned this already%s, and %s: nothing changes", w.node, by, o.Words)))
		return nil
	default:
		fmt.Fprintln(a.Out, printable.Line(fmt.Sprintf("node %s is assigned this already%s: nothing is written", w.node, by)))
	}
	if w.dryRun || w.until == untilAssigned {
		return nil
	}
	return a.awaitNode(ctx, c, w, nc, source, true)
}

// known returns an error if the node would not run the content because of what it remembers: it exits with the code of the
// outcome that this had.
func (it *assignment) known(ctx context.Context, c client.Reader) error {
	if it.content.Key == "" {
		return nil
	}
	nc := it.config
	if it.kept != nil {
		for _, uid := range nc.Spec.Revoked {
			if uid == it.kept.UID {
				return &command.Exit{Code: command.ExitHalted, Err: fmt.Errorf("this configuration is revoked on node %s: spec.revoked of its NodeConfig lists %s; nothing was changed", nc.Name, uid)}
			}
		}
	}
	for _, bad := range nc.Status.BadConfigs {
		same := it.kept != nil && bad.UID == it.kept.UID
		if !same && bad.UID != "" {
			// What cannot be read, because it is gone or is not for this user, decides nothing: the node says it then.
			cm := &corev1.ConfigMap{}
			err := c.Get(ctx, client.ObjectKey{Namespace: bad.Namespace, Name: bad.Name}, cm)
			same = err == nil && cm.UID == bad.UID && payload.Digest(it.content.Key, []byte(cm.Data[it.content.Key])) == it.content.SHA256
		}
		if !same || bad.Provisional {
			continue
		}
		return &command.Exit{Code: command.ExitHalted, Err: fmt.Errorf("node %s has found this configuration bad before: %s; it would not try it again, and nothing was changed\nto have it tried again, run on the node: evenkeel-agent forget %s",
			nc.Name, report.OneLine(bad.Reason), report.OneLine(bad.Revision))}
	}
	return nil
}

// showAssignment shows what changes, and says what to know before.
func (a *app) showAssignment(ctx context.Context, c client.Client, it *assignment) error {
	nc := it.config
	for _, note := range it.notes() {
		fmt.Fprintln(a.ErrOut, "note:", printable.Line(note))
	}
	before := policy.Content{}
	if active := nc.Status.Active; active != nil {
		var err error
		before, err = query.ContentOf(ctx, c, active)
		var unreadable *query.Unreadable
		switch {
		case errors.As(err, &unreadable):
			fmt.Fprintf(a.ErrOut, "note: what node %s runs cannot be compared: %s\n", nc.Name, printable.Line(err.Error()))
			return nil
		case err != nil:
			return fmt.Errorf("read what node %s runs: %w", nc.Name, err)
		}
	}
	words, err := describe.NodeContentDiff(before, it.content)
	if err != nil {
		return fmt.Errorf("compare the configurations: %w", err)
	}
	fmt.Fprintf(a.Out, "Node %s runs %s. What changes:\n", nc.Name, report.Runs(nc))
	a.PrintDiff(words)
	if !equality.Semantic.DeepEqual(nc.Spec.Trial, it.asked) {
		fmt.Fprintf(a.Out, "spec.trial: %s -> %s\n", shownTerms(nc.Spec.Trial), shownTerms(it.asked))
	}
	return nil
}

func shownTerms(t *v1alpha1.TrialTerms) string {
	if t == nil {
		return printing.Value(nil)
	}
	return printing.Value(t)
}

// notes are what a person should know before a node is assigned something.
func (it *assignment) notes() []string {
	var notes []string
	nc, name := it.config, it.config.Name
	for _, problem := range it.node.Problems {
		notes = append(notes, fmt.Sprintf("node %s: %s", name, problem))
	}
	handOver := fmt.Sprintf("; to hand the node back: kubectl patch nodeconfig %s --type=json -p '[{\"op\": \"remove\", \"path\": \"/spec/configSource\"}]'", name)
	by := (*v1alpha1.RolloutReference)(nil)
	if nc.Spec.ConfigSource != nil {
		by = nc.Spec.ConfigSource.RolloutRef
	}
	switch rollout := it.node.Rollout; {
	case by != nil && by.Name == rollout:
		notes = append(notes, fmt.Sprintf("rollout %s has given node %s its revision %d; from now on it leaves the node alone%s", rollout, name, by.Revision, handOver))
	case rollout != "":
		notes = append(notes, fmt.Sprintf("rollout %s selects node %s; it leaves alone what a person has assigned%s", rollout, name, handOver))
	}
	if ref := assignedRef(nc); ref != nil && (nc.Status.Active == nil || nc.Status.Active.UID != ref.UID) {
		notes = append(notes, fmt.Sprintf("node %s is assigned ConfigMap %s/%s, which it does not run; this replaces it", name, ref.Namespace, ref.Name))
	}
	if it.content.Key == "" && nc.Status.LastKnownGood != nil {
		notes = append(notes, fmt.Sprintf("node %s forgets its last-known-good configuration, ConfigMap %s/%s", name, nc.Status.LastKnownGood.Namespace, nc.Status.LastKnownGood.Name))
	}
	return notes
}

func assignedRef(nc *v1alpha1.NodeConfig) *v1alpha1.ConfigMapReference {
	if nc.Spec.ConfigSource == nil {
		return nil
	}
	return nc.Spec.ConfigSource.ConfigMapRef
}

// rehearse has the API server judge both writes, so that a right that is missing is known before anybody is asked.
func (it *assignment) rehearse(ctx context.Context, c client.Client) error {
	source := &v1alpha1.NodeConfigSource{Local: &v1alpha1.LocalSource{}}
	if it.content.Key != "" {
		cm := it.kept
		if cm == nil {
			var err error
			if cm, err = steer.CreateContent(ctx, c, it.name, it.content, client.DryRunAll); err != nil {
				return lacking(err)
			}
		}
		source = steer.SourceOf(cm, it.content)
	}
	_, err := steer.Assign(ctx, c, it.config, source, it.asked, client.DryRunAll)
	return lacking(err)
}

// lacking adds to a refusal for lack of a right where the right is granted.
func lacking(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w; nothing was changed; the roles evenkeel-operator grant this (ClusterRole, and Role in %s)", err, v1alpha1.SystemNamespace)
	}
	return err
}

// write stores the content and assigns it. It returns what is assigned, and what is stored.
func (it *assignment) write(ctx context.Context, c client.Client) (*v1alpha1.NodeConfigSource, *v1alpha1.NodeConfig, error) {
	if it.content.Key == "" {
		source := &v1alpha1.NodeConfigSource{Local: &v1alpha1.LocalSource{}}
		stored, err := steer.Assign(ctx, c, it.config, source, it.asked)
		return source, stored, doubtful(err)
	}
	cm, err := steer.CreateContent(ctx, c, it.name, it.content)
	if err != nil {
		return nil, nil, err
	}
	source := steer.SourceOf(cm, it.content)
	stored, err := steer.Assign(ctx, c, it.config, source, it.asked)
	return source, stored, doubtful(err)
}

// doubtful adds to an error of which nobody knows whether the write took effect what to do.
func doubtful(err error) error {
	var status apierrors.APIStatus
	if err == nil || errors.Is(err, steer.ErrChanged) || errors.As(err, &status) && status.Status().Code < 500 {
		return err
	}
	return fmt.Errorf("%w\nthe assignment may have been written: run the command again, which follows it if it was", err)
}
