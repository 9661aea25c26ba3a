// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/operator/kubeadm"
	"github.com/evenkeel/evenkeel/internal/printable"
)

func (a *app) componentUndoCommand() *cobra.Command {
	var yes, dryRun, overwrite bool
	cmd := &cobra.Command{
		Use:   "undo",
		Short: "Restore the ConfigMaps of the last component apply",
		Long: `Restore the content and the signatures of the ConfigMaps that the last "component apply" or "config upload" changed, and
delete those that it created. Run it again to undo the change before: the last ten changes are kept.

The command prints the changes and asks for confirmation. If somebody has changed a ConfigMap since, it refuses, unless
--overwrite is given. It does not change a rollout of the kubelet's configuration: use kubectl evenkeel rollout undo NAME, or
rollout abort --rollback for the first revision.`,
		Example: `  kubectl evenkeel component undo --dry-run
  kubectl evenkeel component undo`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.componentUndo(cmd.Context(), yes, dryRun, overwrite)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	f.BoolVar(&dryRun, "dry-run", false, "print the changes, and write nothing")
	f.BoolVar(&overwrite, "overwrite", false, "also restore ConfigMaps that somebody has changed since")
	return cmd
}

func (a *app) componentUndo(ctx context.Context, yes, dryRun, overwrite bool) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	record, err := kubeadm.LatestUndoRecord(ctx, c)
	if err != nil {
		return err
	}
	if record == nil {
		return errors.New("nothing to undo: no upgrade has changed a ConfigMap, or all changes were undone")
	}
	writes, err := record.Undo(ctx, c, overwrite)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "Restore the state before %s\n", printable.Line(record.String()))
	have, err := kubeadm.Gather(ctx, c)
	if err != nil {
		return err
	}
	a.showWrites(writes, have.ProxyImage != "")
	if len(writes) == 0 {
		fmt.Fprintln(a.Out, "The ConfigMaps already have this content: only the record of the change is removed.")
	}
	if err := kubeadm.DryRun(ctx, c, writes); err != nil {
		return err
	}
	if dryRun {
		fmt.Fprintln(a.Out, "dry run: nothing was written")
		return nil
	}
	question := "Remove the record?"
	if len(writes) > 0 {
		question = "Restore " + names(writes) + "?"
	}
	if err := a.Confirm(ctx, question, yes, false); err != nil {
		return err
	}
	if err := kubeadm.Restore(ctx, c, record, writes); err != nil {
		return err
	}
	if len(writes) > 0 {
		fmt.Fprintf(a.Out, "restored: %s\n", names(writes))
	}
	return nil
}
