// Package cli is the commands of kubectl-evenkeel, and how they print.
//
// It must not decide anything that the controller or an agent decides: it writes intents into specs, and shows what others
// have written. Only main exits: Run returns the exit code.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/describe"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/program"
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
	genericclioptions.IOStreams // what is printed goes through printable.Writer
	// terminal is where Out goes, for the colors and movements of our own: what else is printed there must be made
	// printable first.
	terminal io.Writer
	config   *genericclioptions.ConfigFlags
	program  program.Info
	version  string // the program's
}

// Run runs the command line and returns its exit code.
func Run(ctx context.Context, info program.Info, args []string, streams genericclioptions.IOStreams) int {
	a := &app{IOStreams: streams, terminal: streams.Out, config: genericclioptions.NewConfigFlags(true), program: info, version: info.Version}
	a.Out, a.ErrOut = printable.NewWriter(streams.Out), printable.NewWriter(streams.ErrOut)
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitComplete
	}
	code := ExitError
	var e *exit
	if errors.As(err, &e) {
		code, err = e.code, e.err
	}
	if err != nil {
		fmt.Fprintln(a.ErrOut, "error:", describe.Printable(describe.WithAdvice(err, a.version).Error()))
	}
	return code
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-evenkeel",
		Short: "Roll kubelet configuration over a fleet, and see how it is",
		Long: `Roll kubelet configuration over a fleet, see how it is, and manage the component configurations of kubeadm.

Exit codes:
  0  done; of "rollout status": complete, or without -w still going
  1  wrong usage, or the API server refuses or does not answer
  2  the rollout is halted, rolled back, invalid or stuck; of "upgrade": something has to be migrated by hand; of "install" and "uninstall": a node has failed;
     of "assign": the node has refused the configuration or gone back
  3  --timeout is over, or an agent does not answer
  4  the rollout waits for somebody to approve ("rollout promote")
"config validate" and "doctor" have codes of their own.

kubectl's flags for the connection work here too: --server, --token, --as, --request-timeout and the others.
Output has colors on a terminal only, and none if NO_COLOR is set.`,
		Example: `  # Give one node a few fields over its own configuration, and wait until it has proven them
  kubectl evenkeel assign worker-17 -f more-pods.yaml --drop-in

  # Give the nodes of a pool a configuration, one node first
  kubectl evenkeel push workers -f kubelet.yaml --selector node-restriction.kubernetes.io/pool=workers --steps 1,pause,10%,100%

  # Watch it, and let it go on
  kubectl evenkeel rollout status workers -w
  kubectl evenkeel rollout promote workers

  # Complete the names of rollouts in this shell
  source <(kubectl-evenkeel completion bash)`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl evenkeel"},
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       a.version,
	}
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.ErrOut)
	connection := pflag.NewFlagSet("", pflag.ContinueOnError)
	a.config.Namespace = nil // nothing here is in one that could be chosen
	a.config.AddFlags(connection)
	connection.VisitAll(func(f *pflag.Flag) { f.Hidden = f.Name != "kubeconfig" && f.Name != "context" })
	root.PersistentFlags().AddFlagSet(connection)
	root.AddCommand(a.rolloutCommand(), a.pushCommand(), a.assignCommand(), a.nodesCommand(), a.nodeCommand(), a.installCommand(), a.uninstallCommand(),
		a.doctorCommand(), a.configCommand(), a.upgradeCommand(), a.versionCommand(), a.dashboardCommand())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion":
			group(cmd)
		case "help":
			cmd.Run, cmd.RunE = nil, help
		}
	}
	return root
}

// help is cobra's, but to ask for what there is not is wrong usage.
func help(cmd *cobra.Command, args []string) error {
	about, rest, err := cmd.Root().Find(args)
	if err != nil || len(rest) > 0 {
		return fmt.Errorf("there is no command %q: see kubectl evenkeel --help", strings.Join(args, " "))
	}
	about.InitDefaultHelpFlag()
	return about.Help()
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
	for _, add := range []func(*runtime.Scheme) error{
		v1alpha1.AddToScheme, corev1.AddToScheme, coordinationv1.AddToScheme, metav1.AddMetaToScheme, appsv1.AddToScheme, discoveryv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return client.NewWithWatch(config, client.Options{Scheme: scheme})
}

// interactive tells whether somebody could answer a question.
func (a *app) interactive() bool {
	f, ok := a.In.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// colored returns where to print what has colors, if there may be any: they do not pass Out.
func (a *app) colored() (w io.Writer, colors bool) {
	if _, _, ok := a.screen(); ok {
		return a.terminal, true
	}
	return a.Out, false
}

// screen returns the size of the terminal that output goes to; ok is false if it goes elsewhere, or if the environment
// asks for plain output.
func (a *app) screen() (width, height int, ok bool) {
	f, isFile := a.terminal.(*os.File)
	if !isFile || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return 0, 0, false
	}
	width, height, err := term.GetSize(int(f.Fd()))
	return width, height, err == nil
}
