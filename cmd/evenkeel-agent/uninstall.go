package main

import (
	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/node/install"
	"github.com/evenkeel/evenkeel/internal/program"
)

func uninstallCommand() *cobra.Command {
	c := &nodeChange{}
	cmd := &cobra.Command{
		Use:   "uninstall [flags]",
		Short: "Take the agent away again: the kubelet runs as it did before",
		Long: `uninstall removes the one file that install has written, has systemd read its
files, restarts the kubelet's unit, and watches the kubelet come back. If it was
healthy before and does not come back within --timeout, the file is put back.
On a node without that file there is nothing to do.

A file that was edited since is removed only with --force, and so is one without
which the kubelet would not start. What the agent remembers (` + memoryDir + `) stays,
but for --purge.

Exit codes: 0 done, or nothing to do, 1 error and nothing was changed, 2 tried and
put back, 3 usage.`,
		Example: `  evenkeel-agent uninstall
  evenkeel-agent uninstall --purge`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.run(cmd.Context(), cmd.OutOrStdout(), (*install.Host).Uninstall)
		},
	}
	c.bind(cmd.Flags())
	cmd.Flags().BoolVar(&c.request.Force, "force", false, "also a file that was edited, or without which the kubelet would not start; it is not put back")
	cmd.Flags().BoolVar(&c.request.Purge, "purge", false, "remove what the agent remembers as well")
	return cmd
}
