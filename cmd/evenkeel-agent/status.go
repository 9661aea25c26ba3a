// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/cmd/evenkeel-agent/inspect"
	"github.com/evenkeel/evenkeel/internal/program"
)

func statusCommand() *cobra.Command {
	var dir, output, form string
	cmd := &cobra.Command{
		Use:   "status --dynamic-config-dir DIR",
		Short: "Show what this node runs and why, from disk; no API needed",
		Long: `status shows what this node runs and why, from disk, without the API or a running
agent. If an agent runs, it also shows the differences from the local configuration
and, with --effective, every field of the effective configuration with its value
and origin: a flag of the kubelet, a drop-in or another remote configuration, the
node's local configuration, or the kubelet's defaults.

Exit codes: 0 printed, 1 the directory cannot be read, 3 usage.`,
		Example: `  evenkeel-agent status --dynamic-config-dir=/var/lib/evenkeel --effective=grouped
  evenkeel-agent status --dynamic-config-dir=/var/lib/evenkeel -o json`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case dir == "":
				return program.Usage("--dynamic-config-dir is missing: it is the directory that the agent was started with, usually /var/lib/evenkeel")
			case output != "" && output != "json":
				return program.Usage("-o must be json, not %q", output)
			case form != "" && form != inspect.FormFlat && form != inspect.FormGrouped:
				return program.Usage("--effective must be %s or %s, not %q", inspect.FormFlat, inspect.FormGrouped, form)
			}

			s, err := inspect.Summarize(dir)
			if err != nil {
				return err
			}
			if form == inspect.FormGrouped {
				s = s.Grouped()
			}
			if output == "json" {
				return s.Encode(cmd.OutOrStdout())
			}

			return s.Print(cmd.OutOrStdout(), form)
		},
	}
	cmd.Flags().StringVar(&dir, "dynamic-config-dir", "", "the agent's --dynamic-config-dir")
	cmd.Flags().StringVarP(&output, "output", "o", "", "output format: json (default: text)")
	cmd.Flags().StringVar(&form, "effective", "",
		"also show the effective configuration, with upstream field names (flat) or in evenkeel's groups (grouped)")

	return cmd
}

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
