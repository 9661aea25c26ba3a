package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/handover"
	"github.com/evenkeel/evenkeel/internal/node/lockfile"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/program"
)

func forgetCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "forget REVISION --dynamic-config-dir DIR",
		Short: "Forget that a configuration is bad, so that it is tried again",
		Long: `forget is the repair for a dead end: a configuration was held to be bad, but it
was not the cause. If an agent runs it is left a request, which it carries out
within seconds; else the record is changed here. Revisions are listed by status
and in the NodeConfig's status.badConfigs.

Exit codes: 0 forgotten or asked for, 1 no such record or another error, 3 usage.`,
		Example: `  evenkeel-agent forget 6d1e1c3a-2a0e-4f6c-9d0e-0a1b2c3d4e5f --dynamic-config-dir=/var/lib/evenkeel`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || dir == "" {
				return program.Usage("forget takes one REVISION, and --dynamic-config-dir")
			}
			return forget(cmd.OutOrStdout(), dir, args[0])
		},
	}
	cmd.Flags().StringVar(&dir, "dynamic-config-dir", "", "the agent's directory")
	return cmd
}

func forget(out io.Writer, dir, revision string) error {
	view, err := checkpoint.ReadOnly(atomicfile.OS{}, dir, "")
	if err != nil {
		return err
	}
	found := view.State.Trial != nil && view.State.Trial.Revision == revision
	for _, b := range view.State.Bad {
		found = found || b.Revision == revision
	}
	if !found {
		return fmt.Errorf("no record of revision %s being bad in %s (kubelet %s); see evenkeel-agent status --dynamic-config-dir=%s", revision, dir, view.Version, dir)
	}
	lock, err := lockfile.TryAcquire(handover.DirectoryLock(dir))
	if errors.Is(err, lockfile.ErrHeld) {
		if err := checkpoint.RequestForget(atomicfile.OS{}, dir, revision); err != nil {
			return err
		}
		_, err := fmt.Fprintf(out, "the running agent was asked to forget that %s is bad\n", revision)
		return err
	}
	if err != nil {
		return err
	}
	defer lock.Release()
	store, err := checkpoint.Open(atomicfile.OS{}, dir, view.Version, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	state, _ := store.Load()
	if err := store.Save(trial.Forget(state, revision)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "forgot that %s is bad; no agent runs, the next one will try it again if it is assigned\n", revision)
	return err
}
