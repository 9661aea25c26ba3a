// Package dashboard serves a page that shows a fleet and its rollouts as they are now, and lets rollouts be steered, with
// the rights of whoever started it.
//
// It must not decide or word anything of its own about nodes and rollouts: internal/fleet says how they are and writes what
// is intended, for the command line as for the page. It listens on loopback alone, and answers only who knows its token.
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

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// DefaultPort is where the page is served if nobody says otherwise.
const DefaultPort = 8085

// Options is what a dashboard needs. Log gets a line for everything that it is asked to change.
type Options struct {
	Config  *rest.Config
	Context string // of the kubeconfig, to be shown; may be empty
	Port    int    // 0: any that is free
	Version string
	Log     io.Writer
}

// Server is a dashboard that listens.
type Server struct {
	o        Options
	token    string
	listener net.Listener
	api      client.WithWatch
	world    *world
	feed     *feed

	logging sync.Mutex
}

// Listen looks whether the cluster can be shown at all, and takes the port. The error says what is in the way.
func Listen(ctx context.Context, o Options) (*Server, error) {
	config := rest.CopyConfig(o.Config)
	config.UserAgent = "kubectl-evenkeel/" + o.Version + " dashboard"
	config.QPS, config.Burst = 50, 100
	o.Config = config
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		v1alpha1.AddToScheme, corev1.AddToScheme, coordinationv1.AddToScheme, authorizationv1.AddToScheme,
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
	// Only IPv4's loopback: a browser that is told 127.0.0.1 asks nowhere else.
	listener, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.Port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("port %d is taken: choose another with --port, or --port 0 for any that is free: %w", o.Port, err)
	} else if err != nil {
		return nil, fmt.Errorf("listen on loopback: %w", err)
	}
	w := newWorld(api)
	return &Server{o: o, token: rand.Text(), listener: listener, api: api, world: w, feed: newFeed(w)}, nil
}

// probe returns an error if there is nothing that could be shown: another one than for a right that is missing beside one
// that is there.
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

// URL is what to open: with the token, which a browser keeps to itself since it is behind the #.
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
	all.Go(func() { s.world.watch(ctx) })
	all.Go(func() { s.feed.run(ctx) })
	all.Go(func() {
		<-ctx.Done()
		_ = server.Close() // streams never end by themselves
	})
	err := server.Serve(s.listener)
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve the page: %w", err)
}

// logf says what was changed, to whoever runs the command.
func (s *Server) logf(format string, args ...any) {
	s.logging.Lock()
	defer s.logging.Unlock()
	fmt.Fprintln(s.o.Log, time.Now().Format(time.TimeOnly), printable.Line(fmt.Sprintf(format, args...)))
}
