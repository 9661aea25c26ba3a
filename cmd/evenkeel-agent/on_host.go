package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/node/hostns"
	"github.com/evenkeel/evenkeel/internal/node/install"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/program"
)

// exitNotOnHost says that on-host cannot get on the host.
const exitNotOnHost = 6

func onHostCommand() *cobra.Command {
	var o onHostOptions
	cmd := &cobra.Command{
		Use:   "on-host [flags] -- AGENT {[AGENT FLAGS] -- KUBELET [KUBELET FLAGS] | COMMAND [ARGS]}",
		Short: "In a pod: go on as an agent on the host, with programs of the image",
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
			programs := programsOf(args)
			if cmd.ArgsLenAtDash() != 0 || programs == nil {
				return program.Usage("on-host takes the agent's and the kubelet's command line: evenkeel-agent on-host [flags] -- AGENT [its flags] -- KUBELET [its flags]; or that of a command of the agent: -- AGENT COMMAND [its arguments]")
			}
			return o.run(cmd.Context(), args, programs)
		},
	}
	cmd.Flags().StringVar(&o.binDir, "bin-dir", "/var/lib/evenkeel-bin", "directory on the host for the copies of the programs")
	cmd.Flags().IntVar(&o.keep, "keep", 3, "how many copies of each to keep; what runs, or a unit names, stays anyway")
	return cmd
}

// startReturns is what the runtime gets to tell the node's kubelet that this container has started. A bootstrap kubelet that
// is asked for the node before it heard so leaves in the middle of that request, and the runtime takes the container away.
const startReturns = 2 * time.Second

type onHostOptions struct {
	binDir string
	keep   int
}

// programsOf are the places of the image's programs in a command line; none if it is not one of an agent that runs a kubelet
// or carries out a command.
func programsOf(argv []string) []int {
	second := slices.Index(argv, "--")
	if second != 0 && len(argv) > 1 && argv[1] != "" && argv[1][0] != '-' {
		return []int{0}
	}
	if second >= 1 && second+1 < len(argv) {
		return []int{0, second + 1}
	}
	return nil
}

// run becomes the agent of a command line, in which the programs of the image are at these places. It returns only if that
// fails.
func (o *onHostOptions) run(ctx context.Context, argv []string, at []int) error {
	begin := time.Now()
	switch {
	case !filepath.IsAbs(o.binDir):
		return program.Usage("--bin-dir must be an absolute path, not %q", o.binDir)
	case o.keep < 1:
		return program.Usage("--keep must be 1 or more, not %d", o.keep)
	}
	var programs []*hostns.Program
	for _, i := range at {
		p, err := hostns.OpenProgram(argv[i])
		if err != nil {
			return program.Usage("%w", err)
		}
		defer p.Close()
		programs = append(programs, p)
	}
	// From here on a signal ends the process, which leaves nothing half-done: caught, one that comes just before the
	// exec would be lost.
	signal.Reset(syscall.SIGTERM, syscall.SIGINT)
	if ctx.Err() != nil {
		return nil
	}
	if err := o.enter(); err != nil {
		return err
	}
	bin, err := hostns.OpenBin(filepath.Clean(o.binDir))
	if err != nil {
		return notOnHost(err)
	}
	defer bin.Close()
	argv = slices.Clone(argv)
	for k, i := range at {
		if argv[i], err = bin.Put(programs[k]); err != nil {
			return notOnHost(err)
		}
	}
	log := slog.New(slog.NewTextHandler(printable.NewWriter(os.Stderr), nil))
	needed, err := install.Named(unitDirs, installDir)
	if err == nil {
		err = bin.Prune(o.keep, needed, programs...)
	}
	if err != nil {
		log.Warn("cannot remove old copies of programs", "err", err)
	}
	said := []any{"agent", argv[0]}
	if len(at) > 1 {
		said = append(said, "kubelet", argv[at[1]])
	} else {
		said = append(said, "command", argv[1])
	}
	log.Info("going on on the host", said...)
	if len(at) > 1 { // it will ask for the node
		time.Sleep(startReturns - time.Since(begin))
	}
	err = syscall.Exec(argv[0], argv, hostns.Environ(os.Environ()))
	return notOnHost(fmt.Errorf("run %s on the host (it must need no libraries of the image's): %w", argv[0], err))
}

// enter takes this goroutine to the host.
func (o *onHostOptions) enter() error {
	if err := hostns.CheckPIDs(os.Getenv("KUBERNETES_SERVICE_HOST") != ""); err != nil {
		return notOnHost(err)
	}
	host, err := hostns.Open(hostns.First)
	if err != nil {
		return notOnHost(err)
	}
	defer host.Close()
	if err := host.Enter(); err != nil {
		return notOnHost(err)
	}
	return nil
}

func notOnHost(err error) error { return program.Coded(exitNotOnHost, err) }
