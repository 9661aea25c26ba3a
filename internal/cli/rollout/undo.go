package rollout

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/describe"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/fleet/query"
	"github.com/evenkeel/evenkeel/internal/fleet/steer"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

func (a *app) undoCommand() *cobra.Command {
	var number int64
	cmd := &cobra.Command{
		Use:   "undo NAME",
		Short: "Roll out the configuration of an older revision again",
		Long: `Roll out the configuration of an older revision again.

It becomes a new revision with the next number, and is rolled out by the same steps. --to-revision defaults to the last
revision that succeeded, or to the one before it if that is the target already. To take nodes off a revision at once,
without steps, use abort --rollback.

The rollout's template does not change: undo sets spec.pin, which holds the older revision in place of the template. It ends
when the template changes, by push or by a GitOps controller, or with "rollout unpin".`,
		Example: `  kubectl evenkeel rollout undo workers
  kubectl evenkeel rollout undo workers --to-revision 3`,
		Args: oneRollout, ValidArgsFunction: a.CompleteRollout,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("to-revision") && number < 1 {
				return fmt.Errorf("--to-revision must be a number from 1, not %d", number)
			}
			return a.undo(cmd.Context(), args[0], number)
		},
	}
	cmd.Flags().Int64Var(&number, "to-revision", 0, "number of the revision to return to")
	return cmd
}

func (a *app) undo(ctx context.Context, name string, number int64) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	// The default revision depends on the status, which must not be old.
	look := query.Rollout
	if number == 0 {
		look = query.ObservedRollout
	}
	r, err := look(ctx, c, name)
	if err != nil {
		return err
	}
	all, err := query.Revisions(ctx, c, r)
	if err != nil {
		return err
	}
	if number == 0 {
		if number = steer.PreviousRevision(r); number == 0 {
			return nothingBefore(r, all)
		}
	}
	content, err := query.ContentAt(r, all, number)
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.Number == number && describe.Stopped(v1alpha1.RolloutPhase(p.Outcome)) {
			fmt.Fprintf(a.ErrOut, "note: revision %d did not succeed, it was %s: %s\n", number, p.Outcome, printable.Line(cmp.Or(p.Message, "the reason is not known")))
		}
	}
	return a.pin(ctx, c, r, content, number)
}

// pin pins a revision with this content in place of the template, unless the template has changed since known was read.
func (a *app) pin(ctx context.Context, c client.Client, known *v1alpha1.NodeConfigRollout, content policy.Content, number int64) error {
	template, err := query.ContentIn(ctx, c, known.Spec.Template)
	if err != nil {
		return fmt.Errorf("rollout %q cannot be undone, because its template is invalid and nothing rolls it out: %w; nothing was changed", known.Name, err)
	}
	return a.print(steer.Edit(ctx, c, known.Name, func(r *v1alpha1.NodeConfigRollout) (string, error) {
		if r.UID != known.UID || !equality.Semantic.DeepEqual(r.Spec.Template, known.Spec.Template) {
			return "", fmt.Errorf("was changed by somebody else in the meantime; look at it with kubectl evenkeel rollout diff %s, and run undo again if it is still needed", r.Name)
		}
		return steer.Pin(r, template, content, number)
	}))
}

// nothingBefore returns the error of an undo without an earlier revision that succeeded.
func nothingBefore(r *v1alpha1.NodeConfigRollout, all []query.Revision) error {
	target := r.Status.UpdateRevision
	if target == nil {
		return fmt.Errorf("rollout %q has no revision yet (%s): kubectl evenkeel rollout status %s", r.Name, describe.OrUnknown(r.Status.Phase), r.Name)
	}
	others := slices.DeleteFunc(slices.Clone(all), func(p query.Revision) bool { return p.Gone || p.ConfigMap == target.ConfigMapRef.Name })
	advice := "push another configuration"
	if len(others) > 0 {
		advice = fmt.Sprintf("choose one with --to-revision (there are %s), or %s", query.Available(others), advice)
	}
	if r.Status.Halt == nil || !r.Status.Halt.Rollback {
		advice += fmt.Sprintf("; kubectl evenkeel rollout abort %s --rollback returns the nodes to their previous configuration", r.Name)
	}
	return fmt.Errorf("rollout %q has no revision that succeeded before revision %d: %s", r.Name, target.Number, advice)
}

// same reports whether a template holds content.
func same(t v1alpha1.RolloutTemplate, content policy.Content) bool {
	if t.ConfigMapRef != nil {
		return false
	}
	has, err := policy.ContentOf(t, nil)
	return err == nil && has.Key == content.Key && sameData(has.Data, content.Data)
}

// sameData reports whether two documents in YAML or JSON have the same content.
func sameData(a, b string) bool {
	inA, errA := yaml.YAMLToJSON([]byte(a))
	inB, errB := yaml.YAMLToJSON([]byte(b))
	return errA == nil && errB == nil && string(inA) == string(inB)
}

// templateOf returns a template that holds a payload.
func templateOf(key string, data []byte) (v1alpha1.RolloutTemplate, error) {
	object, err := yaml.YAMLToJSON(data)
	if err != nil {
		return v1alpha1.RolloutTemplate{}, fmt.Errorf("convert the configuration to JSON: %w", err)
	}
	raw := &runtime.RawExtension{Raw: object}
	if key == payload.KeyKubeletDropin {
		return v1alpha1.RolloutTemplate{KubeletDropIn: raw}, nil
	}
	return v1alpha1.RolloutTemplate{Kubelet: raw}, nil
}
