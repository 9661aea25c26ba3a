package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/controller"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// past is one revision of a rollout as far as anything remembers it: its ConfigMap, its outcome in the status, or both.
type past struct {
	Revision  int64        `json:"revision"`
	ConfigMap string       `json:"configMap,omitempty"`
	Gone      bool         `json:"gone,omitempty"` // the ConfigMap is no more
	Outcome   string       `json:"outcome,omitempty"`
	Updated   int32        `json:"updated,omitempty"`
	Failed    int32        `json:"failed,omitempty"`
	StartTime *metav1.Time `json:"startTime,omitempty"`
	EndTime   *metav1.Time `json:"endTime,omitempty"`
	Message   string       `json:"message,omitempty"`

	object *corev1.ConfigMap
}

// pasts returns a rollout's revisions, the oldest first.
func pasts(ctx context.Context, c client.Client, r *v1alpha1.NodeConfigRollout) ([]past, error) {
	objects, numbers, err := revisionObjects(ctx, c, r.Name)
	if err != nil {
		return nil, err
	}
	all := map[int64]*past{}
	at := func(number int64, name string) *past {
		p := all[number]
		if p == nil {
			p = &past{Revision: number}
			all[number] = p
		}
		p.ConfigMap = cmp.Or(p.ConfigMap, name)
		return p
	}
	for name, number := range numbers {
		at(number, name)
	}
	for _, o := range r.Status.History {
		p := at(o.Revision, o.ConfigMap)
		p.Outcome, p.Updated, p.Failed, p.Message = o.Outcome, o.Updated, o.Failed, o.Message
		p.StartTime, p.EndTime = o.StartTime, o.EndTime
	}
	if v := r.Status.CurrentRevision; v != nil {
		p := at(v.Number, v.ConfigMapRef.Name)
		p.Outcome = cmp.Or(p.Outcome, "Succeeded")
	}
	if v := r.Status.UpdateRevision; v != nil {
		p, st := at(v.Number, v.ConfigMapRef.Name), &r.Status
		// What became of it in an attempt before this one is no news while it goes on.
		again := st.Halt == nil && st.Phase != v1alpha1.RolloutComplete && (st.CurrentRevision == nil || st.CurrentRevision.Number != v.Number)
		if p.Outcome == "" || p.EndTime == nil || again {
			p.EndTime = nil
			p.Outcome, p.StartTime, p.Message = orUnknown(st.Phase), st.StartTime, st.Message
			p.Updated, p.Failed = st.Nodes.Updated, st.Nodes.Failed
		}
	}
	var out []past
	for _, number := range slices.Sorted(maps.Keys(all)) {
		p := all[number]
		// A content that has become the target again keeps its ConfigMap, which then bears the newer number.
		p.object = objects[p.ConfigMap]
		p.Gone = p.object == nil
		out = append(out, *p)
	}
	return out, nil
}

// revisionObjects returns the ConfigMaps of a rollout's revisions and their numbers, by name.
func revisionObjects(ctx context.Context, c client.Client, name string) (map[string]*corev1.ConfigMap, map[string]int64, error) {
	objects, numbers := map[string]*corev1.ConfigMap{}, map[string]int64{}
	for cm, err := range pages(ctx, c, func() *corev1.ConfigMapList { return &corev1.ConfigMapList{} }, func(l *corev1.ConfigMapList) []corev1.ConfigMap { return l.Items },
		client.InNamespace(v1alpha1.SystemNamespace), client.MatchingLabels{v1alpha1.LabelRollout: name}) {
		if err != nil {
			return nil, nil, fmt.Errorf("list the ConfigMaps of the revisions of rollout %q in %s: %w", name, v1alpha1.SystemNamespace, err)
		}
		if number, err := strconv.ParseInt(cm.Labels[v1alpha1.LabelRevision], 10, 64); err == nil {
			objects[cm.Name], numbers[cm.Name] = cm, number
		}
	}
	return objects, numbers, nil
}

// contentAt returns a revision's content. The error says which revisions there are.
func contentAt(r *v1alpha1.NodeConfigRollout, all []past, number int64) (controller.Content, error) {
	at := slices.IndexFunc(all, func(p past) bool { return p.Revision == number })
	if at < 0 {
		return controller.Content{}, fmt.Errorf("rollout %q has no revision %d; it has %s", r.Name, number, kept(all))
	}
	p := all[at]
	if p.Gone {
		return controller.Content{}, fmt.Errorf("ConfigMap %s/%s of revision %d of rollout %q is gone, and with it what the revision was; there are still %s",
			v1alpha1.SystemNamespace, cmp.Or(p.ConfigMap, "(unknown)"), number, r.Name, kept(all))
	}
	content, err := payload.FromConfigMap(p.object)
	if err != nil {
		return controller.Content{}, fmt.Errorf("revision %d of rollout %q: %w", number, r.Name, err)
	}
	if want := controller.RevisionName(r.Name, content.SHA256); p.object.Name != want {
		return controller.Content{}, fmt.Errorf("ConfigMap %s/%s does not hold what revision %d of rollout %q was: that content would be in %s; there are %s",
			p.object.Namespace, p.object.Name, number, r.Name, want, kept(all))
	}
	return controller.Content{Key: content.Key, Data: string(content.Data), SHA256: content.SHA256}, nil
}

// kept lists the revisions whose content is still there.
func kept(all []past) string {
	var numbers []string
	for _, p := range slices.Backward(all) {
		if !p.Gone {
			numbers = append(numbers, fmt.Sprint(p.Revision))
		}
	}
	if len(numbers) == 0 {
		return "none"
	}
	return few(numbers)
}

func (a *app) historyCommand() *cobra.Command {
	var f format
	var number int64
	cmd := &cobra.Command{
		Use:   "history NAME",
		Short: "List a rollout's revisions and what became of them, or show the content of one",
		Example: `  kubectl evenkeel rollout history workers
  kubectl evenkeel rollout history workers --revision 3 > kubelet.yaml`,
		Args: oneRollout, ValidArgsFunction: a.completeRollout,
		RunE: func(cmd *cobra.Command, args []string) error {
			one := cmd.Flags().Changed("revision")
			if one && number < 1 {
				return fmt.Errorf("--revision must be a number from 1, not %d", number)
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			r, err := get(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			all, err := pasts(cmd.Context(), c, r)
			if err != nil {
				return err
			}
			if one {
				return a.printRevision(f, r, all, number)
			}
			return a.printHistory(f, r, all)
		},
	}
	formatFlag(cmd, &f, formatWide, formatJSON, formatYAML, formatName)
	cmd.Flags().Int64Var(&number, "revision", 0, "show the content of this revision; with -o its ConfigMap")
	return cmd
}

func (a *app) printRevision(f format, r *v1alpha1.NodeConfigRollout, all []past, number int64) error {
	content, err := contentAt(r, all, number)
	if err != nil {
		return err
	}
	if f != "" && f != formatWide {
		at := slices.IndexFunc(all, func(p past) bool { return p.Revision == number })
		object := all[at].object
		object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		return printObject(a.Out, f, object)
	}
	_, err = fmt.Fprintf(a.Out, "# revision %d of rollout %s, data key %s, sha256 %s\n%s\n", number, r.Name, content.Key, content.SHA256,
		strings.TrimSuffix(content.Data, "\n"))
	return err
}

func (a *app) printHistory(f format, r *v1alpha1.NodeConfigRollout, all []past) error {
	switch f {
	case formatJSON:
		data, err := json.MarshalIndent(all, "", "    ")
		fmt.Fprintf(a.Out, "%s\n", data)
		return err
	case formatYAML:
		data, err := yaml.Marshal(all)
		fmt.Fprintf(a.Out, "%s", data)
		return err
	case formatName:
		for _, p := range all {
			if !p.Gone {
				fmt.Fprintf(a.Out, "configmap/%s\n", p.ConfigMap)
			}
		}
		return nil
	}
	if len(all) == 0 {
		fmt.Fprintf(a.ErrOut, "rollout %s has no revisions yet; is evenkeel-controller running?\n", r.Name)
		return nil
	}
	header := []string{"REVISION", "OUTCOME", "UPDATED", "FAILED", "STARTED", "ENDED", "CONFIGMAP"}
	if f == formatWide {
		header = append(header, "MESSAGE")
	}
	var rows [][]string
	now := time.Now()
	ago := func(t *metav1.Time) string {
		if t == nil {
			return ""
		}
		return age(*t, now) + " ago"
	}
	for _, p := range all {
		name := p.ConfigMap
		if p.Gone {
			name += " (gone)"
		}
		row := []string{fmt.Sprint(p.Revision), p.Outcome, fmt.Sprint(p.Updated), fmt.Sprint(p.Failed), ago(p.StartTime), ago(p.EndTime), name}
		if f == formatWide {
			row = append(row, p.Message)
		}
		rows = append(rows, row)
	}
	return table(a.Out, header, rows)
}

func (a *app) diffCommand() *cobra.Command {
	var from, to int64
	cmd := &cobra.Command{
		Use:   "diff NAME",
		Short: "Show what differs between two revisions, field by field",
		Long: `Show what differs between two revisions, field by field.

Without --from it is the revision that succeeded last, and without --to the one that is being rolled out.`,
		Example: `  kubectl evenkeel rollout diff workers
  kubectl evenkeel rollout diff workers --from 3 --to 5`,
		Args: oneRollout, ValidArgsFunction: a.completeRollout,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, flag := range []string{"from", "to"} {
				if n, _ := cmd.Flags().GetInt64(flag); cmd.Flags().Changed(flag) && n < 1 {
					return fmt.Errorf("--%s must be a number from 1, not %d", flag, n)
				}
			}
			return a.diffRevisions(cmd.Context(), args[0], from, to)
		},
	}
	cmd.Flags().Int64Var(&from, "from", 0, "number of the older revision")
	cmd.Flags().Int64Var(&to, "to", 0, "number of the newer revision")
	return cmd
}

// diffRevisions prints what differs between two revisions of a rollout; 0 is the current and the update revision.
func (a *app) diffRevisions(ctx context.Context, name string, from, to int64) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	r, err := get(ctx, c, name)
	if err != nil {
		return err
	}
	all, err := pasts(ctx, c, r)
	if err != nil {
		return err
	}
	if !seen(r) {
		fmt.Fprintf(a.ErrOut, "note: %s\n", unseen)
	}
	if to == 0 {
		if r.Status.UpdateRevision == nil {
			return fmt.Errorf("rollout %q has no revision yet (%s): kubectl evenkeel rollout status %s", name, orUnknown(r.Status.Phase), name)
		}
		to = r.Status.UpdateRevision.Number
	}
	var before, after controller.Content
	if after, err = contentAt(r, all, to); err != nil {
		return err
	}
	older := "local (no revision has succeeded)"
	if from == 0 && r.Status.CurrentRevision != nil {
		from = r.Status.CurrentRevision.Number
	}
	if from == to {
		fmt.Fprintf(a.Out, "revision %d is both: it has succeeded, and nothing else is being rolled out; compare with an older one by --from (%s)\n", to, kept(all))
		return nil
	}
	if from != 0 {
		older = fmt.Sprintf("revision %d", from)
		if before, err = contentAt(r, all, from); err != nil {
			return err
		}
	}
	words, err := contentDiff(before, after)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "%s -> revision %d\n", older, to)
	a.printDiff(words)
	return nil
}

// printDiff prints what contentDiff says.
func (a *app) printDiff(words string) {
	if words == "" {
		words = "no field differs"
	}
	fmt.Fprintln(a.Out, printable(strings.TrimSuffix(words, "\n")))
}
