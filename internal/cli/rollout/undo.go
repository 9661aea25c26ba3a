package rollout

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/fleet/query"
	"github.com/evenkeel/evenkeel/internal/fleet/steer"
	"github.com/evenkeel/evenkeel/internal/payload"
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
	_ = cmd.RegisterFlagCompletionFunc("to-revision", a.completeRevision)
	return cmd
}

// completeRevision completes the number of a revision to which a rollout can return.
func (a *app) completeRevision(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.Complete(cmd, func(ctx context.Context, c client.Reader) ([]string, error) {
		r, err := query.Rollout(ctx, c, args[0])
		if err != nil {
			return nil, err
		}
		var all []string
		for _, o := range r.Status.History {
			all = append(all, fmt.Sprintf("%d\t%s", o.Revision, o.Outcome))
		}
		return all, nil
	})
}

func (a *app) undo(ctx context.Context, name string, number int64) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	words, notes, err := steer.Undo(ctx, c, name, number, 0)
	for _, note := range notes {
		fmt.Fprintln(a.ErrOut, "note:", note)
	}
	return a.print(words, err)
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
