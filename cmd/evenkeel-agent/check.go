// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/program"
)

func checkCommand() *cobra.Command {
	o := &options{}
	var dropin bool
	cmd := &cobra.Command{
		Use:   "check FILE|- [flags] -- KUBELET [KUBELET FLAGS]",
		Short: "Validate a configuration with this node's kubelet",
		Long: `check validates a configuration as this node does before it adopts one: in a dry
run, with its kubelet, flags, local configuration and protected fields. Running
processes are not affected. Conditions that depend on running pods are not checked.

FILE is a complete configuration or, with --drop-in, a drop-in; - is the standard
input. A field that the kubelet does not know is rejected. Away from the node, and
for other components, use kubectl evenkeel config validate FILE.

Before you upgrade to another kubelet binary, check a drop-in without fields with
it, on a node and with the node's kubelet flags.

Exit codes: 0 accepted, 1 rejected or refused, 2 could not tell, 3 usage.`,
		Example: `  # Would this node adopt it?
  evenkeel-agent check kubelet.yaml -- /usr/bin/kubelet --config=/var/lib/kubelet/config.yaml

  # Can evenkeel drive the kubelet of a planned upgrade?
  evenkeel-agent check empty.yaml --drop-in -- ./kubelet-v1.37.2 --config=/var/lib/kubelet/config.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			if dash != 1 || len(args) < 2 {
				return program.Usage("check takes one FILE (or -), then -- and the kubelet's command line")
			}

			key := payload.KeyKubelet
			if dropin {
				key = payload.KeyKubeletDropin
			}

			return checkNode(cmd.Context(), cmd.OutOrStdout(), cmd.InOrStdin(), o, key, args[0], args[1:])
		},
	}
	cmd.Flags().StringVar(&o.initConfigDir, "init-config-dir", "", "the agent's --init-config-dir")
	cmd.Flags().BoolVar(&dropin, "drop-in", false, "FILE is a drop-in, merged over the local configuration")
	o.bindProtected(cmd.Flags())

	return cmd
}

// withHostKubelet calls do with this node's kubelet.
func withHostKubelet(o *options, argv []string, do func(host *agent.HostKubelet) error) error {
	k, err := component.ParseKubelet(argv)
	if err != nil {
		return program.Usage("%w", err)
	}
	if _, err := k.Identity(); err != nil {
		return program.Usage("%w", err)
	}

	return inScratch(func(scratch string) error {
		host, err := o.hostKubelet(k, scratch, slog.New(slog.DiscardHandler))
		if err != nil {
			return program.Usage("%w", err)
		}

		return do(host)
	})
}

// checkNode validates a configuration of this node's kubelet as the agent does.
func checkNode(ctx context.Context, out io.Writer, in io.Reader, o *options, key, file string, argv []string) error {
	data, err := readConfig(in, file)
	if err != nil {
		return err
	}

	p, err := payload.Decode(key, data)
	if err != nil {
		return fmt.Errorf("rejected: %w", err)
	}

	return withHostKubelet(o, argv, func(host *agent.HostKubelet) error {
		p, err := p.Resolve(host.Capacity())
		if err != nil {
			return fmt.Errorf("rejected: %w", err)
		}

		for _, value := range p.Values {
			fmt.Fprintln(out, payload.ValueWords(value))
		}

		v := host.Check(ctx, p)
		switch words, compared := v.CheckProtected(host.DryRunner.Protected); {
		case v.Outcome != component.Accepted:
		case !compared:
			warn(out, v)
			return couldNotTell(errors.New(words))
		case words != "":
			return fmt.Errorf("refused: %s", words)
		}

		return say(out, v)
	})
}

// inScratch calls do with a temporary directory for a dry run.
func inScratch(do func(dir string) error) error {
	dir, err := os.MkdirTemp("", "evenkeel-check-")
	if err != nil {
		return couldNotTell(err)
	}

	defer os.RemoveAll(dir)

	return do(dir)
}

// readConfig reads a file, or the standard input, up to one byte more than a
// payload may have.
func readConfig(in io.Reader, file string) ([]byte, error) {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, program.Usage("cannot read the configuration: %w", err)
		}

		defer f.Close()
		in = f
	}

	data, err := io.ReadAll(io.LimitReader(in, payload.MaxSize+1))
	if err != nil {
		return nil, program.Usage("cannot read the configuration: %w", err)
	}

	return data, nil
}

// say prints a verdict. Any verdict but an acceptance is returned as an error
// with its exit code.
func say(out io.Writer, v component.Verdict) error {
	for _, field := range v.Overridden {
		fmt.Fprintf(out, "overridden by a flag of the kubelet: %s\n", printable.Line(field))
	}

	warn(out, v)
	switch v.Outcome {
	case component.Accepted:
		if v.Message != "" {
			fmt.Fprintf(out, "accepted; not everything could be checked: %s\n", printable.Line(v.Message))
		} else {
			fmt.Fprintln(out, "accepted")
		}

		return nil
	case component.Rejected:
		return fmt.Errorf("rejected: %s", v.Message)
	default:
		return couldNotTell(errors.New(v.Message))
	}
}

func couldNotTell(err error) error {
	return program.WithExitCode(exitCouldNotTell, fmt.Errorf("could not tell: %w", err))
}

func warn(out io.Writer, v component.Verdict) {
	for _, warning := range v.Warnings {
		fmt.Fprintf(out, "warning: %s\n", printable.Line(warning))
	}
}
