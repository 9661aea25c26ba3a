// Command evenkeel-controller rolls kubelet configurations out over a fleet.
// Flags, wiring and exit codes are here; nothing else is.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	_ "golang.org/x/crypto/x509roots/fallback" // the image has no certificates: where the host has none, these are trusted

	"github.com/evenkeel/evenkeel/internal/release"
)

// version and commit are set by the linker.
var (
	version = "v0.0.0-unknown"
	commit  string
)

// Exit codes, as evenkeel-agent has them.
const (
	exitError = 1
	exitUsage = 3
)

// exit is an error with an exit code of its own.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string { return e.err.Error() }
func (e *exit) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &exit{exitUsage, fmt.Errorf(format, args...)}
}

func main() {
	os.Exit(code())
}

// code runs the command line and returns its exit code.
func code() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err := command().ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "evenkeel-controller:", err)
	var coded *exit
	if errors.As(err, &coded) {
		return coded.code
	}
	return exitError
}

func command() *cobra.Command {
	o := &options{}
	root := &cobra.Command{
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
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	o.bind(root.Flags())
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage("%w; see %s --help", err, cmd.CommandPath())
	})
	root.AddCommand(release.Of("evenkeel-controller", version, commit).Command(noArgs))
	root.CompletionOptions.DisableDefaultCmd = true
	return root
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("%s takes no arguments, got %q; see evenkeel-controller --help", cmd.CommandPath(), args)
	}
	return nil
}
