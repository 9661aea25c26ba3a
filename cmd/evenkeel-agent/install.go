// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/handover"
	"github.com/evenkeel/evenkeel/internal/node/hostns"
	"github.com/evenkeel/evenkeel/internal/node/install"
	"github.com/evenkeel/evenkeel/internal/node/lockfile"
	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/program"
)

// exitRolledBack is the exit code of install and uninstall after a rollback.
// Other commands use 2 as exitCouldNotTell.
const exitRolledBack = v1alpha1.InstallExitRolledBack

// Paths on a node.
const (
	systemBus      = "/run/dbus/system_bus_socket"
	systemdPrivate = "/run/systemd/private"
	unitDir        = "/etc/systemd/system"
	trialDir       = "/run/systemd/system"
	installDir     = "/var/lib/evenkeel-install"
	stateDir       = "/var/lib/evenkeel"
	selinuxEnforce = "/sys/fs/selinux/enforce"
)

// unitDirs are the directories with unit files that may name a copy of the
// agent.
var unitDirs = []string{unitDir, trialDir, "/usr/local/lib/systemd/system", "/usr/lib/systemd/system"}

// healthyFor is how long the kubelet must stay healthy for a change to succeed.
const healthyFor = 10 * time.Second

// turnInterval is how often a node that waits for its turn checks it. Each
// check runs the kubelet's dry run, which takes a second of CPU time.
const turnInterval = 30 * time.Second

// nodeChange are the flags of install and uninstall.
type nodeChange struct {
	request     install.Request
	binDir      string
	stay        bool
	probeSocket string
}

func (c *nodeChange) bind(f *pflag.FlagSet) {
	c.bindRestart(f)
	f.BoolVar(&c.request.DryRun, "dry-run", false, "print what would change, and change nothing")
	f.StringVar(&c.request.Attempt, "attempt", "", "name of this attempt: a failed attempt of this name is not repeated; in a pod, its UID")
	f.BoolVar(&c.stay, "stay", false, "after success, keep running until SIGTERM, without privileges; for the pods of a DaemonSet")
	f.StringVar(&c.probeSocket, "probe-socket", "", "Unix socket that answers evenkeel-agent probe; empty: none")
}

// bindRestart adds the flags of every restart of the kubelet.
func (c *nodeChange) bindRestart(f *pflag.FlagSet) {
	f.StringVar(&c.request.Unit, "unit", "kubelet.service", "the kubelet's unit")
	f.DurationVar(&c.request.Timing.Timeout, "timeout", 2*time.Minute,
		"how long the kubelet has to become healthy; after that, the change is rolled back")
	f.BoolVar(&c.request.AllowPodLoss, "allow-pod-loss", false,
		"restart the kubelet even if it would then end pods, for example because a node label changed after they were scheduled")
}

// bindBinDir adds the flag of commands that install the agent.
func (c *nodeChange) bindBinDir(f *pflag.FlagSet) {
	f.StringVar(&c.binDir, "bin-dir", "", "directory for the agent's program (default: its present directory if that is permanent, "+
		"otherwise /usr/local/bin, or /opt/bin if that is read-only)")
}

func installCommand() *cobra.Command {
	c := &nodeChange{}
	cmd := &cobra.Command{
		Use:   "install [flags] [-- AGENT FLAGS]",
		Short: "Run this node's kubelet under the agent; roll back if that fails",
		Long: `install makes evenkeel-agent the parent of the kubelet that systemd runs on this
node. It writes one drop-in, /etc/systemd/system/UNIT.d/90-evenkeel.conf, which
starts the agent with the existing command line of the unit. It reloads systemd,
restarts the unit, and waits until the kubelet is healthy and the Node is Ready.
If that does not happen within --timeout, it removes the drop-in and restarts the
plain kubelet. Until the kubelet is healthy the drop-in is in /run, as
90-evenkeel.trial.conf: a reboot discards it, and systemd removes it if install is
killed.

Nothing changes if the node is unhealthy, if the unit cannot be wrapped, if the
agent would refuse the kubelet or the flags, or if the restart would end pods. A
repeated install changes nothing,
or updates the drop-in. After an interruption, the next run completes the install,
or rolls it back and tries again.

AGENT FLAGS are put in front of the kubelet's command line; see evenkeel-agent
--help. Without --, the flags of an earlier install are kept. The default of
--dynamic-config-dir is ` + stateDir + `.

Exit codes: 0 done, or nothing to do, 1 error and nothing was changed, 2 tried and
rolled back, 3 usage.`,
		Example: `  evenkeel-agent install --dry-run
  evenkeel-agent install
  evenkeel-agent install -- --config-trial-duration=5m --protected-fields=+maxPods`,
		RunE: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			if dash > 0 || dash < 0 && len(args) > 0 {
				return program.Usage("install takes no arguments, got %q (flags of the agent go after --)", args[0])
			}

			c.request.Keep, c.request.Flags = dash < 0, args

			return c.run(cmd.Context(), cmd.OutOrStdout(), (*install.Host).Install)
		},
	}
	c.bind(cmd.Flags())
	cmd.Flags().StringVar(&c.request.Turn, "turn", "",
		"replace an existing agent only when the Node's annotation "+v1alpha1.AnnotationAgentTurn+
			" has this value; with --stay, wait for it; in a pod, its controller-revision-hash")
	c.bindBinDir(cmd.Flags())

	return cmd
}

// run changes the node and, with --stay, keeps running until ctx ends.
func (c *nodeChange) run(ctx context.Context, out io.Writer,
	do func(*install.Host, context.Context, install.Request) (string, error)) error {
	if c.request.Timing.Timeout <= 0 {
		return program.Usage("--timeout must be greater than 0, not %s", c.request.Timing.Timeout)
	}

	c.request.Timing.HealthyFor, c.request.Timing.Poll = min(healthyFor, c.request.Timing.Timeout/2), time.Second
	if c.request.Flags = withStateDir(c.request.Flags); !c.request.Keep {
		if _, err := parseAgentFlags(c.request.Flags); err != nil {
			return err
		}
	}

	p := &handover.Probe{}
	p.Set("changing the node", false)
	log := slog.New(slog.NewTextHandler(printable.NewWriter(os.Stderr), nil))
	defer p.Serve(c.probeSocket, log)()
	manager, err := install.Dial(ctx, systemBus, systemdPrivate)
	if err != nil {
		return err
	}

	defer manager.Close()
	host, err := c.host(manager, out)
	if err != nil {
		return err
	}

	words, err := do(host, ctx, c.request)
	for said := ""; c.stay && errors.Is(err, install.ErrNotItsTurn); words, err = do(host, ctx, c.request) {
		if said != err.Error() {
			said = err.Error()
			log.Info("waiting", "for", said)
			p.Set(said, false)
		}

		select {
		case <-ctx.Done():
			return nil
		case <-time.After(turnInterval):
		}
	}

	if err != nil {
		return withChangeCode(err)
	}
	if _, err := fmt.Fprintln(out, words); err != nil {
		return err
	}

	if c.stay && !c.request.DryRun {
		manager.Close() // a connection keeps the privileges with which it was opened
		if err := hostns.Drop(); err != nil {
			log.Warn("cannot drop the privileges of this process; it needs none from here on", "err", err)
		}

		p.Set(words, true)
		<-ctx.Done()
	}

	return nil
}

// withChangeCode gives the error of a change its exit code: never that of wrong
// usage, because the cause is on the node. A rollback has an exit code of its
// own, also with --stay, so that the installer sees that the attempt is over.
func withChangeCode(err error) error {
	if errors.Is(err, install.ErrTakenBack) {
		return program.WithExitCode(exitRolledBack, err)
	}

	return program.WithExitCode(program.ExitError, err)
}

// withStateDir adds the default --dynamic-config-dir, without which dynamic
// configuration is off.
func withStateDir(flags []string) []string {
	const name = "--dynamic-config-dir"
	if slices.ContainsFunc(flags, func(f string) bool { return f == name || strings.HasPrefix(f, name+"=") }) {
		return flags
	}

	return append([]string{name + "=" + stateDir}, flags...)
}

// parseAgentFlags reads flags as the agent would.
func parseAgentFlags(flags []string) (*options, error) {
	o := &options{}
	set := pflag.NewFlagSet("evenkeel-agent", pflag.ContinueOnError)
	set.Usage = func() {}
	o.bind(set)
	if err := set.Parse(flags); err != nil {
		return nil, program.Usage("flags of the agent: %w", err)
	}

	switch {
	case set.NArg() > 0:
		return nil, program.Usage("flags of the agent: %q is not a flag", set.Arg(0))
	case o.bootstrap || o.lockFile != "":
		return nil, program.Usage("flags of the agent: install does not support --lock-file and --bootstrap, which are for nodes with a " +
			"self-hosted kubelet")
	}

	if err := o.check(); err != nil {
		return nil, err
	}

	_, err := o.protection()

	return o, err
}

func (c *nodeChange) host(manager install.Manager, out io.Writer) (*install.Host, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot determine the path of this program: %w", err)
	}

	return &install.Host{
		Manager: manager,
		Check:   checkAgent,
		API: func(t install.Target) (install.API, error) {
			return source.NewClient(t.Kubeconfig, "evenkeel-agent/"+version)
		},
		Healthy: func(ctx context.Context, healthz string) error {
			health := component.NewHealth(healthz)
			defer health.Close()
			return health.Healthz(ctx)
		},
		Journal:  install.Journal,
		Volatile: func(dir string) bool { return install.Volatile(dir, "/proc/1/mountinfo") },
		Place:    install.Program{Path: self, BinDir: c.binDir, Enforce: selinuxEnforce}.Place,
		FS:       atomicfile.OS{}, UnitDir: unitDir, TrialDir: trialDir, StateDir: installDir, DefaultAgentDir: stateDir, Proc: "/proc", Out: out,
	}, nil
}

// running returns the configuration that a running agent's kubelet has; nil if
// no agent runs, or it does not say.
func running(dir string) component.Effective {
	if dir == "" || !lockfile.Held(checkpoint.AgentLock(dir)) {
		return nil
	}

	text, err := checkpoint.Running(atomicfile.OS{}, dir)
	if err != nil {
		return nil
	}

	var saved struct {
		Effective component.Effective `json:"effective"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&saved) != nil {
		return nil
	}

	return saved.Effective
}

// checkAgent makes the checks of the agent's start, and changes nothing. With
// plain it makes those of a kubelet without the agent, which has only its own
// file and no proven configuration to replace an invalid one.
func checkAgent(ctx context.Context, flags, argv []string, plain bool) (install.Checked, error) {
	var checked install.Checked
	o, err := parseAgentFlags(flags)
	if err != nil {
		return checked, err
	}
	if plain {
		o.initConfigDir, o.localInvalid, o.flagsDropin = "", "refuse", ""
	}

	k, err := component.ParseKubelet(argv)
	if err != nil {
		return checked, err
	}

	c, err := o.contention(k)
	if err != nil {
		return checked, err
	}
	if c.Bootstrap {
		return checked, errors.New("install does not support a kubelet with --exit-on-lock-contention: it releases its node to other processes")
	}

	checked.Limits = install.Limits{StopGrace: o.agent.StopGrace, HealthTimeout: o.agent.Limits.HealthTimeout, StateDir: o.dynamicConfigDir}
	if checked.Target.Node, err = o.node(k); err != nil {
		return checked, err
	}

	k, stay := o.replaceFlags(k)
	if stay != nil {
		checked.Warnings = append(checked.Warnings, "flags of the kubelet would not be replaced: "+stay.Error())
	}

	checked.Target.Kubeconfig = cmp.Or(o.kubeconfig, k.Kubeconfig)
	err = inScratch(func(scratch string) error {
		host, err := o.hostKubelet(k, scratch, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}

		v, err := host.Prepare(ctx)
		switch {
		case err != nil:
			return err
		case v.Outcome == component.Rejected && o.localInvalid != "degrade":
			return fmt.Errorf("its local configuration (%s) is rejected: %s", o.localFile(k), v.Message)
		case v.Outcome == component.CouldNotTell:
			return fmt.Errorf("its local configuration (%s) cannot be validated: %s", o.localFile(k), v.Message)
		}

		checked.Target.Healthz, checked.Warnings = k.HealthzURL(v.EffectiveOrAssumed()), append(checked.Warnings, v.Warnings...)
		if checked.Target.Kubeconfig != "" {
			checked.Losses = func(ctx context.Context) (string, error) {
				client, err := source.NewClient(checked.Target.Kubeconfig, "evenkeel-agent/"+version)
				if err != nil {
					return "", err
				}

				before, after := running(o.dynamicConfigDir), v.Effective
				if after == nil && v.Outcome == component.Accepted {
					return "", errors.New("the kubelet does not print its configuration")
				}
				if before != nil && !plain {
					after = before // the agent runs it again
				}

				return host.Losses(ctx, source.NewNodeWatch(client, checked.Target.Node), before, after)
			}
		}

		return nil
	})

	return checked, err
}

func uninstallCommand() *cobra.Command {
	c := &nodeChange{}
	cmd := &cobra.Command{
		Use:   "uninstall [flags]",
		Short: "Remove the agent: the kubelet runs as before",
		Long: `uninstall removes the drop-in that install has written, reloads systemd, restarts
the kubelet's unit, and waits until the kubelet is healthy. If it was healthy
before and is not healthy again within --timeout, the drop-in is restored.
On a node without the drop-in there is nothing to do.

Nothing changes if the restart would end pods. A drop-in that was edited, or
without which the kubelet would not start, is removed only with --force. The
agent's directory (` + stateDir + `) stays, unless --purge is set.

Exit codes: 0 done, or nothing to do, 1 error and nothing was changed, 2 tried and
restored, 3 usage.`,
		Example: `  evenkeel-agent uninstall
  evenkeel-agent uninstall --purge`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.run(cmd.Context(), cmd.OutOrStdout(), (*install.Host).Uninstall)
		},
	}
	c.bind(cmd.Flags())
	cmd.Flags().BoolVar(&c.request.Force, "force", false,
		"also remove an edited drop-in, or one that the kubelet needs to start; never roll back")
	cmd.Flags().BoolVar(&c.request.Purge, "purge", false, "also remove the agent's state directory")

	return cmd
}
