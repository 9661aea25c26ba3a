// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/program"
)

// startProbeCommand returns the program of the pod of a start probe.
func startProbeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "start-probe", Short: "Run until it is told to stop", Hidden: true, Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			<-cmd.Context().Done()
			return nil
		},
	}
}
