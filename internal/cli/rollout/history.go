// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/operator/steer"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

func (a *app) historyCommand() *cobra.Command {
	var f printing.Format
	var number int64
	cmd := &cobra.Command{
		Use:   "history NAME",
		Short: "List the revisions of a rollout and their outcomes, or print one revision",
		Example: `  kubectl evenkeel rollout history workers
  kubectl evenkeel rollout history workers --revision 3 > kubelet.yaml`,
		Args: oneRollout, ValidArgsFunction: a.CompleteRollout,
		RunE: func(cmd *cobra.Command, args []string) error {
			one := cmd.Flags().Changed("revision")
			if one && number < 1 {
				return fmt.Errorf("--revision must be a number from 1, not %d", number)
			}
			c, r, err := a.load(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			all, unlisted, err := query.Revisions(cmd.Context(), c, r)
			if err != nil {
				return err
			}
			if len(unlisted) > 0 {
				a.Notes(fmt.Sprintf("ConfigMaps with the label %s=%s that the rollout's status does not list are ignored: %s",
					v1alpha1.LabelRollout, r.Name, printable.Few(unlisted)))
			}
			if one {
				return a.printRevision(f, r, all, number)
			}
			return a.printHistory(f, r, all)
		},
	}
	printing.FormatFlag(cmd, &f, printing.Wide, printing.JSON, printing.YAML, printing.Name)
	cmd.Flags().Int64Var(&number, "revision", 0, "print the configuration of this revision; with -o print its ConfigMap")
	return cmd
}

func (a *app) printRevision(f printing.Format, r *v1alpha1.NodeConfigRollout, all []query.Revision, number int64) error {
	content, err := query.ContentAt(r, all, number)
	if err != nil {
		return err
	}
	if f != "" && f != printing.Wide {
		at := slices.IndexFunc(all, func(p query.Revision) bool { return p.Revision == number })
		object := all[at].Object
		object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		return printing.Object(a.Out, f, object)
	}
	_, err = fmt.Fprintf(a.Out, "# revision %d of rollout %s, data key %s, sha256 %s\n%s\n", number, r.Name, content.Key, content.SHA256,
		bytes.TrimSuffix(content.Data, []byte("\n")))
	return err
}

func (a *app) printHistory(f printing.Format, r *v1alpha1.NodeConfigRollout, all []query.Revision) error {
	switch f {
	case printing.JSON, printing.YAML:
		return printing.Encode(a.Out, f, all)
	case printing.Name:
		for _, p := range all {
			if !p.Gone {
				fmt.Fprintf(a.Out, "configmap/%s\n", p.ConfigMap)
			}
		}
		return nil
	}
	if len(all) == 0 {
		fmt.Fprintf(a.ErrOut, "rollout %s has no revisions yet; if this stays so: kubectl evenkeel doctor\n", r.Name)
		return nil
	}
	header := []string{"REVISION", "OUTCOME", "REASON", "UPDATED", "FAILED", "STARTED", "ENDED", "CONFIGMAP"}
	if f == printing.Wide {
		header = append(header, "MESSAGE")
	}
	var rows [][]string
	now := time.Now()
	for _, p := range all {
		name := p.ConfigMap
		if p.Gone {
			name += " (gone)"
		}
		row := []string{fmt.Sprint(p.Revision), p.Outcome, p.Reason, fmt.Sprint(p.Updated), fmt.Sprint(p.Failed), describe.Ago(p.StartTime, now),
			describe.Ago(p.EndTime, now), name}
		if f == printing.Wide {
			row = append(row, p.Message)
		}
		rows = append(rows, row)
	}
	if err := printing.Table(a.Out, header, rows); err != nil || f == printing.Wide {
		return err
	}
	for _, p := range all {
		if p.Message != "" && p.EndTime != nil {
			fmt.Fprintf(a.Out, "revision %d: %s\n", p.Revision, printable.Line(p.Message))
		}
	}
	return nil
}

func (a *app) diffCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "diff NAME",
		Short: "Compare what nodes run with what they are going to run, field by field",
		Long: `Compare what nodes run with what they are going to run, field by field.

If no node changes its configuration, it compares the last revision that succeeded with the one that is being rolled out. For other
revisions use "config diff".`,
		Example: `  kubectl evenkeel rollout diff workers
  kubectl evenkeel config diff rollout/workers@3 rollout/workers@5`,
		Args: oneRollout, ValidArgsFunction: a.CompleteRollout,
		RunE: func(cmd *cobra.Command, args []string) error { return a.diff(cmd.Context(), args[0]) },
	}
}

func (a *app) diff(ctx context.Context, name string) error {
	c, r, err := a.load(ctx, name)
	if err != nil {
		return err
	}
	if !query.Observed(r) {
		a.Notes(query.Unobserved)
	}
	to, from := r.Status.UpdateRevision, r.Status.CurrentRevision
	if to == nil {
		return fmt.Errorf("rollout %q has no revision yet (%s): kubectl evenkeel rollout status %s", name, describe.OrUnknown(r.Status.Phase),
			name)
	}
	if e, err := steer.Foresee(ctx, c, r); err == nil && len(e.Moves) > 0 {
		showEffect(ctx, a.Env, c, e)
		return nil
	}
	all, _, err := query.Revisions(ctx, c, r)
	if err != nil {
		return err
	}
	after, err := query.ContentAt(r, all, to.Number)
	if err != nil {
		return err
	}
	older, before := "local (no revision has succeeded)", payload.Payload{}
	switch {
	case from == nil:
	case from.Number == to.Number:
		fmt.Fprintf(a.Out, "revision %[1]d has succeeded, and no other revision is being rolled out; compare it with an older one (%[2]s): "+
			"kubectl evenkeel config diff rollout/%[3]s@NUMBER rollout/%[3]s@%[1]d\n", to.Number, query.Available(all), name)
		return nil
	default:
		older = fmt.Sprintf("revision %d", from.Number)
		if before, err = query.ContentAt(r, all, from.Number); err != nil {
			return err
		}
	}
	fmt.Fprintf(a.Out, "%s -> revision %d\n", older, to.Number)
	a.PrintDiff(describe.ContentDiff(before, after, describe.LocalOfEach))
	return nil
}
