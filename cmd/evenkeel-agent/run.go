// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/handover"
	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/node/supervisor"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/program"
)

// defaultGiveUp is several times as long as the rollback of a bad configuration
// takes.
const defaultGiveUp = 5 * time.Minute

// options are the agent's flags.
type options struct {
	dynamicConfigDir string
	initConfigDir    string
	flagsDropin      string
	nodeName         string
	kubeconfig       string
	remoteConfig     bool
	configSource     string
	configNamespace  string
	protectedFields  string
	listen           string
	localInvalid     string
	log              program.Log
	lockFile         string
	bootstrap        bool
	giveUp           time.Duration
	probeSocket      string

	agent agent.Options // those that are flags

	given func(flag string) bool // reports whether the command line has the flag
}

// The values of --config-source.
const (
	fromNodeConfig = "nodeconfig"
	fromConfigMap  = "configmap"
)

func (o *options) bind(f *pflag.FlagSet) {
	f.StringVar(&o.dynamicConfigDir, "dynamic-config-dir", "",
		"state directory: checkpoints, last-known-good, bad configurations; unset: dynamic configuration is off")
	f.StringVar(&o.initConfigDir, "init-config-dir", "",
		"directory with the node's own configuration, in a file named kubelet; it replaces the kubelet's --config")
	f.StringVar(&o.flagsDropin, "flags-dropin", "",
		"drop-in that replaces flags of the kubelet, written by evenkeel-agent flags --apply; if it cannot be used, the flags stay")
	f.StringVar(&o.nodeName, "node-name", "", "name of this node; if empty, the kubelet's --hostname-override, or else the host's name")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig for the API; if empty, the kubelet's own")
	f.BoolVar(&o.remoteConfig, "remote-config", true,
		"run configurations from the API; false: this node opts out and runs its local configuration")
	f.StringVar(&o.configSource, "config-source", fromNodeConfig,
		"advanced: source of the configuration: nodeconfig (usual), the one that this node's NodeConfig assigns, or configmap, the ConfigMap "+
			"kubelet-<node-name>")
	f.StringVar(&o.configNamespace, "config-namespace", metav1.NamespaceSystem,
		"namespace of the ConfigMap kubelet-<node-name>; the node needs permission to read it")
	o.bindProtected(f)
	f.StringVar(&o.listen, "listen", "127.0.0.1:10269", "address for /healthz, /metrics and /configz; empty: none")
	f.DurationVar(&o.agent.Limits.TrialDuration, "config-trial-duration", 10*time.Minute,
		"how long the kubelet must be observed healthy before its configuration becomes last-known-good")
	f.IntVar(&o.agent.Limits.CrashLoopThreshold, "crash-loop-threshold", 3, "unexpected restarts that a trial tolerates, 0 to 10")
	f.DurationVar(&o.agent.SyncTimeout, "sync-timeout", 2*time.Second, "how long a start waits for the assigned configuration")
	f.DurationVar(&o.agent.Limits.HealthTimeout, "health-timeout", 2*time.Minute,
		"how long the kubelet may be alive but not healthy in a trial")
	f.DurationVar(&o.agent.Limits.ReadyTimeout, "ready-timeout", 2*time.Minute,
		"how long a node that was Ready may be NotReady in a trial; allow several renewals of its Lease (one every 10s)")
	f.DurationVar(&o.agent.StopGrace, "stop-grace", 30*time.Second, "how long the kubelet has to stop before it is killed")
	f.StringVar(&o.agent.APILoss, "api-loss-rollback", "auto",
		"go back to last-known-good once if the API is lost soon after a change: on, off, or auto (where static pods run)")
	f.StringVar(&o.localInvalid, "local-invalid", "refuse",
		"what to do if the node's local configuration is invalid: refuse to start, or degrade to a proven configuration")
	f.StringVar(&o.agent.StartupTaint, "startup-taint", v1alpha1.TaintUnconfigured,
		"key of the taint with which new nodes register (effect NoSchedule); a node with it and without workload pods counts as drained; as "+
			"the controller's flag; empty: none")
	f.StringVar(&o.lockFile, "lock-file", "", "run a kubelet only while holding flock(2) on this file, as the kubelet's flag does: only one "+
		"agent or kubelet with this file runs; the others wait; the directory must exist")
	f.BoolVar(&o.bootstrap, "bootstrap", false, "exit with code 0 when another process opens --lock-file; for the bootstrap kubelet")
	f.DurationVar(&o.giveUp, "give-up-after", defaultGiveUp,
		"with --lock-file and without --bootstrap: how long no kubelet may be healthy before the agent releases the lock to a waiting agent "+
			"(exit code 9); 0: never (default: twice the --health-timeout if that is longer)")
	f.StringVar(&o.probeSocket, "probe-socket", "",
		"Unix socket that answers evenkeel-agent probe, also while the agent waits for the lock; empty: none")
	o.log.Bind(f)
}

func (o *options) bindProtected(f *pflag.FlagSet) {
	o.given = f.Changed
	f.StringVar(&o.protectedFields, "protected-fields", "",
		"fields that no payload may change from their local values: +maxPods,-tlsMinVersion changes the default list "+
			"(docs/protected-fields.md), a list without signs replaces it, an empty list protects nothing (default: the default list)")
}

// protection returns the fields that --protected-fields protects.
func (o *options) protection() (payload.Protection, error) {
	if !o.given("protected-fields") {
		return payload.DefaultProtection(), nil
	}

	p, err := payload.ParseProtection(o.protectedFields)
	if err != nil {
		return p, program.Usage("--protected-fields: %w", err)
	}

	return p, nil
}

// check returns what is wrong with the flags.
func (o *options) check() error {
	switch {
	case o.dynamicConfigDir != "" && !filepath.IsAbs(o.dynamicConfigDir):
		return program.Usage("--dynamic-config-dir must be an absolute path, not %q", o.dynamicConfigDir)
	case o.flagsDropin != "" && !filepath.IsAbs(o.flagsDropin):
		return program.Usage("--flags-dropin must be an absolute path, not %q", o.flagsDropin)
	case o.probeSocket != "" && (!filepath.IsAbs(o.probeSocket) || len(o.probeSocket) > supervisor.MaxSocketPath):
		return program.Usage("--probe-socket must be an absolute path of at most %d bytes, not %q", supervisor.MaxSocketPath, o.probeSocket)
	case o.configSource != fromNodeConfig && o.configSource != fromConfigMap:
		return program.Usage("--config-source must be nodeconfig or configmap, not %q", o.configSource)
	case o.configSource != fromConfigMap && o.given("config-namespace"):
		return program.Usage("--config-namespace is for --config-source=configmap only: a NodeConfig names the namespace itself")
	case o.given("give-up-after") && o.giveUp != 0 && o.giveUp <= o.agent.Limits.HealthTimeout:
		return program.Usage("--give-up-after (%s) must be longer than --health-timeout (%s): a trial must be able to roll back first", o.giveUp,
			o.agent.Limits.HealthTimeout)
	case o.agent.Limits.CrashLoopThreshold < 0 || o.agent.Limits.CrashLoopThreshold > 10:
		return program.Usage("--crash-loop-threshold must be 0 to 10, not %d", o.agent.Limits.CrashLoopThreshold)
	case o.agent.APILoss != "auto" && o.agent.APILoss != "on" && o.agent.APILoss != "off":
		return program.Usage("--api-loss-rollback must be auto, on or off, not %q", o.agent.APILoss)
	case o.agent.StartupTaint != "" && len(validation.IsQualifiedName(o.agent.StartupTaint)) > 0:
		return program.Usage("--startup-taint must be the key of a taint, not %q", o.agent.StartupTaint)
	case o.localInvalid != "refuse" && o.localInvalid != "degrade":
		return program.Usage("--local-invalid must be refuse or degrade, not %q", o.localInvalid)
	}

	for name, d := range map[string]time.Duration{
		"config-trial-duration": o.agent.Limits.TrialDuration, "sync-timeout": o.agent.SyncTimeout, "stop-grace": o.agent.StopGrace,
	} {
		if d < 0 {
			return program.Usage("--%s must not be negative: %s", name, d)
		}
	}

	for name, d := range map[string]time.Duration{"health-timeout": o.agent.Limits.HealthTimeout,
		"ready-timeout": o.agent.Limits.ReadyTimeout} {
		if d <= 0 {
			return program.Usage("--%s must be greater than 0, not %s", name, d)
		}
	}

	return o.log.Check()
}

// run runs the agent until ctx ends.
func run(ctx context.Context, o *options, argv []string) error {
	debug.SetGCPercent(50) // the default lets more garbage gather than the 3 MiB that live, and saves few collections
	err := start(ctx, o, argv)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil // stopped before there was a kubelet
	}

	return err
}

func start(ctx context.Context, o *options, argv []string) error {
	if err := o.check(); err != nil {
		return err
	}

	kubelet, err := component.ParseKubelet(argv)
	if err != nil {
		return program.Usage("%w", err)
	}

	contended, err := o.contention(kubelet)
	if err != nil {
		return err
	}

	node, err := o.node(kubelet)
	if err != nil {
		return err
	}

	own, err := o.own(node)
	if err != nil {
		return err
	}

	log := o.log.Logger().With("node", node)
	kubelet, stay := o.replaceFlags(kubelet)
	if stay != nil {
		log.Warn("flags of the kubelet were not replaced", "err", stay)
	}

	runDir, err := handover.OpenRuntimeDir()
	if err != nil {
		return err
	}

	defer runDir.Remove()
	host, err := o.hostKubelet(kubelet, filepath.Join(runDir.Path, "dry-run"), log)
	if err != nil {
		return err
	}

	supervisor.ProtectFromOOM(log)
	notifier, err := supervisor.NewNotifier(runDir.Path, log)
	if err != nil {
		return err
	}

	defer notifier.Close()

	service := &handover.Service{Notifier: notifier}
	service.Starting("validating the local configuration")
	defer service.Probe.Serve(o.probeSocket, log)()
	host.LockFile, host.Notifier = handover.KubeletLock(o.dynamicConfigDir, contended), notifier
	if contended.Path != "" {
		if err := o.prepare(ctx, host, log); err != nil {
			return err
		}
	}

	ao := o.agentOptions(node, service, contended.Mode, log)
	ao.Protected = host.DryRunner.Protected
	ended := func(err error) error { return err }
	if contended.Mode == v1alpha1.RunModeSelfHosted {
		id, err := o.attemptID(host, ao.BootID)
		if err != nil {
			return err
		}

		attempt := &handover.Attempt{Limit: o.giveUpAfter(), Lock: contended.Path, Dir: o.dynamicConfigDir, ID: id, Log: log}
		if err := attempt.CheckStart(time.Now()); err != nil {
			return exitCode(err)
		}

		ao.GiveUp = attempt.CheckTenure
		ended = func(err error) error { return attempt.Ended(err, time.Now()) }
	}

	holder := handover.Holder{Lock: contended, Dir: o.dynamicConfigDir, Service: service, Log: log}

	return exitCode(holder.Hold(ctx, func(ctx context.Context) error {
		if o.dynamicConfigDir != "" {
			if err := checkpoint.ClearRunning(atomicfile.OS{}, o.dynamicConfigDir); err != nil {
				log.Warn("cannot remove the previous agent's description of what runs; status may still show it", "err", err)
			}
		}

		return ended(o.serve(ctx, ao, host, node, own, service, log))
	}))
}

// hostKubelet returns this node's kubelet, with the local configuration and the
// protected fields of the flags.
func (o *options) hostKubelet(k *component.Kubelet, scratch string, log *slog.Logger) (*agent.HostKubelet, error) {
	initFile, err := o.initFile()
	if err != nil {
		return nil, err
	}

	h := component.NewDryRunner(k, scratch, log)
	if h.Protected, err = o.protection(); err != nil {
		return nil, err
	}

	return &agent.HostKubelet{Kubelet: k, DryRunner: h, InitFile: initFile, Log: log}, nil
}

// replaceFlags returns the kubelet with the drop-in of --flags-dropin instead
// of flags. If the drop-in cannot be used, the flags stay, and the error says
// why.
func (o *options) replaceFlags(k *component.Kubelet) (*component.Kubelet, error) {
	if o.flagsDropin == "" {
		return k, nil
	}

	initFile, err := o.initFile()
	if err == nil && initFile != "" {
		err = fmt.Errorf("%s of --init-config-dir replaces the kubelet's drop-ins", initFile)
	}

	replaced := k
	if err == nil {
		replaced, err = k.ReplaceFlags(o.flagsDropin)
	}
	if err != nil {
		return k, fmt.Errorf("--flags-dropin %s: %w", o.flagsDropin, err)
	}

	return replaced, nil
}

// prepare does what needs no lock, so that an agent that cannot run a kubelet
// never takes the lock from another agent.
func (o *options) prepare(ctx context.Context, host *agent.HostKubelet, log *slog.Logger) error {
	v, err := host.Prepare(ctx)
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case v.Outcome == component.Rejected && o.localInvalid != "degrade":
		return o.refuse(fmt.Errorf("%w: %s", agent.ErrLocalInvalid, v.Message), host.Kubelet)
	}

	log.Info("validated the local configuration", "verdict", v.Outcome.String(), "words", v.Message, "warnings", v.Warnings)

	return nil
}

// refuse returns the error of a node that has no fallback.
func (o *options) refuse(invalid error, k *component.Kubelet) error {
	return program.WithExitCode(exitLocalInvalid,
		fmt.Errorf("%w\nthe node has no other fallback: correct %s, or see --local-invalid", invalid, o.localFile(k)))
}

func (o *options) agentOptions(node string, service *handover.Service, mode v1alpha1.RunMode, log *slog.Logger) agent.Options {
	bootID, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		log.Warn("cannot read the boot ID; reboots are not detected", "err", err)
	}

	out := o.agent
	out.Limits.DegradeLocal = o.localInvalid == "degrade"
	out.AgentVersion, out.Metrics = version, agent.NewMetrics(node, version, program.NewInfo("evenkeel-agent", version, commit).Commit)
	out.Remote, out.RunMode, out.BootID = v1alpha1.RemoteConfigNodeConfig, mode, strings.TrimSpace(string(bootID))
	out.Log, out.Init, out.ShuttingDown = log, service, supervisor.ShuttingDown
	if o.dynamicConfigDir != "" {
		out.SaveRunning = func(about []byte) error {
			return checkpoint.SetRunning(atomicfile.OS{}, o.dynamicConfigDir, about)
		}
	}

	if !o.dynamic() {
		out.Remote = v1alpha1.RemoteConfigDisabled
		return out
	}

	if o.configSource == fromConfigMap {
		out.Remote = v1alpha1.RemoteConfigConfigMap
	}

	out.OpenStore = func(version string) (agent.Store, error) {
		warnIfOlder(o.dynamicConfigDir, version, log)
		return checkpoint.Open(atomicfile.OS{}, o.dynamicConfigDir, version, log)
	}

	return out
}

// dynamic reports whether configurations from the API may run.
func (o *options) dynamic() bool { return o.dynamicConfigDir != "" && o.remoteConfig }

// own returns the ConfigMap kubelet-<node-name>; zero if it is not the source.
func (o *options) own(node string) (source.NodeConfigMap, error) {
	if o.configSource != fromConfigMap {
		return source.NodeConfigMap{}, nil
	}

	own, err := source.NodeConfigMapOf(o.configNamespace, node)
	if err != nil {
		return own, program.Usage("--config-source=configmap: %w", err)
	}

	return own, nil
}

// serve runs the agent, with its clients and server, until ctx ends or the
// agent gives up.
func (o *options) serve(ctx context.Context, ao agent.Options, host *agent.HostKubelet, node string, own source.NodeConfigMap,
	service *handover.Service, log *slog.Logger) error {
	switch {
	case o.dynamicConfigDir == "":
		log.Warn("DYNAMIC CONFIGURATION IS OFF: --dynamic-config-dir is not set; this node runs its local configuration only")
	case !o.remoteConfig:
		log.Warn("this node has opted out of remote configuration (--remote-config=false); it runs its local configuration only")
	}

	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	parts := agent.Parts{Kubelet: host, SavedConfigs: &agent.SavedConfigs{}}
	if kubeconfig := cmp.Or(o.kubeconfig, host.Kubeconfig); kubeconfig != "" {
		client, err := source.NewClient(kubeconfig, "evenkeel-agent/"+version)
		if err != nil {
			return err
		}

		reporter := source.NewReporter(client, node, "evenkeel-agent", log)
		reporter.Hide(secretsOf(host))
		all.Go(func() { reporter.Run(background) })
		parts.Reporter, parts.Configz = reporter, agent.KubeletConfigz(client)
		if o.dynamic() {
			parts.Nodes = source.NewNodeWatch(client, node)
		}

		switch ao.Remote {
		case v1alpha1.RemoteConfigNodeConfig:
			intended := source.NewNodeConfigSource(client, node, parts.SavedConfigs, log)
			intended.ShowTo(reporter)
			all.Go(func() { intended.Run(background) })
			parts.Source, parts.Preflights = intended, intended
		case v1alpha1.RemoteConfigConfigMap:
			intended := source.NewConfigMapSource(client, own, parts.SavedConfigs, log)
			intended.ShowTo(reporter)
			all.Go(func() { intended.Run(background) })
			parts.Source = intended
		default:
			all.Go(func() { source.EnsureNodeConfig(background, client, node, log) })
		}
	}

	a := agent.New(ao, parts)
	service.Running(a)
	host.Notifier.Heed(a.Alive)
	if o.listen != "" {
		all.Go(func() { a.Serve(background, o.listen) })
	}

	err := a.Run(ctx)
	if errors.Is(err, agent.ErrLocalInvalid) {
		return o.refuse(err, host.Kubelet)
	}

	return err
}

// giveUpAfter returns --give-up-after. The default leaves a trial enough time
// to roll back.
func (o *options) giveUpAfter() time.Duration {
	if o.given("give-up-after") || o.giveUp == 0 {
		return o.giveUp
	}

	return max(o.giveUp, 2*o.agent.Limits.HealthTimeout)
}

// attemptID identifies this agent with its flags, its kubelet and the local
// configuration, in this boot.
func (o *options) attemptID(host *agent.HostKubelet, bootID string) (string, error) {
	identity, err := host.Identity()
	if err != nil {
		return "", err
	}

	return handover.AttemptID(append([]string{bootID, version, identity, host.LocalDigest()}, os.Args[1:]...)...), nil
}

// contention returns the node's lock that the flags of agent and kubelet name.
func (o *options) contention(k *component.Kubelet) (handover.Lock, error) {
	lock, err := handover.Flags{LockFile: o.lockFile, Bootstrap: o.bootstrap, Dir: o.dynamicConfigDir}.Lock(k)
	if err != nil {
		return lock, program.Usage("%w", err)
	}

	return lock, nil
}

// exitCode gives an error its exit code, if handover knows the cause.
func exitCode(err error) error {
	var failed *handover.Error
	if !errors.As(err, &failed) {
		return err
	}

	return program.WithExitCode(map[handover.Failure]int{
		handover.Unusable: exitLock, handover.Lost: exitLost, handover.DirectoryHeld: exitHeld, handover.GaveUp: exitGaveUp,
	}[failed.Failure], err)
}

func (o *options) node(k *component.Kubelet) (string, error) {
	host, err := os.Hostname()
	name := strings.ToLower(strings.TrimSpace(cmp.Or(o.nodeName, k.HostnameOverride, host))) // as the kubelet does
	if name == "" {
		return "", fmt.Errorf("cannot determine the node's name, set --node-name: %w", err)
	}

	return name, nil
}

// initFile is the node's own configuration, if it has one besides the
// kubelet's --config.
func (o *options) initFile() (string, error) {
	if o.initConfigDir == "" {
		return "", nil
	}
	if info, err := os.Stat(o.initConfigDir); err != nil || !info.IsDir() {
		return "", program.Usage("--init-config-dir %s is not a directory that can be read", o.initConfigDir)
	}

	file := filepath.Join(o.initConfigDir, "kubelet")
	switch _, err := os.Stat(file); {
	case errors.Is(err, os.ErrNotExist):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("--init-config-dir: %w", err)
	}

	return filepath.Abs(file)
}

func (o *options) localFile(k *component.Kubelet) string {
	if file, err := o.initFile(); err == nil && file != "" {
		return file
	}

	return cmp.Or(k.Config, "the kubelet's flags")
}

// warnIfOlder logs a warning if a newer kubelet has run on this node.
func warnIfOlder(dir, ours string, log *slog.Logger) {
	view, err := checkpoint.ReadOnly(atomicfile.OS{}, dir, "")
	if err != nil {
		return // the directory is opened next, and that error says what is wrong
	}

	if newest := view.NewerThan(ours); newest != "" {
		log.Warn("this kubelet is older than one that has run on this node: it validates the current configuration again; "+
			"the records of the newer version are kept, but do not apply to this one", "version", ours, "newer", newest)
	}
}

// secretsOf returns the secrets in a kubelet's command line and in its local
// configuration, as they are now.
func secretsOf(host *agent.HostKubelet) func(string) string {
	var configs []map[string]any
	for path := range host.LocalFiles() {
		if data, err := atomicfile.ReadBounded(path, 8<<20); err == nil && payload.CheckLimits(data) == nil {
			config, _ := payload.DecodeMapping(data)
			configs = append(configs, config)
		}
	}

	return payload.SecretsOf(host.Args, configs...)
}
