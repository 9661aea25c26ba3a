package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/checkpoint"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/lockfile"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/trial"
)

func checkCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "check FILE|- [flags] -- KUBELET [KUBELET FLAGS]",
		Short: "Ask this node's kubelet whether it accepts a configuration",
		Long: `check runs the dry run that a configuration goes through before it is taken up,
with this node's kubelet, flags and local configuration. The running kubelet is
not touched. What depends on the pods that run is not judged.

FILE is a KubeletConfiguration; - is the standard input.

Exit codes: 0 accepted, 1 rejected, 2 could not tell, 3 usage.`,
		Example: `  evenkeel-agent check kubelet.yaml -- /usr/bin/kubelet --config=/var/lib/kubelet/config.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			if dash != 1 || len(args) < 2 {
				return usage("check takes one FILE (or -), then -- and the kubelet's command line")
			}
			return check(cmd.Context(), cmd.OutOrStdout(), cmd.InOrStdin(), o, args[0], args[1:])
		},
	}
	cmd.Flags().StringVar(&o.initConfigDir, "init-config-dir", "", "as the agent has it")
	return cmd
}

func check(ctx context.Context, out io.Writer, in io.Reader, o *options, file string, argv []string) error {
	kubelet, err := component.ParseKubelet(argv)
	if err != nil {
		return usage("%w", err)
	}
	if _, err := kubelet.Identity(); err != nil {
		return usage("%w", err)
	}
	initFile, err := o.initFile()
	if err != nil {
		return usage("%w", err)
	}
	var data []byte
	if file == "-" {
		data, err = io.ReadAll(io.LimitReader(in, payload.MaxSize+1))
	} else {
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return usage("cannot read the configuration: %w", err)
	}
	if _, err := payload.Decode(payload.KeyKubelet, data); err != nil {
		return &exit{exitError, fmt.Errorf("rejected: %w", err)}
	}
	scratch, err := os.MkdirTemp("", "evenkeel-check-")
	if err != nil {
		return &exit{exitCouldNotTell, fmt.Errorf("could not tell: %w", err)}
	}
	defer os.RemoveAll(scratch)
	v := component.NewHarness(kubelet, scratch, slog.New(slog.DiscardHandler)).Check(ctx, component.Candidate{Data: data}, initFile)
	for _, field := range v.Overridden {
		fmt.Fprintf(out, "overridden by a flag of the kubelet: %s\n", field)
	}
	for _, warning := range v.Warnings {
		fmt.Fprintf(out, "warning: %s\n", warning)
	}
	switch v.Outcome {
	case component.Accepted:
		if v.Words != "" {
			fmt.Fprintf(out, "accepted, as far as could be seen: %s\n", v.Words)
		} else {
			fmt.Fprintln(out, "accepted")
		}
		return nil
	case component.Rejected:
		return &exit{exitError, fmt.Errorf("rejected: %s", v.Words)}
	default:
		return &exit{exitCouldNotTell, fmt.Errorf("could not tell: %s", v.Words)}
	}
}

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
				return usage("forget takes one REVISION, and --dynamic-config-dir")
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
	lock, err := lockfile.TryAcquire(filepath.Join(dir, agentLock))
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
