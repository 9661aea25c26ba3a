package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/source"
)

// maxConnections is how many clients the agent's HTTP server has at the same time: each costs memory, and a kubelet needs
// descriptors as well. Further clients wait, and idle connections are closed.
const maxConnections = 64

// Serve serves /healthz, /metrics and /configz on a TCP address until ctx ends. With a client /configz can also ask the
// kubelet itself. If the port is taken, Serve logs that and returns: the node still gets its kubelet.
func (a *Agent) Serve(ctx context.Context, address string, client *source.Client) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		a.o.Log.Error("cannot serve /healthz, /metrics and /configz; continuing without it", "listen", address, "err", err)
		return
	}
	var ask func(context.Context, component.Effective) (component.Effective, error)
	if client != nil {
		ask = func(ctx context.Context, effective component.Effective) (component.Effective, error) {
			return askKubelet(ctx, client, effective)
		}
	}
	server := NewServer(a.Handler(ask))
	var closing sync.WaitGroup
	closing.Go(func() {
		<-ctx.Done()
		_ = server.Close()
	})
	if err := server.Serve(netutil.LimitListener(listener, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
		a.o.Log.Error("the HTTP server ended", "err", err)
	}
	closing.Wait()
}

// askKubelet asks the kubelet for its own /configz.
func askKubelet(ctx context.Context, client *source.Client, effective component.Effective) (component.Effective, error) {
	transport, err := client.KubeletTransport()
	if err != nil {
		return nil, err
	}
	port, ok := effective.Int("port")
	if !ok {
		port = 10250
	}
	return component.Configz(ctx, &http.Client{Transport: transport, Timeout: 5 * time.Second}, fmt.Sprintf("https://127.0.0.1:%d", port))
}

// NewServer returns an HTTP server with limits that a slow or idle client cannot exhaust.
func NewServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
}
