package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/node/hostns"
	"github.com/evenkeel/evenkeel/internal/node/install"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/program"
)

// exitNotOnHost is the exit code if on-host cannot enter the namespaces of the host.
const exitNotOnHost = 6

func onHostCommand() *cobra.Command {
	var o onHostOptions
	cmd := &cobra.Command{
		Use:   "on-host [flags] -- AGENT {[AGENT FLAGS] -- KUBELET [KUBELET FLAGS] | COMMAND [ARGS]}",
		Short: "In a pod: become an agent on the host, with the image's programs",
		Long: `on-host is the first thing that a pod with a self-hosted kubelet runs. It copies
agent and kubelet of the pod's image to --bin-dir on the host, enters the
namespaces of the host's first process, and becomes the agent there: the same
process, with the same process ID and the same standard output, in the cgroup of
its container. So it stops with its pod.

An agent that is to carry out one of its commands, such as install, has no
kubelet of the image's: the agent alone is copied, and what follows the command
is the command's, another -- included.

The pod needs hostPID: true and securityContext.privileged: true. No directory
of the host has to be mounted. AGENT and KUBELET are absolute paths in the image,
of programs that need no libraries.

The environment is kept, but for KUBERNETES_SERVICE_* and KUBERNETES_PORT*, and
for PATH, which becomes that of the host's services.

Exit codes: those of the agent; before it runs 1 error, 3 usage, 6 it cannot get
on the host, and what the pod lacks for it.`,
		Example: `  evenkeel-agent on-host -- \
    /evenkeel-agent --dynamic-config-dir=/var/lib/evenkeel --lock-file=/run/evenkeel/lock/kubelet.lock -- \
    /kubelet --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml

  # The agent of the image puts itself in front of the kubelet that the host has:
  evenkeel-agent on-host -- /evenkeel-agent install --stay`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 0 || !hostns.IsCommandLine(args) {
				return program.Usage("on-host takes the agent's and the kubelet's command line: evenkeel-agent on-host [flags] -- AGENT [its flags] -- KUBELET [its flags]; or that of a command of the agent: -- AGENT COMMAND [its arguments]")
			}
			return o.run(cmd.Context(), args)
		},
	}
	cmd.Flags().StringVar(&o.binDir, "bin-dir", "/var/lib/evenkeel-bin", "directory on the host for the copies of the programs")
	cmd.Flags().IntVar(&o.keep, "keep", 3, "how many copies of each to keep; what runs, or a unit names, stays anyway")
	return cmd
}

type onHostOptions struct {
	binDir string
	keep   int
}

// run becomes the agent of a command line. It returns only if that fails, or if ctx has ended before.
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
	// From here on a signal ends the process, which leaves nothing half-done: a signal that was caught just before the exec
	// would be lost.
	signal.Reset(syscall.SIGTERM, syscall.SIGINT)
	if ctx.Err() != nil {
		return nil
	}
	return program.WithExitCode(exitNotOnHost, line.Become(hostns.Target{
		BinDir: o.binDir, Keep: o.keep, Log: slog.New(slog.NewTextHandler(printable.NewWriter(os.Stderr), nil)),
		Needed: func() (func(string) bool, error) { return install.ReferencedPrograms(unitDirs, installDir) },
	}))
}
