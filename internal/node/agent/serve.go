// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

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
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/source"
)

// maxConnections is how many clients the agent's HTTP server has at the same time: each costs memory, and a kubelet needs
// descriptors as well. Further clients wait, and idle connections are closed.
const maxConnections = 64

// listenInterval is how often the agent tries to listen if it cannot.
const listenInterval = time.Second

// Serve serves /healthz, /metrics and /configz on a TCP address until ctx ends. With Parts.Configz, /configz can also ask the
// kubelet itself. If the agent cannot listen, Serve logs that, and tries again every second: the node gets its kubelet without it.
func (a *Agent) Serve(ctx context.Context, address string) {
	listener, err := a.listen(ctx, address)
	if err != nil {
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

// listen returns a listener as soon as the address is free, or an error if ctx ends before.
func (a *Agent) listen(ctx context.Context, address string) (listener net.Listener, err error) {
	var before error
	err = wait.PollUntilContextCancel(ctx, listenInterval, true, func(context.Context) (bool, error) {
		l, err := net.Listen("tcp", address)
		switch {
		case err != nil && before == nil:
			a.o.Log.Error("cannot serve /healthz, /metrics and /configz; continuing without it, retrying every second", "listen", address, "err",
				err)
		case err == nil && before != nil:
			a.o.Log.Info("serving /healthz, /metrics and /configz", "listen", address)
		}
		listener, before = l, err
		return err == nil, nil
	})
	return listener, err
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
