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
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/program"
)

// kubelet is the component that a node's agent runs: check uses the node's flags and local configuration for it.
const kubelet = "kubelet"

func checkCommand() *cobra.Command {
	o := &options{}
	var name string
	var dropin, anywhere, selfTest bool
	cmd := &cobra.Command{
		Use:   "check FILE|- [flags] -- BINARY [KUBELET FLAGS]\n  evenkeel-agent check --self-test [flags] -- KUBELET [KUBELET FLAGS]",
		Short: "Validate a configuration with the component's own binary",
		Long: `check validates a configuration with the component's own binary. Running
processes are not affected.

FILE is a complete configuration of the component; - is the standard input.

kubelet     The dry run that precedes the adoption of a configuration, with this
            node's kubelet, flags, local configuration and protected fields.
            Conditions that depend on running pods are not checked. The file may
            also be in the grouped form or, with --drop-in, a drop-in.
            --anywhere ignores this node, as for other components.
any other   The component's own validation, after its defaults are applied. It
            accepts no flags, and neither reads nor changes this host: use the
            binary of any version.

A field that the component does not know is rejected.

With --self-test there is no FILE. The command reports whether evenkeel can
drive the kubelet, and what is limited with it. Run it on a node, with the
node's kubelet flags, before you upgrade to another kubelet binary.

Exit codes: 0 accepted, 1 rejected or refused, 2 could not tell, 3 usage. With
--self-test: 0 the kubelet can be driven, also if something is limited, 1 it
cannot, 2 could not tell.`,
		Example: `  # Would this node adopt it?
  evenkeel-agent check kubelet.yaml -- /usr/bin/kubelet --config=/var/lib/kubelet/config.yaml

  # Can evenkeel drive the kubelet of a planned upgrade?
  evenkeel-agent check --self-test -- ./kubelet-v1.37.2 --config=/var/lib/kubelet/config.yaml

  # Would the kubelet of a planned upgrade accept it?
  evenkeel-agent check --anywhere kubelet.yaml -- ./kubelet-v1.37.2

  # Would the kube-proxy of a planned upgrade accept the cluster's configuration?
  kubectl -n kube-system get configmap kube-proxy -o 'jsonpath={.data.config\.conf}' |
    evenkeel-agent check --component=kube-proxy - -- ./kube-proxy-v1.37.2`,
		RunE: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			if selfTest {
				if dash != 0 || len(args) < 1 {
					return program.Usage("check --self-test takes no FILE: only -- and the kubelet's command line")
				}
				if name != kubelet || anywhere || dropin {
					return program.Usage("--self-test is for the kubelet of this node: leave out --component, --anywhere and --drop-in")
				}
				return checkSelf(cmd.Context(), cmd.OutOrStdout(), o, args)
			}
			if dash != 1 || len(args) < 2 {
				return program.Usage("check takes one FILE (or -), then -- and the %s's command line", name)
			}
			file, argv := args[0], args[1:]
			if name == kubelet && !anywhere {
				key := payload.KeyKubelet
				if dropin {
					key = payload.KeyKubeletDropin
				}
				return checkNode(cmd.Context(), cmd.OutOrStdout(), cmd.InOrStdin(), o, key, file, argv)
			}
			for _, flag := range []string{"init-config-dir", "drop-in", "protected-fields"} {
				if cmd.Flags().Changed(flag) {
					return program.Usage("--%s is for the kubelet of this node; this validation ignores the node", flag)
				}
			}
			return checkAnywhere(cmd.Context(), cmd.OutOrStdout(), cmd.InOrStdin(), name, file, argv)
		},
	}
	cmd.Flags().StringVar(&o.initConfigDir, "init-config-dir", "", "the agent's --init-config-dir (kubelet only)")
	cmd.Flags().BoolVar(&dropin, "drop-in", false, "FILE is a drop-in, merged over the local configuration (kubelet only)")
	cmd.Flags().BoolVar(&selfTest, "self-test", false, "report whether evenkeel can drive this kubelet, and what is limited with it")
	cmd.Flags().BoolVar(&anywhere, "anywhere", false, "ignore this node: validate the configuration alone, with a kubelet of any version")
	o.bindProtected(cmd.Flags())
	addComponentFlag(cmd.Flags(), &name)
	return cmd
}

func addComponentFlag(flags *pflag.FlagSet, name *string) {
	flags.StringVar(name, "component", kubelet, "component of the configuration: "+strings.Join(component.Names(), " or "))
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

// checkSelf reports whether evenkeel can drive this node's kubelet.
func checkSelf(ctx context.Context, out io.Writer, o *options, argv []string) error {
	return withHostKubelet(o, argv, func(host *agent.HostKubelet) error {
		t := host.DryRunner.SelfTest(ctx, host.InitFile)
		for _, step := range t.Steps {
			fmt.Fprintf(out, "%-8s%s: %s\n", map[bool]string{true: "ok", false: "not ok"}[step.OK], step.Name, step.Message)
		}
		for _, limit := range t.Limits {
			fmt.Fprintf(out, "limited %s: %s\n", limit.Reason, limit.Message)
		}
		switch {
		case t.Unknown:
			return couldNotTell(errors.New(t.Message))
		case !t.Supported:
			return fmt.Errorf("this kubelet cannot be driven: %s", t.Message)
		case len(t.Limits) > 0:
			fmt.Fprintf(out, "kubelet %s can be driven, with limits\n", t.Version)
		default:
			fmt.Fprintf(out, "kubelet %s can be driven\n", t.Version)
		}
		return nil
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

// checkAnywhere validates a configuration of a component without regard to this host.
func checkAnywhere(ctx context.Context, out io.Writer, in io.Reader, name, file string, argv []string) error {
	return withComponent(name, argv, func(c component.Component) error {
		data, err := readConfig(in, file)
		if err != nil {
			return err
		}
		if name == kubelet { // it may be in the grouped form
			var resolved payload.Resolved
			p, err := payload.Decode(payload.KeyKubelet, data)
			if err == nil {
				resolved, err = p.Resolve(payload.Capacity{})
			}
			if err != nil {
				return fmt.Errorf("rejected: %w", err)
			}
			data = resolved.Upstream
		}
		return say(out, c.Validate(ctx, data))
	})
}

// withComponent calls do with the component that a command line names.
func withComponent(name string, argv []string, do func(component.Component) error) error {
	return inScratch(func(scratch string) error {
		c, err := component.New(name, argv[0], scratch, slog.New(slog.DiscardHandler))
		if err != nil {
			return program.Usage("%w", err)
		}
		if len(argv) > 1 {
			return program.Usage("the %s takes no flags here: remove %q", name, argv[1:])
		}
		return do(c)
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

// readConfig reads a file, or the standard input, up to one byte more than a payload may have.
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

// say prints a verdict. Any verdict but an acceptance is returned as an error with its exit code.
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
