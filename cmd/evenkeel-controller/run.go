// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/controller"
	"github.com/evenkeel/evenkeel/internal/controller/gate"
	"github.com/evenkeel/evenkeel/internal/controller/notify"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/program"
)

// options are the flags. Those of the controller are bound to its options.
type options struct {
	controller.Options
	kubeconfig         string
	notify, prometheus []string
	log                program.Log
}

func (o *options) bind(f *pflag.FlagSet) {
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "path of a kubeconfig; default: $KUBECONFIG, else the pod's ServiceAccount")
	f.StringVar(&o.Namespace, "namespace", v1alpha1.SystemNamespace,
		"namespace of the revisions' ConfigMaps and of the Lease; nodes need permission to read ConfigMaps there")
	f.StringVar(&o.NodeName, "node-name", os.Getenv("NODE_NAME"),
		"name of the node that this controller runs on, which is updated last (default: $NODE_NAME)")
	f.BoolVar(&o.LeaderElection, "leader-elect", true,
		"work only while holding the Lease evenkeel-controller; if false, no other controller may run")
	f.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", controller.DefaultLeaseDuration,
		"how long the Lease is valid without renewal; its holder stops after two thirds of this time")
	f.StringVar(&o.MetricsAddress, "metrics-bind-address", ":8443", "address for /metrics; 0: none")
	f.BoolVar(&o.MetricsSecure, "metrics-secure", true,
		"serve /metrics with TLS, only to clients that the API server knows and that may get /metrics; if false, with plain HTTP to everyone")
	f.StringVar(&o.ProbeAddress, "health-probe-bind-address", ":8081", "address for /healthz and /readyz; 0: none")
	f.DurationVar(&o.AgentTimeout, "agent-timeout", fleet.DefaultSettings.AgentTimeout.Duration,
		"how long an agent may take to accept an assignment while the Node is Ready; then the assignment is taken back; should be at least "+
			"50s: an agent can take 47s to come back after an outage")
	f.DurationVar(&o.NotReadyGrace, "not-ready-grace", fleet.DefaultSettings.NotReadyGrace.Duration,
		"how long a node may be NotReady after an assignment before it counts as failed")
	f.StringArrayVar(&o.prometheus, "prometheus-server", nil,
		"Prometheus server that gates of rollouts can query: name=URL[,token-file=FILE][,ca-file=FILE]; repeatable, at most 20")
	f.IntVar(&o.Writers, "writers", controller.DefaultWriters, "number of parallel writes to NodeConfigs")
	f.StringSliceVar(&o.Maintenance, "maintenance", nil,
		"key of a taint or type of a Node condition that announces maintenance of a node, besides the usual ones: such nodes are not updated; "+
			"may be repeated")
	f.StringVar(&o.Startup.Key, "startup-taint", v1alpha1.TaintUnconfigured,
		"key of the taint with which kubelets register (effect NoSchedule), and which is removed when the node runs its configuration; empty: "+
			"none")
	f.DurationVar(&o.Startup.Times.Grace, "startup-grace", time.Minute,
		"how long a new node that no rollout selects keeps the startup taint: labels often arrive after the Node")
	f.DurationVar(&o.Startup.Times.Deadline, "startup-deadline", 10*time.Minute,
		"when the startup taint is removed from a new node in any case; shorter than the time that the cluster's autoscaler gives a node to "+
			"start")
	f.StringArrayVar(&o.notify, "notify", nil, "webhook that is told about rollouts, as NAME=URL[,key-file=FILE][,ca-file=FILE]; may be "+
		"repeated; default: none")
	o.log.Bind(f)
}

// shortestLease is long enough for a write to end between the loss of the Lease
// and the next leader.
const shortestLease = 15 * time.Second

// maxMaintenance is how many keys and types the status of a rollout can hold.
const maxMaintenance = 50

// check validates the flags.
func (o *options) check() error {
	switch {
	case len(validation.IsDNS1123Label(o.Namespace)) > 0:
		return program.Usage("--namespace must be the name of a namespace, not %q", o.Namespace)
	case o.LeaderElection && o.LeaseDuration < shortestLease:
		return program.Usage("--leader-elect-lease-duration must be at least %s, not %s", shortestLease, o.LeaseDuration)
	case o.AgentTimeout <= 0:
		return program.Usage("--agent-timeout must be greater than 0, not %s", o.AgentTimeout)
	case o.NotReadyGrace < 0:
		return program.Usage("--not-ready-grace must be at least 0, not %s", o.NotReadyGrace)
	case o.Writers < 1 || o.Writers > 1000:
		return program.Usage("--writers must be 1 to 1000, not %d", o.Writers)
	}

	for _, key := range o.Maintenance {
		if err := fleet.CheckMaintenanceKey(key); err != nil {
			return program.Usage("--maintenance %w", err)
		}
	}

	if err := fleet.CheckStartupTaint(o.Startup.Key); err != nil {
		return program.Usage("--startup-taint %w", err)
	}
	if slices.Contains(o.Maintenance, o.Startup.Key) {
		return program.Usage("--maintenance must not be %s, which is the --startup-taint", o.Startup.Key)
	}
	if t := o.Startup.Times; t.Grace < 0 || t.Deadline <= t.Grace {
		return program.Usage("--startup-grace (%s) must be at least 0 and shorter than --startup-deadline (%s)", t.Grace, t.Deadline)
	}
	if len(o.Maintenance) > maxMaintenance {
		return program.Usage("--maintenance may be given at most %d times, not %d", maxMaintenance, len(o.Maintenance))
	}

	for flag, address := range map[string]string{"metrics-bind-address": o.MetricsAddress, "health-probe-bind-address": o.ProbeAddress} {
		if _, _, err := net.SplitHostPort(address); address != "0" && err != nil {
			return program.Usage("--%s must be host:port, :port or 0, not %q", flag, address)
		}
	}

	if err := o.parseReceivers(); err != nil {
		return err
	}
	if err := o.parseServers(); err != nil {
		return err
	}

	return o.log.Check()
}

func (o *options) parseReceivers() error {
	for i, text := range o.notify {
		r, err := notify.ParseReceiver(text)
		if err != nil { // without the text: the URL can contain a secret
			return program.Usage("--notify, number %d: %v", i+1, err)
		}
		if slices.ContainsFunc(o.Notify, func(x notify.Receiver) bool { return x.Name == r.Name }) {
			return program.Usage("--notify: two receivers have the name %s", r.Name)
		}

		o.Notify = append(o.Notify, r)
	}

	return nil
}

// maxServers is how many names the status of a rollout can hold.
const maxServers = 20

func (o *options) parseServers() error {
	if len(o.prometheus) > maxServers {
		return program.Usage("--prometheus-server may be given at most %d times, not %d", maxServers, len(o.prometheus))
	}

	for _, text := range o.prometheus {
		s, err := gate.ParseServer(text)
		if err != nil {
			return program.Usage("--prometheus-server: %v", err)
		}
		if slices.ContainsFunc(o.PrometheusServers, func(other gate.Server) bool { return other.Name == s.Name }) {
			return program.Usage("--prometheus-server: two servers have the name %s", s.Name)
		}

		o.PrometheusServers = append(o.PrometheusServers, s)
	}

	return nil
}

func (o *options) config() (*rest.Config, error) {
	o.kubeconfig = cmp.Or(o.kubeconfig, os.Getenv(clientcmd.RecommendedConfigPathEnvVar))
	if o.kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("no --kubeconfig, no $KUBECONFIG, and not in a pod: %w", err)
		}

		return config, nil
	}

	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}

	return config, nil
}

func run(ctx context.Context, o *options) error {
	if err := o.check(); err != nil {
		return err
	}

	config, err := o.config()
	if err != nil {
		return err
	}

	config.UserAgent = "evenkeel-controller/" + version
	log := o.log.Logger()
	// The libraries use the same logger.
	libraries := logr.FromSlogHandler(log.Handler())
	ctrllog.SetLogger(libraries)
	klog.SetLogger(libraries)
	o.Version, o.Commit = version, program.NewInfo("evenkeel-controller", version, commit).Commit
	o.Log, o.Registry = log, metrics.Registry
	c, err := controller.New(config, o.Options)
	if err != nil {
		return err
	}

	log.Info("evenkeel-controller", "version", version, "namespace", o.Namespace, "node", o.NodeName)
	if err := c.Run(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("stopped: %w", err)
	}

	return nil
}
