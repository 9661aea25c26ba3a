// Command evenkeel-hollow runs many nodes in one process against any API
// server, to rehearse rollouts: real agents above simulated kubelets. Flags and
// exit codes are here; nothing else is.
package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/program"
)

// version is set by the linker.
var version = "v0.0.0-unknown"

func main() {
	signal.Ignore(syscall.SIGPIPE) // a reader that has had enough is no reason to leave nodes behind
	os.Exit(program.Run(command()))
}

func command() *cobra.Command {
	o := &options{}
	root := program.Root(&cobra.Command{
		Use:   "evenkeel-hollow [flags]",
		Short: "Run many simulated nodes with real agents, to rehearse rollouts",
		Long: `evenkeel-hollow makes nodes that exist in the API alone: Nodes and their Leases,
each with evenkeel's real agent, and below that a kubelet that is simulated.
Roll out to them as to real ones, and choose what goes wrong.

The kubeconfig's user needs the rights to create, patch and delete Nodes and the
Leases of kube-node-lease, to delete NodeConfigs, and to impersonate users
(system:node:<name>) and the groups system:nodes and system:authenticated.
config/default must have been applied.

Hollow nodes are labelled and tainted evenkeel.dev/hollow=true. A Node without
that label is never touched. Where a controller-manager runs, give
--lease-period=10s, or it takes the nodes for dead.

Faults, --fault=KIND[,key=value]...; repeatable:
  reject       the dry run rejects the configuration
  crashloop    the kubelet exits soon after each start
  unhealthy    the kubelet is alive and never healthy
  notready     the kubelet is healthy, its Node is not Ready
  silent       the agent does not run, the Node stays Ready
  slow=5s      the kubelet takes that much longer to start
of these nodes (all, if nothing is said):
  share=10%    always the same ones
  node=NAME    repeatable
and with these configurations (any from the API, if nothing is said; a node's
local one always works):
  payload=TEXT            that contain it; write a comma as \,
  field=maxPods:7         with this value in this field

Exit codes: 0 stopped as asked, 1 error, 3 usage.`,
		Example: `  # 500 nodes in three zones:
  evenkeel-hollow --nodes=500 --zones=3 --label=node-restriction.kubernetes.io/pool=workers

  # One in ten crash-loops with any new configuration, and all of them with maxPods 7:
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
