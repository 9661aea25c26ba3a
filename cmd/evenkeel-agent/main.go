// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Command evenkeel-agent runs a node's stock kubelet and gives it live, safe
// configuration. Flags, wiring and exit codes are here; nothing else is.
package main

import (
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/program"
)

// version and commit are set by the linker.
var (
	version = "v0.0.0-unknown"
	commit  string
)

// Exit codes beside those of every program. check uses 1 and 2 for its
// verdicts; 6 is what on-host has before it becomes an agent.
const (
	exitCouldNotTell = 2
	exitLocalInvalid = 4
	exitHeld         = 5
	exitLock         = 7
	exitLost         = 8
	exitGaveUp       = 9
)

func main() { os.Exit(program.Run(command())) }

func command() *cobra.Command {
	o := &options{}
	root := program.Root(&cobra.Command{
		Use:   "evenkeel-agent [flags] -- KUBELET [KUBELET FLAGS]",
		Short: "Run a stock kubelet with live, safe configuration",
		Long: `evenkeel-agent starts the node's stock kubelet with its existing command line, and
gives it the configuration that the node's NodeConfig, or a ConfigMap of the node,
assigns. The same kubelet binary validates a configuration before the running
kubelet is changed. Each configuration runs on trial; if it fails, the node rolls
back by itself, without network.

Put the agent in front of the kubelet's command line; nothing else changes.

Exit codes: 0 stopped as requested, 1 error, 3 usage, 4 the node's local
configuration is invalid, 5 another agent uses --dynamic-config-dir.
With --lock-file also: 0 left the node to another kubelet (--bootstrap), 7 the lock
file cannot be used, 8 the lock file was replaced and another process holds the new
file, 9 no kubelet was healthy for --give-up-after and another agent waits for
the node.`,
		Example: `  # The command line of a kubeadm node's unit:
  evenkeel-agent --dynamic-config-dir=/var/lib/evenkeel -- \
    /usr/bin/kubelet --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml

  # Run the kubelet until a self-hosted kubelet with the same --lock-file starts:
  evenkeel-agent --dynamic-config-dir=/var/lib/evenkeel --lock-file=/run/evenkeel/lock/kubelet.lock --bootstrap -- \
    /usr/bin/kubelet --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml

  # Show what runs, and why, without the API:
  evenkeel-agent status --dynamic-config-dir=/var/lib/evenkeel

  # Check whether this node accepts a configuration:
  evenkeel-agent check kubelet.yaml -- /usr/bin/kubelet --config=/var/lib/kubelet/config.yaml`,
		Version: version,
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if dash := cmd.ArgsLenAtDash(); len(args) > 0 && dash != 0 {
				return program.Usage("unknown command %q; see evenkeel-agent --help (the kubelet's command line goes after --)", args[0])
			}
			if len(args) == 0 {
				return program.Usage("the kubelet's command line is missing: evenkeel-agent [flags] -- /usr/bin/kubelet [its flags]")
			}

			return run(cmd.Context(), o, args)
		},
	})
	o.bind(root.Flags())
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		hint := ""
		if name := cmd.Name(); (name == "evenkeel-agent" || name == "check" || name == "flags") && !slices.Contains(os.Args, "--") {
			hint = " (the kubelet's command line goes after --)"
		}

		return program.Usage("%w; see %s --help%s", err, cmd.CommandPath(), hint)
	})
	root.AddCommand(statusCommand(), checkCommand(), flagsCommand(), forgetCommand(), installCommand(), uninstallCommand(),
		onHostCommand(),
		probeCommand(), startProbeCommand(), program.NewInfo("evenkeel-agent", version, commit).Command())

	return root
}
