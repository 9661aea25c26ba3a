// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
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
