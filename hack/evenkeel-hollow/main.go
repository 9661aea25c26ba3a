// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Command evenkeel-hollow runs many simulated nodes in one process, to rehearse
// rollouts: real agents with simulated kubelets, against any API server. This
// package has only flags and exit codes; the nodes are in testkit/hollow.
package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/program"
	"github.com/evenkeel/evenkeel/testkit/hollow"
)

// version is set by the linker.
var version = "v0.0.0-unknown"

func main() {
	signal.Ignore(syscall.SIGPIPE) // clean up the nodes even if the reader of the output has ended
	os.Exit(program.Run(command()))
}

func command() *cobra.Command {
	o := &options{Options: hollow.Options{Version: version}}
	root := program.Root(&cobra.Command{
		Use:   "evenkeel-hollow [flags]",
		Short: "Run many simulated nodes with real agents, to rehearse rollouts",
		Long: `evenkeel-hollow creates nodes that exist in the API only: Nodes and their Leases,
each with a real evenkeel agent and a simulated kubelet. You can roll out to them as
to real nodes, and choose which faults occur.

The kubeconfig's user needs the rights to create, patch and delete Nodes and the
Leases of kube-node-lease, to delete NodeConfigs, and to impersonate users
(system:node:<name>) and the groups system:nodes and system:authenticated.
Apply install.yaml first.

Hollow nodes are labelled and tainted evenkeel.dev/hollow=true. A Node without
that label is never changed. If the cluster has a controller-manager, use
--lease-period=10s; otherwise it marks the nodes as unreachable.

Only faults fail a trial: on a busy machine trials take longer, because the time in
which heartbeats are late does not count.

Faults, --fault=KIND[,key=value]...; repeatable:
  reject       the dry run rejects the configuration
  crashloop    the kubelet exits soon after each start
  unhealthy    the kubelet runs but is never healthy
  notready     the kubelet is healthy, but its Node is not Ready
  silent       the agent does not run, the Node stays Ready
  slow=5s      the kubelet needs this much longer to start
on these nodes (default: all):
  share=10%    this percentage, always the same nodes
  node=NAME    the node with this name; repeatable
with these configurations (default: all from the API; the local configuration
always works):
  payload=TEXT            configurations that contain TEXT; write a comma as \,
  field=maxPods:7         configurations with this value in this field

Exit codes: 0 stopped as requested, 1 error, 3 usage.`,
		Example: `  # Run 500 nodes in three zones:
  evenkeel-hollow --nodes=500 --zones=3 --label=node-restriction.kubernetes.io/pool=workers

  # 10% of the nodes crash-loop with any new configuration, and all nodes with maxPods 7:
  evenkeel-hollow --nodes=500 --fault=crashloop,share=10% --fault=crashloop,field=maxPods:7

  # 50 nodes join after a minute, 20 leave after two:
  evenkeel-hollow --nodes=500 --join=50@1m --leave=20@2m`,
		Version: version,
		Args:    program.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd.OutOrStdout()) },
	})
	o.bind(root.Flags())

	return root
}
