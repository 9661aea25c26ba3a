// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/controller/gate"
	"github.com/evenkeel/evenkeel/internal/controller/notify"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// Options configure a controller. Log and Registry are required.
type Options struct {
	Namespace string // of revisions and of the Lease; empty: evenkeel-system
	NodeName  string // of the node that the controller runs on: it is updated last
	Version   string // of the program, for the Lease and a metric
	Commit    string // of the program, for the metric
	// AgentTimeout and NotReadyGrace are those of fleet.DefaultSettings if they
	// are 0.
	AgentTimeout, NotReadyGrace time.Duration
	Writers                     int // parallel writes; 0: DefaultWriters
	// Maintenance are keys of taints and types of Node conditions, besides the
	// usual ones, that announce maintenance of a node.
	Maintenance []string
	Startup     StartupTaint
	Tick        time.Duration // from a change to the step; 0: DefaultTick

	Notify []notify.Receiver // of notifications about rollouts

	LeaderElection bool
	LeaseDuration  time.Duration // 0: DefaultLeaseDuration; a leader that cannot renew for two thirds of it stops

	MetricsAddress, ProbeAddress string // "0": none
	MetricsSecure                bool   // serve metrics with TLS, to clients that may get /metrics

	PrometheusServers []gate.Server // that gates can name

	Log      *slog.Logger
	Registry prometheus.Registerer // where the metrics go
}

// Defaults of Options.
const (
	DefaultWriters       = 32
	DefaultTick          = 200 * time.Millisecond
	DefaultLeaseDuration = 15 * time.Second
)

// Controller rolls out kubelet configurations.
type Controller struct {
	settings v1alpha1.RolloutController
	writers  int
	log      *slog.Logger

	manager  manager.Manager
	watching client.WithWatch
	client   client.Client // without a cache
	recorder events.EventRecorder
	metrics  *meters
	notifier *notify.Notifier
	election *election   // nil: the controller does not wait for the Lease
	silent   func() bool // reports whether the API server has not answered for a while
	// formerRenewal returns when an earlier leader renewed the Lease last;
	// zero: not known.
	formerRenewal func() time.Time
	term          int64 // of this leader; 0: without an election

	kubernetes kubernetes.Interface // to drain nodes
	passes     sync.WaitGroup       // eviction passes, and passes over start probes

	mayDrain, readPods permission

	startProbes probePermission

	measurements measurements

	startupTaint  StartupTaint
	startupRights startupRights

	fleet       *cache
	clock       *clock
	config      *rest.Config
	http        *http.Client // to read the API server's time
	sources     *templateSources
	watches     *syncState
	watchErrors *problems      // by kind
	writeErrors *problems      // by rollout
	nodes       []rollout.Node // of the last plan or preflight step; the memory is used again

	preflightWritten time.Time // when the status of a NodeConfigPreflight was last written; of the loop
}

// New returns a controller and makes no request yet. It fails if the options
// are invalid, an address is in use, or no client can be made from config.
func New(config *rest.Config, o Options) (*Controller, error) {
	o.Namespace = cmp.Or(o.Namespace, v1alpha1.SystemNamespace)
	lease := cmp.Or(o.LeaseDuration, DefaultLeaseDuration)
	renew, retry := lease*2/3, lease*2/15
	settings := fleet.DefaultSettings
	settings.Namespace, settings.Maintenance = o.Namespace, o.Maintenance
	settings.AgentTimeout.Duration = cmp.Or(o.AgentTimeout, settings.AgentTimeout.Duration)
	settings.NotReadyGrace.Duration = cmp.Or(o.NotReadyGrace, settings.NotReadyGrace.Duration)
	c := &Controller{
		settings: settings, writers: cmp.Or(o.Writers, DefaultWriters),
		watches:      newSyncState(kindRollouts, kindConfigs, kindNodes, kindRevisions),
		startupTaint: o.Startup, log: o.Log, fleet: newCache(o.NodeName, cmp.Or(o.Tick, DefaultTick)), clock: newClock(),
	}
	c.fleet.now, c.fleet.maintenance, c.fleet.startupKey, c.fleet.agent = c.clock.now, o.Maintenance, o.Startup.Key,
		c.settings.AgentTimeout.Duration
	c.watchErrors = c.newProblems("cannot watch", "what", func(string) { c.fleet.endOutage(time.Time{}) })
	c.writeErrors = c.newProblems("cannot write", "rollout", func(string) {})
	var err error
	if c.metrics, err = newMeters(o.Registry, o.Version, o.Commit,
		newCollector(c.fleet, o.Startup.Times.Deadline, c.watchErrors, c.writeErrors)); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}

	if c.notifier, err = notify.New(o.Notify, "evenkeel-controller/"+o.Version, o.Log, o.Registry); err != nil {
		return nil, err
	}
	if c.measurements.servers, err = gate.New(o.PrometheusServers, rollout.GateTimeout); err != nil {
		return nil, err
	}

	c.settings.PrometheusServers = c.measurements.servers.Names()
	c.metrics.expectEvaluations(c.settings.PrometheusServers)
	c.measurements.metrics = c.metrics
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), policyv1.AddToScheme(scheme),
		authorizationv1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("make a scheme: %w", err)
	}

	config = rest.CopyConfig(config)
	config.QPS = -1 // no limit: the number of writers and the API server limit the requests
	// The election has its own connections, so that load does not lose the
	// Lease.
	election := rest.CopyConfig(config)
	election.QPS, election.Burst = 5, 10
	if election.Dial == nil {
		election.Dial = (&net.Dialer{Timeout: renew / 2, KeepAlive: lease}).DialContext
	}

	lock, err := newElection(election, o.Namespace, o.Version, lease, renew)
	if err != nil {
		return nil, err
	}

	options := manager.Options{
		Scheme: scheme, MapperProvider: mapper, Logger: logr.FromSlogHandler(o.Log.Handler()),
		LeaderElectionID:              v1alpha1.ControllerLease, // the name of its metric
		LeaderElectionReleaseOnCancel: true, LeaseDuration: &lease, RenewDeadline: &renew, RetryPeriod: &retry,
		Metrics: metricsserver.Options{BindAddress: o.MetricsAddress},
	}
	if o.MetricsSecure {
		options.Metrics.SecureServing, options.Metrics.FilterProvider = true, filters.WithAuthenticationAndAuthorization
		options.Metrics.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }}
	}

	lock.back = func(from time.Duration) {
		c.fleet.endOutage(c.fleet.now().Add(-from))
	}
	c.silent, c.formerRenewal, lock.now = lock.silent, lock.formerRenewal, c.clock.now
	if o.LeaderElection {
		c.election = lock
		options.LeaderElection, options.LeaderElectionResourceLockInterface = true, lock
	}

	if c.manager, err = manager.New(config, options); err != nil {
		return nil, fmt.Errorf("make a manager: %w", err)
	}

	//lint:ignore SA1019 the elector takes no other recorder yet
	lock.lease.LockConfig.EventRecorder = c.manager.GetEventRecorderFor(lock.Identity()) //nolint:staticcheck // as above
	if !o.LeaderElection {
		err = c.manager.Add(manager.RunnableFunc(func(ctx context.Context) error {
			return lock.renewWhileFree(ctx, leaderelection.LeaderElectionConfig{LeaseDuration: lease, RenewDeadline: renew, RetryPeriod: retry})
		}))
		if err != nil {
			return nil, fmt.Errorf("add the renewal of the Lease: %w", err)
		}
	}

	c.recorder = c.manager.GetEventRecorder("evenkeel-controller")
	if err := c.connect(config, scheme); err != nil {
		return nil, err
	}

	c.sources = newTemplateSources(c.watching, c.fleet.scheduleAll)

	return c, errors.Join(c.manager.Add(manager.RunnableFunc(c.lead)), c.serveProbes(o.ProbeAddress))
}

// connect makes the clients for writes, for drains, for the API server's time,
// and for watches.
func (c *Controller) connect(config *rest.Config, scheme *runtime.Scheme) error {
	writing := rest.CopyConfig(config)
	writing.Timeout = writeTimeout
	direct, err := client.New(writing, client.Options{Scheme: scheme, Mapper: c.manager.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}

	c.config = writing
	if c.kubernetes, err = kubernetes.NewForConfig(writing); err != nil {
		return fmt.Errorf("make a client for drains: %w", err)
	}
	if c.http, err = rest.HTTPClientFor(writing); err != nil {
		return fmt.Errorf("make a client for the time: %w", err)
	}

	c.client = client.WithFieldValidation(direct, metav1.FieldValidationStrict)
	if c.watching, err = client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: c.manager.GetRESTMapper()}); err != nil {
		return fmt.Errorf("make a watch client: %w", err)
	}

	return nil
}

// serveProbes serves /healthz, which says that the controller runs, and
// /readyz, which lists the problems that keep it from working. The manager's
// own server withholds them.
func (c *Controller) serveProbes(address string) error {
	if address == "0" {
		return nil
	}

	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen for probes: %w", err)
	}

	return c.manager.Add(&manager.Server{Name: "probes", Listener: listener,
		Server: &http.Server{Handler: c.probes(), ReadHeaderTimeout: time.Minute}})
}

// probes answers the probes of the kubelet.
func (c *Controller) probes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := c.ready(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}

		fmt.Fprintln(w, "ok")
	})

	return mux
}

// newProblems returns an empty set of problems. Each change is logged: message
// with the subject as this attribute.
func (c *Controller) newProblems(message, attribute string, solved func(subject string)) *problems {
	return &problems{errs: map[string]error{}, changed: func(subject string, err error) {
		if err != nil {
			c.log.Error(message+"; retrying", attribute, subject, "err", err)
			return
		}

		c.log.Info("problem solved", attribute, subject)
		solved(subject)
	}}
}

// ready returns the problems that keep the controller from working.
func (c *Controller) ready() error { return errors.Join(c.watchErrors.err(), c.writeErrors.err()) }

// leaseLabels are the labels of the Lease. A version that is not a valid label
// value is left out: it must not prevent the election.
func leaseLabels(version string) map[string]string {
	if len(validation.IsValidLabelValue(version)) > 0 {
		version = ""
	}

	return map[string]string{v1alpha1.LabelVersion: version}
}

// Run runs the controller until ctx ends. It returns an error if the controller
// loses its Lease.
func (c *Controller) Run(ctx context.Context) error { return c.manager.Start(ctx) }

// mapper maps the kinds that the controller reads without asking the API
// server: the controller also starts while the API server does not answer or
// lacks a CRD. The watches report that.
func mapper(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(v1alpha1.GroupVersion.WithKind("NodeConfig"), meta.RESTScopeRoot)
	m.Add(v1alpha1.GroupVersion.WithKind("NodeConfigRollout"), meta.RESTScopeRoot)
	m.Add(v1alpha1.GroupVersion.WithKind("NodeConfigPreflight"), meta.RESTScopeRoot)
	m.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	m.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("Event"), meta.RESTScopeNamespace)
	m.Add(policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), meta.RESTScopeNamespace)
	m.Add(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), meta.RESTScopeRoot)

	return m, nil
}

// lead runs the leader. Only the leader watches, so that what it sees is newer
// than everything that earlier leaders wrote.
func (c *Controller) lead(ctx context.Context) error {
	if c.election == nil {
		return c.work(ctx)
	}

	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	ended := make(chan error, 1)
	go func() { ended <- c.work(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-c.election.lost:
		end(errNotLeader)
		_, err := c.election.leads()
		return errors.Join(err, <-ended)
	}
}

// work plans and executes until ctx ends.
func (c *Controller) work(ctx context.Context) error {
	c.log.Info("leading")
	if !c.setClock(ctx) {
		return nil // told to stop
	}

	var ok bool
	if c.term, ok = c.claimTerm(ctx); !ok {
		return nil // told to stop
	}

	watching, end := context.WithCancel(ctx)
	var watches sync.WaitGroup
	defer watches.Wait()
	defer c.passes.Wait()
	defer end()
	defer c.measurements.running.Wait() // its requests end with ctx
	watches.Go(func() { c.runWatches(watching) })
	watches.Go(func() { c.notifier.Run(watching) })
	watches.Go(func() { c.watchPreflights(watching) })
	for !c.watches.complete() {
		select {
		case <-ctx.Done():
			return nil // told to stop
		case <-c.watches.changed:
		}
	}

	c.log.Info("all watches are synced")
	c.fleet.firstView(c.formerRenewal())
	c.loop(ctx)

	return nil
}
