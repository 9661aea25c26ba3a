package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/program"
)

func defaultsCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "defaults [flags] -- BINARY",
		Short: "Print the defaults of a component, as a configuration file",
		Long: `defaults asks a component's own binary what an empty configuration amounts to,
and prints that as a configuration file, which the same binary accepts. Any
version's binary will do; nothing of this host or of a cluster goes into it, and
nothing that runs is touched.

What a component makes only when it starts, such as the kubelet's certificate,
is empty here.

Exit codes: 0 printed, 2 could not tell, 3 usage.`,
		Example: `  # What would change with an upgrade that nobody asked for?
  diff <(evenkeel-agent defaults -- ./kubelet-v1.36.3) <(evenkeel-agent defaults -- ./kubelet-v1.37.1)

  evenkeel-agent defaults --component=kube-proxy -- /usr/local/bin/kube-proxy > kube-proxy.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 0 || len(args) == 0 {
				return program.Usage("defaults takes -- and the path of a %s", name)
			}
			return withComponent(name, args, func(c component.Component) error {
				return printDefaults(cmd.Context(), cmd.OutOrStdout(), c)
			})
		},
	}
	addComponentFlag(cmd.Flags(), &name)
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
