// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/program"
)

func defaultsCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "defaults [flags] -- BINARY",
		Short: "Print the defaults of a component, as a configuration file",
		Long: `defaults prints a component's defaults, independent of host and cluster, as a
configuration file that the same binary accepts. Use the binary of any version.
Running processes are not affected.

Values that a component creates only when it starts, such as the kubelet's
certificate, are empty.

Exit codes: 0 printed, 2 could not tell, 3 usage.`,
		Example: `  # What changes with an upgrade?
  diff <(evenkeel-agent defaults -- ./kubelet-v1.36.3) <(evenkeel-agent defaults -- ./kubelet-v1.37.2)

  evenkeel-agent defaults --component=kube-proxy -- /usr/local/bin/kube-proxy > kube-proxy.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case cmd.ArgsLenAtDash() != 0 || len(args) == 0:
				return program.Usage("defaults takes -- and the path of a %s", name)
			case len(args) > 1:
				return program.Usage("the %s takes no flags here: remove %q", name, args[1:])
			}
			return inScratch(func(scratch string) error {
				c, err := component.New(name, args[0], scratch, slog.New(slog.DiscardHandler))
				if err != nil {
					return program.Usage("%w", err)
				}
				return printDefaults(cmd.Context(), cmd.OutOrStdout(), c)
			})
		},
	}
	cmd.Flags().StringVar(&name, "component", "kubelet", "component of the configuration: "+strings.Join(component.Names(), " or "))
	return cmd
}

func printDefaults(ctx context.Context, out io.Writer, c component.Component) error {
	version, err := c.Version(ctx)
	if err != nil {
		return couldNotTell(err)
	}
	defaults, err := c.Defaults(ctx)
	if err != nil {
		return couldNotTell(err)
	}
	document, err := defaults.YAML()
	if err != nil {
		return couldNotTell(err)
	}
	_, err = fmt.Fprintf(out, "# The defaults of %s %s, as it printed them.\n%s", c.Name(), version, document)
	return err
}
