// Package cli is the commands of kubectl-evenkeel, and how they print.
//
// It must not decide anything that the controller or an agent decides: it writes intents into specs, and shows what others
// have written. Only main exits: Run returns the exit code.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// Exit codes, for scripts.
const (
	ExitComplete = 0
	ExitError    = 1 // wrong usage, or the API server refuses or does not answer
	ExitHalted   = 2 // the rollout is halted or degraded
	ExitTimeout  = 3
	ExitApproval = 4 // the rollout waits for somebody to approve
)

// exit is an error with an exit code of its own. Without an error there is nothing to print: what is wrong has been shown.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}
func (e *exit) Unwrap() error { return e.err }

// app is what every command has.
type app struct {
	genericclioptions.IOStreams
	config  *genericclioptions.ConfigFlags
	version string
}

// Run runs the command line and returns its exit code.
func Run(ctx context.Context, version string, args []string, streams genericclioptions.IOStreams) int {
	a := &app{IOStreams: streams, config: genericclioptions.NewConfigFlags(true), version: version}
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var e *exit
	switch {
	case err == nil:
		return ExitComplete
	case errors.As(err, &e):
		if e.err != nil {
			fmt.Fprintln(a.ErrOut, "error:", e.err)
		}
		return e.code
	}
	fmt.Fprintln(a.ErrOut, "error:", err)
	return ExitError
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "kubectl-evenkeel",
		Short:         "Roll kubelet configuration over a fleet, and see how it is",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       a.version,
	}
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.ErrOut)
	a.config.AddFlags(root.PersistentFlags())
	root.AddCommand(a.rolloutCommand(), a.pushCommand(), a.nodesCommand(), a.nodeCommand(), a.configCommand())
	return root
}

// client returns a client for evenkeel's objects, nodes and ConfigMaps, as the kubeconfig and the flags say. It has no
// cache: lists are read in pages.
func (a *app) client() (client.WithWatch, error) {
	config, err := a.config.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config.UserAgent = "kubectl-evenkeel/" + a.version
	config.QPS, config.Burst = 50, 100
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	return client.NewWithWatch(config, client.Options{Scheme: scheme})
}

// interactive tells whether somebody could answer a question.
func (a *app) interactive() bool {
	f, ok := a.In.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

