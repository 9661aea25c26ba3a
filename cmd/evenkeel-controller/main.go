// Command evenkeel-controller rolls kubelet configurations out over a fleet.
// Flags, wiring and exit codes are here; nothing else is.
package main

import (
	"os"

	"github.com/spf13/cobra"
	_ "golang.org/x/crypto/x509roots/fallback" // the image has no certificates: where the host has none, these are trusted

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
		Short: "Roll kubelet configurations out over a fleet, and stop when they are bad",
		Long: `evenkeel-controller gives the nodes that a NodeConfigRollout selects its
configuration, step by step: it makes each content of the template a revision
(an immutable ConfigMap in --namespace), assigns it to a few nodes at a time by
writing their NodeConfigs' specs, watches what the nodes' agents report, and
stops, or goes back, when too many fail.

All that it must remember is in the API: it can be killed at any time, and the
next one carries on. Run two; the one that holds the lease works, the other one
waits.

Metrics and probes are served at the addresses below, without authentication.
/readyz says what is missing: a CRD that the API server does not serve, a right
that the controller does not have.

Exit codes: 0 stopped as asked, 1 error (such as the lease being lost), 3 usage.`,
		Example: `  # In a cluster: two replicas, with exactly the rights that they need
  kubectl apply -k config/default

  # On your own machine, against the cluster of a kubeconfig
  evenkeel-controller --kubeconfig=$HOME/.kube/config --leader-elect=false -v=1`,
		Version: version,
		Args:    program.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	})
	o.bind(root.Flags())
	root.AddCommand(program.NewInfo("evenkeel-controller", version, commit).Command())
	return root
}
