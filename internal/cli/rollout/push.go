package rollout

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/describe"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/fleet/query"
	"github.com/evenkeel/evenkeel/internal/fleet/steer"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

func (a *app) pushCommand() *cobra.Command {
	var p push
	cmd := &cobra.Command{
		Use:   "push NAME -f FILE",
		Short: "Create or update a rollout from a kubelet configuration file",
		Long: `Create or update a rollout from a kubelet configuration file.

It shows what changes field by field and what the rollout will do, asks, and writes. What is not given stays as it is:
for a rollout that exists, -f alone is enough. A new one needs --selector or --all-nodes.

The file holds a KubeletConfiguration, upstream or grouped, in YAML or JSON. With --drop-in it is partial, and laid over
each node's local configuration; a rollout that was made so stays so, unless --drop-in=false is given.

Steps are numbers of nodes, percentages, and pauses, with commas between them. "pause" waits for "rollout promote",
"pause:10m" for ten minutes.`,
		Example: `  # A new rollout: one node, ten minutes, a tenth, wait for promote, all
  kubectl evenkeel push workers -f kubelet.yaml --selector node-restriction.kubernetes.io/pool=workers --steps 1,pause:10m,10%,pause,100%

  # Another configuration for the same nodes, by the same steps
  kubectl evenkeel push workers -f kubelet.yaml

  # A few fields over what each node has, for every node, from a script
  kubectl evenkeel push limits -f fields.yaml --drop-in --all-nodes --yes

  # Only see what it would do
  kubectl evenkeel push workers -f kubelet.yaml --dry-run`,
		Args: oneRollout, ValidArgsFunction: a.completeRollout,
		RunE: func(cmd *cobra.Command, args []string) error {
			p.name, p.given = args[0], cmd.Flags().Changed
			return a.push(cmd.Context(), p)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&p.file, "filename", "f", "", "file with the configuration; - is standard input")
	f.BoolVar(&p.dropIn, "drop-in", false, "the file is partial: lay it over each node's local configuration")
	p.addStrategy(cmd)
	f.BoolVarP(&p.yes, "yes", "y", false, "do not ask")
	f.BoolVar(&p.dryRun, "dry-run", false, "show what it would do, and write nothing")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	return cmd
}

// push is what the command line of a push asks for.
type push struct {
	name, file                                                          string
	selector, steps, maxUnavailable, maxJoining, maxFailures, onFailure string
	dropIn, allNodes, inline, yes, dryRun                               bool
	terms                                                               trialFlags
	given                                                               func(flag string) bool
}

func (a *app) push(ctx context.Context, p push) error {
	if problems := validation.IsDNS1123Label(p.name); len(problems) > 0 {
		return fmt.Errorf("%q cannot be the name of a rollout: %s", p.name, problems[0])
	}
	data, err := a.read(ctx, p.file)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	old := &v1alpha1.NodeConfigRollout{}
	err = c.Get(ctx, client.ObjectKey{Name: p.name}, old)
	if apierrors.IsNotFound(err) {
		old = nil
	} else if err != nil {
		return fmt.Errorf("read rollout %q: %w", p.name, err)
	}
	wanted, content, err := p.apply(old, data)
	if err != nil {
		return err
	}
	if decoded, err := query.PayloadOf(content); err == nil {
		for _, note := range unknownFields(decoded.Fields) {
			fmt.Fprintln(a.ErrOut, note)
		}
	}
	return a.carryOut(ctx, c, p, old, wanted, content)
}

// unknownFields says which fields no kubelet has that is known here. One of another version may have them.
func unknownFields(fields map[string]any) []string {
	known := map[string]string{"apiversion": "apiVersion", "kind": "kind"} // by lower case
	for _, f := range payload.Fields {
		top, _, _ := strings.Cut(f.Path, ".")
		known[strings.ToLower(top)] = top
	}
	var notes []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		like := known[strings.ToLower(name)]
		if like == name {
			continue
		}
		hint := ""
		if like != "" {
			hint = ", " + like + " is meant, perhaps"
		}
		notes = append(notes, fmt.Sprintf("note: no field %q is known of a KubeletConfiguration%s: a kubelet that does not know it refuses it, on the first node", printable.Line(name), hint))
	}
	return notes
}

// read returns the bytes of the file that -f names.
func (a *app) read(ctx context.Context, file string) ([]byte, error) {
	var in io.Reader = a.In
	switch file {
	case "":
		return nil, errors.New("push needs -f FILE with a kubelet configuration, or -f - for standard input")
	case "-":
	default:
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("read the configuration: %w", err)
		}
		defer f.Close()
		in = f
	}
	data, err := reading(ctx, func() ([]byte, error) { return io.ReadAll(io.LimitReader(in, payload.MaxSize+1)) })
	if err != nil {
		return nil, fmt.Errorf("read the configuration from %s: %w", file, err)
	}
	return data, nil
}

// reading reads what somebody may never write, until it is interrupted.
func reading[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type result struct {
		got T
		err error
	}
	done := make(chan result, 1)
	go func() { // a read cannot be called off: it ends with the program
		got, err := read()
		done <- result{got, err}
	}()
	select {
	case <-ctx.Done():
		return *new(T), errors.New("interrupted: nothing was written")
	case r := <-done:
		return r.got, r.err
	}
}

// apply returns the rollout that a push makes of the one that there is, nil if there is none, and its content. It leaves
// what was not given. The error says what is wrong with a flag or with the configuration.
func (p push) apply(old *v1alpha1.NodeConfigRollout, data []byte) (*v1alpha1.NodeConfigRollout, policy.Content, error) {
	none := policy.Content{}
	r := &v1alpha1.NodeConfigRollout{}
	r.Name = p.name
	if old != nil {
		r = old.DeepCopy()
	}
	key := payload.KeyKubelet
	if p.dropIn || !p.given("drop-in") && r.Spec.Template.KubeletDropIn != nil {
		key = payload.KeyKubeletDropin
	}
	decoded, err := payload.Decode(key, data)
	if err != nil {
		if _, no := parseRollout(data); no == nil {
			return nil, none, fmt.Errorf("%[1]s is a NodeConfigRollout, not what it rolls out: kubectl apply -f %[1]s, after a look with kubectl evenkeel rollout plan -f %[1]s; nothing was changed", p.file)
		}
		return nil, none, fmt.Errorf("%s: %w; nothing was changed", p.file, err)
	}
	if ref := r.Spec.Template.ConfigMapRef; ref != nil && !p.inline {
		return nil, none, fmt.Errorf("rollout %q follows ConfigMap %s/%s: change that one, or give --inline to put %s into the rollout in place of the reference",
			p.name, ref.Namespace, ref.Name, p.file)
	}
	content := policy.Content{Key: decoded.Key, Data: string(decoded.Data), SHA256: decoded.SHA256}
	if !same(r.Spec.Template, content) {
		if r.Spec.Template, err = templateOf(key, data); err != nil {
			return nil, none, fmt.Errorf("%s: %w", p.file, err)
		}
	}
	if err := p.flags(&r.Spec); err != nil {
		return nil, none, err
	}
	if _, err := describe.StepsOf(r); err != nil {
		return nil, none, err
	}
	if _, err := content.TrialTerms(r.Spec.Trial); err != nil {
		return nil, none, fmt.Errorf("rollout %q: %w; nothing was changed", p.name, err)
	}
	_, err = policy.SelectionOf(r)
	if err != nil && old == nil && !p.given("selector") {
		return nil, none, fmt.Errorf("rollout %q does not exist yet: give --selector for its nodes, or --all-nodes if every node is meant", p.name)
	}
	return r, content, err
}

// carryOut shows what a push changes, asks, and writes it.
func (a *app) carryOut(ctx context.Context, c client.Client, p push, old, wanted *v1alpha1.NodeConfigRollout, content policy.Content) error {
	changes, err := a.rehearsePush(ctx, c, p, old, wanted, content)
	if err != nil || old != nil && len(changes) == 0 {
		return err
	}
	if p.dryRun {
		fmt.Fprintln(a.Out, "dry run: nothing was written")
		return nil
	}
	verb := "Update"
	if old == nil {
		verb = "Create"
	}
	if err := a.confirm(ctx, fmt.Sprintf("%s rollout %s?", verb, p.name), p.yes, p.file == "-"); err != nil {
		return err
	}
	return a.write(ctx, c, p.name, old, wanted)
}

// rehearsePush has the API server judge what a push makes of a rollout, and shows what changes. It returns the changes of
// a rollout that there is; none means that nothing changes, which it has said then.
func (a *app) rehearsePush(ctx context.Context, c client.Client, p push, old, wanted *v1alpha1.NodeConfigRollout, content policy.Content) ([]steer.Operation, error) {
	var changes []steer.Operation
	var before policy.Content
	var err error
	if old == nil {
		err = c.Create(ctx, wanted.DeepCopy(), client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
	} else {
		changes, err = rehearse(ctx, c, p.name, old, wanted)
		if err == nil && len(changes) == 0 {
			hint := "kubectl evenkeel rollout status " + p.name
			if steer.Halted(old) { // nobody gets it
				hint = "it is " + steer.HaltWords(old)
			}
			fmt.Fprintf(a.Out, "rollout %s has this already: nothing changes; %s\n", p.name, printable.Line(hint))
			return nil, nil
		}
		if err == nil {
			before, err = query.ContentIn(ctx, c, old.Spec.Template)
			if err != nil { // what was wrong with it is no reason not to replace it
				fmt.Fprintf(a.ErrOut, "note: what there is now cannot be compared: %s\n", printable.Line(err.Error()))
				before, err = policy.Content{}, nil
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the API server refuses rollout %q: %w", p.name, err)
	}
	if err := a.showChanges(old == nil, changes, before, content); err != nil {
		return nil, err
	}
	if err := a.showPlan(ctx, c, wanted, a.Out); err != nil {
		return nil, fmt.Errorf("plan rollout %q: %w", p.name, err)
	}
	a.warnOfSelector(wanted)
	if old != nil && p.given("steps") && !equality.Semantic.DeepEqual(old.Spec.Strategy.Steps, wanted.Spec.Strategy.Steps) {
		fmt.Fprintf(a.ErrOut, "note: --steps is kept: later pushes and undos go by it as well; to have the steps of now again, push with --steps %s then\n", stepsFlag(old.Spec.Strategy.Steps))
	}
	return changes, nil
}

// warnOfSelector says if nodes can choose by themselves whether a rollout selects them.
func (a *app) warnOfSelector(r *v1alpha1.NodeConfigRollout) {
	if words := policy.SelfSelectionWarning(&r.Spec); words != "" {
		fmt.Fprintln(a.ErrOut, "warning:", printable.Line(words))
	}
}

// rehearse has the API server judge a change that it does not store.
func rehearse(ctx context.Context, c client.Client, name string, old, wanted *v1alpha1.NodeConfigRollout) ([]steer.Operation, error) {
	for try := 1; ; try++ {
		changes, err := steer.Patch(ctx, c, old, wanted, client.DryRunAll)
		if !apierrors.IsConflict(err) || try == steer.MostConflicts {
			return changes, err
		}
		if err := refresh(ctx, c, name, old); err != nil {
			return nil, err
		}
	}
}

// refresh takes over the version of a rollout that somebody wrote meanwhile, if its spec is still the one that is known.
func refresh(ctx context.Context, c client.Client, name string, known *v1alpha1.NodeConfigRollout) error {
	now := &v1alpha1.NodeConfigRollout{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, now); err != nil {
		return fmt.Errorf("read rollout %q: %w", name, err)
	}
	if now.UID != known.UID || !equality.Semantic.DeepEqual(now.Spec, known.Spec) {
		return fmt.Errorf("rollout %q was changed by somebody else meanwhile: nothing was written; push again to see what changes now", name)
	}
	known.ResourceVersion = now.ResourceVersion
	return nil
}

func (a *app) showChanges(isNew bool, changes []steer.Operation, before, after policy.Content) error {
	words, err := describe.ContentDiff(before, after)
	if err != nil {
		return fmt.Errorf("compare the configurations: %w", err)
	}
	if isNew {
		fmt.Fprintln(a.Out, "A new rollout; over what is local on its nodes:")
	} else {
		fmt.Fprintln(a.Out, "What changes:")
	}
	a.printDiff(words)
	for _, change := range changes {
		if !strings.HasPrefix(change.Path, "/spec/template") {
			fmt.Fprintf(a.Out, "%s: %s -> %s\n", printable.Line(strings.ReplaceAll(change.Path[1:], "/", ".")), printable.Line(shown(change.From)), printable.Line(shown(change.Value)))
		}
	}
	return nil
}

func shown(v any) string {
	if v == nil {
		return "unset"
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

// confirm asks a question, unless --yes was given. The error says why nothing is done. used says that standard input holds
// something else.
func (a *app) confirm(ctx context.Context, question string, yes, used bool) error {
	if yes {
		return nil
	}
	if used || !a.interactive() {
		return errors.New("nobody can be asked here, standard input is no terminal: give --yes to do it, or --dry-run; nothing was written")
	}
	fmt.Fprintf(a.Out, "%s [y/N] ", question)
	answer, err := reading(ctx, func() (string, error) { return bufio.NewReader(a.In).ReadString('\n') })
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errors.New("not confirmed: nothing was written")
}

// write stores what was shown, and nothing else: if somebody has changed the spec meanwhile, nothing is written.
func (a *app) write(ctx context.Context, c client.Client, name string, old, wanted *v1alpha1.NodeConfigRollout) error {
	did := "created"
	if old == nil {
		err := c.Create(ctx, wanted.DeepCopy(), client.FieldValidation(metav1.FieldValidationStrict))
		if apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("rollout %q was created by somebody else meanwhile: nothing was written; push again to see what changes", name)
		}
		if err != nil {
			return fmt.Errorf("create rollout %q: %w", name, err)
		}
	} else {
		did = "updated"
		for try := 1; ; try++ {
			_, err := steer.Patch(ctx, c, old, wanted)
			if err == nil {
				break
			}
			if !apierrors.IsConflict(err) || try == steer.MostConflicts {
				return fmt.Errorf("write rollout %q: %w", name, err)
			}
			if err := refresh(ctx, c, name, old); err != nil {
				return err
			}
		}
	}
	fmt.Fprintf(a.Out, "rollout %s %s; %s\n", name, did, steer.Next(wanted))
	return nil
}
