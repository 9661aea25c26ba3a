// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"os"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/node/handover"
	"github.com/evenkeel/evenkeel/internal/program"
)

// probeSocketVar names the agent's socket for the probes of its pod.
const probeSocketVar = "EVENKEEL_PROBE_SOCKET"

func probeCommand() *cobra.Command {
	var socket string
	var ready bool
	cmd := &cobra.Command{
		Use:   "probe [--socket PATH] [--ready]",
		Short: "Report whether an agent on this host is alive; for the exec probes of a pod",
		Long: `probe asks the agent with --probe-socket PATH, and prints its answer. The default
of --socket is $EVENKEEL_PROBE_SOCKET, because the exec probes of all pods of a
DaemonSet have the same command line.

An agent that waits for the node's lock is alive and ready: it has finished its
checks. A rolling update with maxSurge can then delete the old pod. An agent that
has the lock is ready when its kubelet is healthy, and not alive if it has made no
decision for two minutes.

Exit codes: 0 alive (with --ready: ready), 1 not, or no answer, 3 usage.`,
		Example: `  evenkeel-agent probe --socket=/run/evenkeel/probe/bootstrap.sock --ready`,
		Args:    program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if socket = cmp.Or(socket, os.Getenv(probeSocketVar)); socket == "" {
				return program.Usage("--socket is missing, and %s is not set: use the agent's --probe-socket", probeSocketVar)
			}

			return handover.AskProbe(cmd.Context(), cmd.OutOrStdout(), socket, ready)
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "the agent's --probe-socket (default: $"+probeSocketVar+")")
	cmd.Flags().BoolVar(&ready, "ready", false, "also ask whether the agent is ready")

	return cmd
}

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
