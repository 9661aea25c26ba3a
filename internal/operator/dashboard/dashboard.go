// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dashboard is the HTTP server of `kubectl evenkeel dashboard`: a page
// (in web/) that shows the nodes and rollouts of clusters live and can steer
// rollouts, with the permissions of the user who started it. It listens on
// loopback only, and requires a token.
//
// It must not decide or describe anything about nodes and rollouts itself:
// internal/operator/describe and internal/operator/steer do that, for the
// command line too.
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
)

// DefaultPort is the default of --port.
const DefaultPort = 8085

// Options are the settings of a dashboard. Log gets a line for each requested
// change.
type Options struct {
	Clusters []Cluster // at least one
	Port     int       // 0: any free port
	Version  string
	Log      io.Writer
}

// Server is a listening dashboard.
type Server struct {
	o        Options
	token    string
	listener net.Listener
	clusters []*cluster

	logging sync.Mutex
}

// Listen checks that the user can read NodeConfigs and rollouts, and listens on
// the port. Of several clusters, one must be readable: the page shows the
// trouble of the others.
func Listen(ctx context.Context, o Options) (*Server, error) {
	s := &Server{o: o, token: rand.Text()}
	for _, c := range o.Clusters {
		made, err := s.newCluster(c)
		if err != nil {
			return nil, fmt.Errorf("context %q: %w", c.Context, err)
		}

		s.clusters = append(s.clusters, made)
	}

	if err := probe(ctx, s.clusters); err != nil {
		return nil, err
	}

	// IPv4 only: the URL names 127.0.0.1.
	var err error
	s.listener, err = net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.Port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("port %d of this machine is in use by another program: choose another with --port, or --port 0 for any free port",
			o.Port)
	} else if err != nil {
		return nil, fmt.Errorf("listen on 127.0.0.1: %w", err)
	}

	return s, nil
}

// URL returns the address of the page. The token follows the #, so browsers do
// not send it.
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
	for _, c := range s.clusters {
		all.Go(func() { c.run(ctx) })
	}

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
