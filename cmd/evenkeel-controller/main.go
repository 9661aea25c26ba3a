// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Command evenkeel-controller runs the rollout controller of
// internal/controller. It contains only flags, wiring and exit codes.
package main

import (
	"os"

	"github.com/spf13/cobra"
	_ "golang.org/x/crypto/x509roots/fallback" // the image has no CA certificates: these are used if the host has none

	"github.com/evenkeel/evenkeel/internal/program"
)

// version and commit are set by the linker.
var (
	version = "v0.0.0-unknown"
	commit  string
)

func main() { os.Exit(program.Run(command())) }

func command() *cobra.Command {
	o := &options{}
	root := program.Root(&cobra.Command{
		Use:   "evenkeel-controller [flags]",
		Short: "Roll out kubelet configurations to a fleet, and stop bad ones",
		Long: `evenkeel-controller rolls out the configuration of each NodeConfigRollout to the
nodes that it selects, step by step. It stores each version of the template as a
revision (an immutable ConfigMap in --namespace), assigns the revision to a few
nodes at a time in the specs of their NodeConfigs, watches what the agents
report, and stops or rolls back when too many nodes fail.

Its state is in the API: it can be killed at any time, and the next controller
continues. Run two replicas: the one that holds the Lease works, the other one
waits.

Metrics and probes are served at the addresses below, without authentication.
/readyz reports what is missing: a CRD that the API server does not serve, or a
permission.

Exit codes: 0 stopped as asked, 1 error (such as a lost Lease), 3 usage.`,
		Example: `  # In a cluster: two replicas with the permissions that they need
  kubectl apply -f install.yaml

  # On your machine, with the cluster of a kubeconfig
  evenkeel-controller --kubeconfig=$HOME/.kube/config --leader-elect=false -v=1`,
		Version: version,
		Args:    program.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	})
	o.bind(root.Flags())
	root.AddCommand(program.NewInfo("evenkeel-controller", version, commit).Command())

	return root
}
