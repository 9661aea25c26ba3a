// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/cmd/evenkeel-agent/inspect"
	"github.com/evenkeel/evenkeel/internal/program"
)

func forgetCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "forget REVISION --dynamic-config-dir DIR",
		Short: "Forget that a configuration is bad, so that it is tried again",
		Long: `forget removes the record that a configuration is bad, if something else caused
the failure. If an agent runs, it executes the request within seconds; otherwise
forget changes the record itself. status and the NodeConfig's status.badConfigs list
the revisions.

Exit codes: 0 forgotten or requested, 1 no such record or another error, 3 usage.`,
		Example: `  evenkeel-agent forget 6d1e1c3a-2a0e-4f6c-9d0e-0a1b2c3d4e5f --dynamic-config-dir=/var/lib/evenkeel`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || dir == "" {
				return program.Usage("forget takes one REVISION, and --dynamic-config-dir")
			}
			return inspect.Forget(cmd.OutOrStdout(), dir, args[0])
		},
	}
	cmd.Flags().StringVar(&dir, "dynamic-config-dir", "", "the agent's --dynamic-config-dir")
	return cmd
}
