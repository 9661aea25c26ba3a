package config

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/kubeadm"
	"github.com/evenkeel/evenkeel/internal/printable"
)

func (a *app) upgradeUndoCommand() *cobra.Command {
	var yes, dryRun, overwrite bool
	cmd := &cobra.Command{
		Use:   "undo",
		Short: "Restore what the last upgrade apply changed",
		Long: `Restore what the last "upgrade apply" or "config upload" changed: the content and the signatures of its ConfigMaps; one
that there was none of is deleted. Done again, it restores what the one before changed: the last ten are kept.

It shows what changes, asks, and writes. If somebody has changed a ConfigMap since, it refuses, unless --overwrite is given.
A rollout that was handed the kubelet's configuration goes its own way back: kubectl evenkeel rollout undo, or, if that was
its first revision, rollout abort --rollback.`,
		Example: `  kubectl evenkeel upgrade undo --dry-run
  kubectl evenkeel upgrade undo`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.upgradeUndo(cmd.Context(), yes, dryRun, overwrite)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&yes, "yes", "y", false, "do not ask")
	f.BoolVar(&dryRun, "dry-run", false, "show what it would do, and write nothing")
	f.BoolVar(&overwrite, "overwrite", false, "restore also what somebody has changed since")
	return cmd
}

func (a *app) upgradeUndo(ctx context.Context, yes, dryRun, overwrite bool) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	record, err := kubeadm.LatestUndoRecord(ctx, c)
	if err != nil {
		return err
	}
	if record == nil {
		return errors.New("there is nothing to undo: no upgrade has changed a ConfigMap, or all were undone")
	}
	writes, err := record.Undo(ctx, c, overwrite)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "Back to what was there before %s\n", printable.Line(record.String()))
	have, err := kubeadm.Gather(ctx, c)
	if err != nil {
		return err
	}
	a.showWrites(writes, have.ProxyImage != "")
	if len(writes) == 0 {
		fmt.Fprintln(a.Out, "All of it is there already: only the record of that apply goes.")
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
