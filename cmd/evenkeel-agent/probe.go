package main

import (
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
		Long: `probe asks the agent that was given --probe-socket PATH, and prints its answer.
Without --socket it is $EVENKEEL_PROBE_SOCKET: the command line of an exec probe
cannot tell one pod from another.

An agent that waits for the node's lock is alive and, to --ready, ready: it has
checked all that it can and takes over as soon as the lock is free. So a rolling
update of a DaemonSet with maxSurge goes on from a new pod that waits to the old
one that is to end. An agent that has the lock is ready when its kubelet is
healthy; it is not alive when it has not decided anything for two minutes.

Exit codes: 0 it is, 1 it is not or does not answer, 3 usage.`,
		Example: `  evenkeel-agent probe --socket=/run/evenkeel/probe/bootstrap.sock --ready`,
		Args:    program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if socket == "" {
				socket = os.Getenv(probeSocketVar)
			}
			if socket == "" {
				return program.Usage("--socket is missing, and there is no %s: give the --probe-socket that the agent has", probeSocketVar)
			}
			return handover.AskProbe(cmd.Context(), cmd.OutOrStdout(), socket, ready)
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "the agent's --probe-socket (default: $"+probeSocketVar+")")
	cmd.Flags().BoolVar(&ready, "ready", false, "ask whether it is ready, too")
	return cmd
}
