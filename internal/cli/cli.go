// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli runs the command line of kubectl-evenkeel: it builds the root
// command from the packages below it, one for each group of commands.
//
// It must not decide anything that the controller or an agent decides: commands
// write specs, and show what others have written into status. Only main exits:
// Run returns the exit code.
package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/cli/config"
	"github.com/evenkeel/evenkeel/internal/cli/dashboard"
	"github.com/evenkeel/evenkeel/internal/cli/doctor"
	"github.com/evenkeel/evenkeel/internal/cli/install"
	"github.com/evenkeel/evenkeel/internal/cli/node"
	"github.com/evenkeel/evenkeel/internal/cli/rollout"
	"github.com/evenkeel/evenkeel/internal/cli/support"
	"github.com/evenkeel/evenkeel/internal/cli/version"
	"github.com/evenkeel/evenkeel/internal/program"
)

// Run runs the command line and returns its exit code.
func Run(ctx context.Context, info program.Info, args []string, streams genericclioptions.IOStreams) int {
	env := command.NewEnv(info, streams)
	root := rootCommand(env)
	root.SetArgs(args)
	return env.Execute(ctx, root)
}

func rootCommand(env *command.Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-evenkeel",
		Short: "Roll out kubelet configuration to a fleet of nodes",
		Long: `Roll out kubelet configuration to a fleet of nodes, show its state, and manage kubeadm's component configurations.

Exit codes:
  0  success; "rollout status": complete, or in progress if -w is not set
  1  wrong usage, or the API server refuses the request or does not answer
  2  the rollout is halted, rolled back, invalid or stuck; "component": a configuration must be migrated by hand;
     "install" and "uninstall": a node failed; "assign": the node refused the configuration or rolled back;
     "preflight": a node refuses; "survey": a kubelet would not start
  3  --timeout expired, or an agent or a surveyed kubelet does not answer; "component plan": it is unknown whether a
     configuration must be migrated by hand
  4  the rollout waits for approval ("rollout approve")
"config validate" and "doctor" have other exit codes.

kubectl's connection flags work here too: --server, --token, --as, --request-timeout and others.
Output is colored on a terminal only, and never if NO_COLOR is set.`,
		Example: `  # Change a few fields on one node, and wait for the outcome
  kubectl evenkeel assign worker-17 -f more-pods.yaml --drop-in

  # Roll a configuration out to a pool, one node first
  kubectl evenkeel push workers -f kubelet.yaml --selector node-restriction.kubernetes.io/pool=workers --steps 1,pause,10%,100%

  # Watch the rollout, and approve the next steps
  kubectl evenkeel rollout status workers -w
  kubectl evenkeel rollout approve workers

  # Complete the names of rollouts in this shell
  source <(kubectl-evenkeel completion bash)`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl evenkeel"},
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       env.Program.Version,
	}
	command.Group(root)
	root.SetFlagErrorFunc(command.FlagError)
	root.SetIn(env.In)
	root.SetOut(env.Out)
	root.SetErr(env.ErrOut)
	connection := pflag.NewFlagSet("", pflag.ContinueOnError)
	env.Connection.Namespace = nil // no command reads objects of a namespace that the user chooses
	env.Connection.AddFlags(connection)
	connection.VisitAll(func(f *pflag.Flag) { f.Hidden = f.Name != "kubeconfig" && f.Name != "context" })
	root.PersistentFlags().AddFlagSet(connection)
	env.AddVerbosity(root.PersistentFlags())
	command.AddTitled(root, "Change and watch nodes:", rollout.Command(env), rollout.PushCommand(env), rollout.PreflightCommand(env),
		node.AssignCommand(env),
		node.NodesCommand(env), node.Command(env), dashboard.Command(env))
	command.AddTitled(root, "Install and diagnose:", install.Command(env), install.UninstallCommand(env), doctor.Command(env),
		support.Command(env), version.Command(env), config.SurveyCommand(env))
	command.AddTitled(root, "Compare and migrate configurations:", config.Command(env), config.ComponentCommand(env))
	for path, role := range map[string]string{
		"rollout": "evenkeel-operator", "rollout list": "evenkeel-view", "rollout status": "evenkeel-view", "push": "evenkeel-operator",
		"assign": "evenkeel-operator", "preflight": "evenkeel-preflight", "install": "evenkeel-installer", "uninstall": "evenkeel-installer",
	} {
		if cmd, _, err := root.Find(strings.Fields(path)); err == nil {
			command.NeedsRoles(cmd, role)
		}
	}

	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion":
			command.Group(cmd)
		case "help":
			cmd.Run, cmd.RunE = nil, help
		}
	}

	return root
}

// help is cobra's help, except that an unknown command is an error.
func help(cmd *cobra.Command, args []string) error {
	about, rest, err := cmd.Root().Find(args)
	if err != nil || len(rest) > 0 {
		if about != nil && len(rest) > 0 && about.HasSubCommands() {
			return command.UnknownCommand(about, rest[0])
		}

		return fmt.Errorf("unknown command %q: see kubectl evenkeel --help", strings.Join(args, " "))
	}

	about.InitDefaultHelpFlag()

	return about.Help()
}
