package agent

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/source"
)

// maxConnections is how many clients the agent's HTTP server has at the same time: each costs memory, and a kubelet needs
// descriptors as well. Further clients wait, and idle connections are closed.
const maxConnections = 64

// Serve serves /healthz, /metrics and /configz on a TCP address until ctx ends. With Parts.Configz, /configz can also ask the
// kubelet itself. If the port is taken, Serve logs that and returns: the node still gets its kubelet.
func (a *Agent) Serve(ctx context.Context, address string) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		a.o.Log.Error("cannot serve /healthz, /metrics and /configz; continuing without it", "listen", address, "err", err)
		return
	}
	server := NewServer(a.Handler(a.p.Configz))
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

// KubeletConfigz returns the function for Parts.Configz. It connects to this machine only, and authenticates with nothing but the
// client certificate of the node, of which a server learns no secret: the kubelet's serving certificate is usually self-signed, so
// it is not verified.
func KubeletConfigz(client *source.Client) func(context.Context, component.Effective) (component.Effective, error) {
	return func(ctx context.Context, effective component.Effective) (component.Effective, error) {
		transport, err := client.KubeletTransport()
		if err != nil {
			return nil, err
		}
		asks := &http.Client{Transport: transport, Timeout: 5 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // it is sent nowhere else
		}}
		return component.Configz(ctx, asks, kubeletURL(effective))
	}
}

// kubeletURL returns the secure endpoint of a kubelet with this configuration on this machine.
func kubeletURL(effective component.Effective) string {
	port, ok := effective.Int("port")
	if !ok {
		port = 10250
	}
	host := "127.0.0.1"
	if ip := net.ParseIP(effective.String("address")); ip != nil && !ip.IsUnspecified() {
		host = ip.String() // it listens nowhere else
	} else if ip != nil && ip.To4() == nil {
		host = "::1"
	}
	return "https://" + net.JoinHostPort(host, strconv.FormatInt(port, 10))
}

// NewServer returns an HTTP server with limits that a slow or idle client cannot exhaust.
func NewServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
}
