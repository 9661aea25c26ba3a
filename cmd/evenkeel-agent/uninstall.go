// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

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
		Short: "Remove the agent: the kubelet runs as before",
		Long: `uninstall removes the drop-in that install has written, reloads systemd, restarts
the kubelet's unit, and waits until the kubelet is healthy. If it was healthy
before and is not healthy again within --timeout, the drop-in is restored.
On a node without the drop-in there is nothing to do.

Nothing changes if the restart would end pods. A drop-in that was edited, or
without which the kubelet would not start, is removed only with --force. The
agent's directory (` + stateDir + `) stays, unless --purge is set.

Exit codes: 0 done, or nothing to do, 1 error and nothing was changed, 2 tried and
restored, 3 usage.`,
		Example: `  evenkeel-agent uninstall
  evenkeel-agent uninstall --purge`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.run(cmd.Context(), cmd.OutOrStdout(), (*install.Host).Uninstall)
		},
	}
	c.bind(cmd.Flags())
	cmd.Flags().BoolVar(&c.request.Force, "force", false,
		"also remove an edited drop-in, or one that the kubelet needs to start; never roll back")
	cmd.Flags().BoolVar(&c.request.Purge, "purge", false, "also remove the agent's state directory")
	return cmd
}
