package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/fleet/rollout"
)

// Options are what a controller can be told. Log and Registry are required.
type Options struct {
	Namespace string       // of revisions and of the lease; empty: evenkeel-system
	NodeName  string       // of the node that the controller runs on: it goes last
	Version   string       // of the program: the lease shows which one leads, and a metric which one runs
	Commit    string       // it was built from; for the metric
	Times     policy.Times // zero: DefaultTimes
	Writers   int          // parallel writes; 0: DefaultWriters
	Tick      time.Duration

	LeaderElection bool
	LeaseDuration  time.Duration // 0: 15s; a leader that cannot renew for two thirds of it stops

	MetricsAddress, ProbeAddress string // "0": none

	Log      *slog.Logger
	Registry prometheus.Registerer // where the metrics go
}

// Defaults of Options.
const (
	DefaultWriters       = 32
	DefaultTick          = 200 * time.Millisecond
	DefaultLeaseDuration = 15 * time.Second
)

// Controller rolls configurations out.
type Controller struct {
	settings policy.Settings
	writers  int
	log      *slog.Logger

	manager  manager.Manager
	watching client.WithWatch
	client   client.Client // without a cache: what is read with it is read from the API server
	recorder events.EventRecorder
	metrics  *meters
	election *election   // nil: it does not wait for a lease
	term     int64       // of this leader; 0: without an election
	termless atomic.Bool // the CRD has no field for it
	// unpublished reports whether the CRD has no field for the settings.
	unpublished atomic.Bool
	fleet       *fleet
	clock       *clock
	config      *rest.Config
	plain       *http.Client // to ask for the time
	sources     *templateSources
	sight       *sight
	blind       *problems // what cannot be watched
	failing     *problems // rollouts that cannot be written, by name
	nodes       []rollout.Node
}

// New makes a controller. It does not speak to the API server yet. The error is about the options, an address that is
// taken, or a config that makes no client.
func New(config *rest.Config, o Options) (*Controller, error) {
	o.Namespace = cmp.Or(o.Namespace, v1alpha1.SystemNamespace)
	lease := cmp.Or(o.LeaseDuration, DefaultLeaseDuration)
	renew, retry := lease*2/3, lease*2/15
	c := &Controller{
		settings: policy.Settings{Namespace: o.Namespace, Times: cmp.Or(o.Times, policy.DefaultTimes)}, writers: cmp.Or(o.Writers, DefaultWriters),
		sight: newSight(kindRollouts, kindConfigs, kindNodes, kindRevisions),
		log:   o.Log, fleet: newFleet(o.NodeName, cmp.Or(o.Tick, DefaultTick)), clock: newClock(),
	}
	c.fleet.now = c.clock.now
	c.blind, c.failing = c.newProblems("cannot see", "what"), c.newProblems("cannot write", "rollout")
	var err error
	if c.metrics, err = newMeters(o.Registry, o.Version, o.Commit, newCensus(c.fleet, c.blind, c.failing)); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("make a scheme: %w", err)
	}
	config = rest.CopyConfig(config)
	config.QPS = -1 // the writers are the limit, and the API server's own fairness
	// With connections of its own, so that no load loses the lease.
	election := rest.CopyConfig(config)
	election.QPS, election.Burst = 5, 10
	if election.Dial == nil {
		election.Dial = (&net.Dialer{Timeout: renew / 2, KeepAlive: lease}).DialContext
	}
	seat, err := newElection(election, o.Namespace, o.Version, lease, renew)
	if err != nil {
		return nil, err
	}
	options := manager.Options{
		Scheme: scheme, MapperProvider: mapper, Logger: logr.FromSlogHandler(o.Log.Handler()),
		LeaderElectionID:              v1alpha1.ControllerLease, // the name of its metric
		LeaderElectionReleaseOnCancel: true, LeaseDuration: &lease, RenewDeadline: &renew, RetryPeriod: &retry,
		Metrics: metricsserver.Options{BindAddress: o.MetricsAddress}, HealthProbeBindAddress: o.ProbeAddress,
	}
	if o.LeaderElection {
		c.election = seat
		options.LeaderElection, options.LeaderElectionResourceLockInterface = true, seat
	}
	if c.manager, err = manager.New(config, options); err != nil {
		return nil, fmt.Errorf("make a manager: %w", err)
	}
	//lint:ignore SA1019 the elector takes no other recorder yet
	seat.lease.LockConfig.EventRecorder = c.manager.GetEventRecorderFor(seat.Identity())
	if !o.LeaderElection {
		err = c.manager.Add(manager.RunnableFunc(func(ctx context.Context) error {
			return seat.show(ctx, leaderelection.LeaderElectionConfig{LeaseDuration: lease, RenewDeadline: renew, RetryPeriod: retry})
		}))
		if err != nil {
			return nil, fmt.Errorf("add what shows the controller: %w", err)
		}
	}
	c.recorder = c.manager.GetEventRecorder("evenkeel-controller")
	writing := rest.CopyConfig(config)
	writing.Timeout = writeTimeout
	direct, err := client.New(writing, client.Options{Scheme: scheme, Mapper: c.manager.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	c.config = writing
	if c.plain, err = rest.HTTPClientFor(writing); err != nil {
		return nil, fmt.Errorf("make a client for the time: %w", err)
	}
	c.client = client.WithFieldValidation(direct, metav1.FieldValidationStrict)
	if c.watching, err = client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: c.manager.GetRESTMapper()}); err != nil {
		return nil, fmt.Errorf("make a client that watches: %w", err)
	}
	c.sources = newTemplateSources(c.watching, c.fleet.markAll)
	return c, errors.Join(
		c.manager.Add(manager.RunnableFunc(c.lead)),
		c.manager.AddHealthzCheck("ping", func(*http.Request) error { return nil }),
		c.manager.AddReadyzCheck("api", c.ready),
	)
}

// ready says what the controller lacks to do its work.
func (c *Controller) ready(*http.Request) error { return errors.Join(c.blind.all(), c.failing.all()) }

// newProblems returns problems of a kind; each is about something of this attribute.
func (c *Controller) newProblems(prefix, attribute string) *problems {
	return &problems{now: map[string]error{}, news: func(what string, err error) {
		if err != nil {
			c.log.Error(prefix+"; it is tried again", attribute, what, "err", err)
			return
		}
		c.log.Info("mended", attribute, what)
		c.fleet.sighted()
	}}
}

// leaseLabels are what the lease shows. A version that is no value of a label is left out: what says who leads must not
// keep anybody from leading.
func leaseLabels(version string) map[string]string {
	if len(validation.IsValidLabelValue(version)) > 0 {
		version = ""
	}
	return map[string]string{v1alpha1.LabelVersion: version}
}

// Run runs the controller until ctx ends or it loses its lease, which is an error.
func (c *Controller) Run(ctx context.Context) error { return c.manager.Start(ctx) }

// mapper knows how the API calls what the controller reads. It does not ask: that the API server does not answer yet, or
// does not serve one of them, is no reason not to start, and shows when it is watched.
func mapper(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(v1alpha1.GroupVersion.WithKind("NodeConfig"), meta.RESTScopeRoot)
	m.Add(v1alpha1.GroupVersion.WithKind("NodeConfigRollout"), meta.RESTScopeRoot)
	m.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	m.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	return m, nil
}

// lead is what the one leader does. Only it watches, so that what it sees is newer than all that leaders before it wrote.
func (c *Controller) lead(ctx context.Context) error {
	if c.election == nil {
		return c.decide(ctx)
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	ended := make(chan error, 1)
	go func() { ended <- c.decide(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-c.election.over:
		end(errDeposed)
		_, err := c.election.leads()
		return errors.Join(err, <-ended)
	}
}

// decide decides, and does what was decided, until ctx ends.
func (c *Controller) decide(ctx context.Context) error {
	c.log.Info("leading")
	if !c.setClock(ctx) {
		return nil // told to stop
	}
	var ok bool
	if c.term, ok = c.takeOver(ctx); !ok {
		return nil // told to stop
	}
	looking, end := context.WithCancel(ctx)
	var looks sync.WaitGroup
	defer looks.Wait()
	defer end()
	looks.Go(func() { c.look(looking) })
	for !c.sight.whole() {
		select {
		case <-ctx.Done():
			return nil // told to stop
		case <-c.sight.news:
		}
	}
	c.log.Info("everything is seen")
	c.fleet.sighted()
	c.loop(ctx)
	return nil
}
