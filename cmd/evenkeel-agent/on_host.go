// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/hostns"
	"github.com/evenkeel/evenkeel/internal/node/install"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/program"
)

// exitNotOnHost is the exit code if on-host cannot enter the namespaces of the
// host.
const exitNotOnHost = v1alpha1.InstallExitNotOnHost

func onHostCommand() *cobra.Command {
	var o onHostOptions
	cmd := &cobra.Command{
		Use:   "on-host [flags] -- AGENT {[AGENT FLAGS] -- KUBELET [KUBELET FLAGS] | COMMAND [ARGS]}",
		Short: "In a pod: become an agent on the host, with the image's programs",
		Long: `on-host is the entrypoint of a pod with a self-hosted kubelet. It copies the agent
and the kubelet from the pod's image to --bin-dir on the host, enters the
namespaces of the host's first process, and becomes the agent there: the same
process, with the same process ID and the same standard output, in the cgroup of
its container. It therefore stops with its pod.

A command of the agent, such as install, needs no kubelet: only the agent is
copied. All arguments after the command belong to it, including a second --.

The pod needs hostPID: true and securityContext.privileged: true. It needs no
directory of the host. AGENT and KUBELET are absolute paths in the image, of
statically linked programs.

The environment is kept, except KUBERNETES_SERVICE_*, KUBERNETES_PORT* and PATH,
which becomes that of the host's services.

Exit codes: those of the agent; before the agent runs: 1 error, 3 usage, 6 cannot
enter the host's namespaces (the message names the permission that is missing).`,
		Example: `  evenkeel-agent on-host -- \
    /evenkeel-agent --dynamic-config-dir=/var/lib/evenkeel --lock-file=/run/evenkeel/lock/kubelet.lock -- \
    /kubelet --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml

  # Put the image's agent in front of the host's kubelet:
  evenkeel-agent on-host -- /evenkeel-agent install --stay`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 0 || !hostns.IsCommandLine(args) {
				return program.Usage("on-host takes the agent's and the kubelet's command line: evenkeel-agent on-host [flags] -- AGENT [its flags] " +
					"-- KUBELET [its flags]; or that of a command of the agent: -- AGENT COMMAND [its arguments]")
			}

			return o.run(cmd.Context(), args)
		},
	}
	cmd.Flags().StringVar(&o.binDir, "bin-dir", "/var/lib/evenkeel-bin", "directory on the host for the copies of the programs")
	cmd.Flags().IntVar(&o.keep, "keep", 3, "how many copies of each program to keep; copies in use, or named by a unit, are always kept")

	return cmd
}

type onHostOptions struct {
	binDir string
	keep   int
}

// run becomes the agent of a command line. It returns only if that fails, or if
// ctx ended before.
func (o *onHostOptions) run(ctx context.Context, args []string) error {
	switch {
	case !filepath.IsAbs(o.binDir):
		return program.Usage("--bin-dir must be an absolute path, not %q", o.binDir)
	case o.keep < 1:
		return program.Usage("--keep must be 1 or more, not %d", o.keep)
	}

	line, err := hostns.OpenCommandLine(args)
	if err != nil {
		return program.Usage("%w", err)
	}

	defer line.Close()
	// From here on a signal ends the process, which leaves nothing incomplete.
	// If signals were still caught, one just before the exec would be lost.
	signal.Reset(syscall.SIGTERM, syscall.SIGINT)
	if ctx.Err() != nil {
		return nil
	}

	return program.WithExitCode(exitNotOnHost, line.Become(hostns.Target{
		BinDir: o.binDir, Keep: o.keep, Log: slog.New(slog.NewTextHandler(printable.NewWriter(os.Stderr), nil)),
		Needed: func() (func(string) bool, error) { return install.ReferencedPrograms(unitDirs, installDir) },
	}))
}
