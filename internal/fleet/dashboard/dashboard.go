// Package dashboard is the HTTP server of `kubectl evenkeel dashboard`: a page (in web/) that shows the nodes and rollouts of a
// cluster live and can pause, promote or abort rollouts, with the permissions of the user who started it. It listens on loopback
// only, and requires a token.
//
// It must not decide or describe anything about nodes and rollouts itself: internal/fleet/describe and internal/fleet/steer do
// that, for the command line too.
package dashboard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// DefaultPort is the default of --port.
const DefaultPort = 8085

// Options are the settings of a dashboard. Log gets a line for each requested change.
type Options struct {
	Config  *rest.Config
	Context string // of the kubeconfig, shown on the page; may be empty
	Port    int    // 0: any free port
	Version string
	Log     io.Writer
}

// Server is a listening dashboard.
type Server struct {
	o        Options
	token    string
	listener net.Listener
	api      client.WithWatch
	cluster  *cluster
	feed     *feed

	logging sync.Mutex
}

// Listen checks that the user can read NodeConfigs and rollouts, and listens on the port.
func Listen(ctx context.Context, o Options) (*Server, error) {
	config := rest.CopyConfig(o.Config)
	config.UserAgent = "kubectl-evenkeel/" + o.Version + " dashboard"
	config.QPS, config.Burst = 50, 100
	o.Config = config
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		v1alpha1.AddToScheme, corev1.AddToScheme, coordinationv1.AddToScheme, authorizationv1.AddToScheme, authenticationv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	api, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	if err := probe(ctx, api); err != nil {
		return nil, err
	}
	// IPv4 only: the URL names 127.0.0.1.
	listener, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.Port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("port %d is in use: choose another with --port, or --port 0 for any free port: %w", o.Port, err)
	} else if err != nil {
		return nil, fmt.Errorf("listen on loopback: %w", err)
	}
	w := newCluster(api)
	return &Server{o: o, token: rand.Text(), listener: listener, api: api, cluster: w, feed: newFeed(w)}, nil
}

// probe returns an error if NodeConfigs or rollouts cannot be listed.
func probe(ctx context.Context, api client.Reader) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	one := client.Limit(1)
	if err := api.List(ctx, &v1alpha1.NodeConfigList{}, one); err != nil {
		return fmt.Errorf("list NodeConfigs: %w", err)
	}
	if err := api.List(ctx, &v1alpha1.NodeConfigRolloutList{}, one); err != nil {
		return fmt.Errorf("list rollouts: %w", err)
	}
	return nil
}

// URL returns the address of the page. The token follows the #, so browsers do not send it.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() + "/#" + s.token }

// Serve serves the page until ctx ends.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	server := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { s.cluster.watch(ctx) })
	all.Go(func() { s.feed.run(ctx) })
	all.Go(func() {
		<-ctx.Done()
		_ = server.Close() // streams do not end by themselves
	})
	err := server.Serve(s.listener)
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve the page: %w", err)
}

// logf writes a line about a change to the log.
func (s *Server) logf(format string, args ...any) {
	s.logging.Lock()
	defer s.logging.Unlock()
	fmt.Fprintln(s.o.Log, time.Now().Format(time.TimeOnly), printable.Line(fmt.Sprintf(format, args...)))
}
