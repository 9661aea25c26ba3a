// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/operator/steer"
	"github.com/evenkeel/evenkeel/internal/printable"
)

func (a *app) undoCommand() *cobra.Command {
	var number int64
	o := retargeting{yes: true}
	cmd := &cobra.Command{
		Use:   "undo NAME",
		Short: "Roll out the configuration of an older revision again",
		Long: `Roll out the configuration of an older revision again.

It becomes a new revision with the next number, and is rolled out by the same steps: limits, gates and the failure policy still
apply. A revision that succeeded passes the pauses of the steps. --to-revision defaults to the last revision that succeeded, or to
the one before it if that is the target already. A revision that failed needs --force. To take nodes off a revision at once, without
steps, use abort --rollback.

The rollout's template does not change: undo sets spec.pin, which holds the older revision in place of the template. It ends
when the template changes, by push or by a GitOps controller, or with "rollout unpin".`,
		Example: `  kubectl evenkeel rollout undo workers
  kubectl evenkeel rollout undo workers --to-revision 3`,
		Args: oneRollout, ValidArgsFunction: a.CompleteRollout,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("to-revision") && number < 1 {
				return fmt.Errorf("--to-revision must be a number from 1, not %d", number)
			}

			return a.retarget(cmd.Context(), o, func(ctx context.Context, c client.Client) (*steer.Retarget, error) {
				return steer.Undo(ctx, c, args[0], number, 0)
			})
		},
	}
	cmd.Flags().Int64Var(&number, "to-revision", 0, "number of the revision to return to")
	_ = cmd.RegisterFlagCompletionFunc("to-revision", a.completeRevision)
	o.addFlags(cmd)

	return cmd
}

// completeRevision completes the number of a revision to which a rollout can
// return.
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

func (a *app) unpinCommand() *cobra.Command {
	var o retargeting
	cmd := &cobra.Command{
		Use:   "unpin NAME",
		Short: "Roll out the template again, after undo",
		Long: `Roll out the template again, after undo.

The revision that undo pinned (spec.pin) gives way to the template, which becomes the target by the same steps. The command prints
what changes on which nodes, and asks for confirmation. If the template's configuration failed before, it needs --force.`,
		Example: `  kubectl evenkeel rollout unpin workers
  kubectl evenkeel rollout unpin workers --dry-run`,
		Args: oneRollout, ValidArgsFunction: a.CompleteRollout,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.retarget(cmd.Context(), o, func(ctx context.Context, c client.Client) (*steer.Retarget, error) {
				return steer.Unpin(ctx, c, args[0])
			})
		},
	}
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask for confirmation")
	o.addFlags(cmd)

	return cmd
}

// retargeting has the flags of undo and unpin.
type retargeting struct{ yes, dryRun, force bool }

func (o *retargeting) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "print what changes, and write nothing")
	cmd.Flags().BoolVar(&o.force, "force", false, "roll out a configuration although it failed before")
}

// retarget prints what a change of the target does, asks, and writes it. An
// undo, which is an emergency, does not wait long for an answer about its
// nodes.
func (a *app) retarget(ctx context.Context, o retargeting, prepare func(context.Context, client.Client) (*steer.Retarget, error)) error {
	c, err := a.Client()
	if err != nil {
		return err
	}

	t, err := prepare(ctx, c)
	if err != nil {
		return err
	}

	if t.Changes() {
		look, cancel := context.WithCancel(ctx)
		if o.yes && !o.dryRun {
			look, cancel = context.WithTimeout(ctx, steer.Patience)
		}

		defer cancel()
		e, err := steer.Foresee(look, c, t.Desired)
		switch {
		case err == nil:
			t.Failed = cmp.Or(t.Failed, e.Failed)
			showEffect(look, a.Env, c, e)
			for _, words := range []string{e.Drains, e.Restart.String()} {
				if words != "" {
					fmt.Fprintf(a.Out, "Note: %s.\n", words)
				}
			}
		case !o.yes:
			return err
		default:
			a.Notes(steer.Unknown(err))
		}

		if err := refuseFailed(a.Env, t.Known.Name, t.Failed, o.force, o.dryRun); err != nil {
			return err
		}

		if o.dryRun {
			fmt.Fprintln(a.Out, "dry run: nothing was written")
			return nil
		}

		if err := a.Confirm(ctx, "Change rollout "+t.Known.Name+"?", o.yes, false); err != nil {
			return err
		}
	}

	return a.print(t.Write(ctx, c, o.force))
}

// refuseFailed prints a warning if a change rolls out a configuration that
// failed before, and returns an error, unless it is forced or the run is dry.
func refuseFailed(env *command.Env, name, failed string, force, dry bool) error {
	if failed == "" {
		return nil
	}

	fmt.Fprintf(env.ErrOut, "warning: this configuration failed before: %s\n", printable.Line(failed))
	if force || dry {
		return nil
	}

	return &command.Exit{Code: command.ExitHalted,
		Err: fmt.Errorf("rollout %s was not changed: push another configuration, or use --force if the cause of the failure is repaired", name)}
}

// mostGroups is the largest number of groups of nodes whose changes are
// printed.
const mostGroups = 4

// showEffect prints what changes on which nodes, field by field.
func showEffect(ctx context.Context, env *command.Env, c client.Client, e *steer.Effect) {
	for i, g := range e.Moves {
		if i == mostGroups {
			fmt.Fprintf(env.Out, "and %d more groups of nodes; what each node runs: kubectl evenkeel nodes\n", len(e.Moves)-i)
			break
		}

		fmt.Fprintf(env.Out, "%s:\n", g)
		if words, err := e.Diff(ctx, c, g); err != nil {
			fmt.Fprintf(env.Out, "cannot be compared: %s\n", printable.Line(err.Error()))
		} else {
			env.PrintDiff(words)
		}
	}

	for _, g := range e.Stays {
		fmt.Fprintln(env.Out, g)
	}
}

// same reports whether two templates hold the same configuration, whatever the
// order of its fields.
func same(a, b v1alpha1.RolloutTemplate) bool {
	return a.ConfigMapRef == nil && b.ConfigMapRef == nil && sameObject(a.Kubelet, b.Kubelet) && sameObject(a.KubeletDropIn, b.KubeletDropIn)
}

func sameObject(a, b *runtime.RawExtension) bool {
	if a == nil || b == nil {
		return a == b
	}

	inA, errA := yaml.YAMLToJSON(a.Raw)
	inB, errB := yaml.YAMLToJSON(b.Raw)

	return errA == nil && errB == nil && string(inA) == string(inB)
}
