// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gate evaluates PromQL queries at Prometheus servers that are
// configured by name, each to at most one number, for the gates of rollouts.
//
// A server and its answers are not trusted: each request has limits for its
// time and size, and redirects are not followed. The package must not know what
// a number means: package rollout decides.
package gate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheusv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/evenkeel/evenkeel/internal/printable"
)

const (
	maxAnswer  = 1 << 20 // bytes of an answer's body
	maxHeaders = 64 << 10
	maxError   = 300 // bytes of an error's text
	maxAtOnce  = 4   // requests to one server at the same time
)

// Result is the result of a query: a number, or none.
type Result struct {
	Value  float64
	NoData bool // the result is empty or NaN
}

// Servers are Prometheus servers by name. They may be used concurrently.
type Servers struct {
	timeout time.Duration
	byName  map[string]*client
}

// client evaluates queries at one server.
type client struct {
	api   prometheusv1.API
	slots chan struct{}
}

// New returns servers, each with a name of its own, whose answers may take up
// to a timeout. It makes no request.
func New(servers []Server, timeout time.Duration) (*Servers, error) {
	s := &Servers{timeout: timeout, byName: map[string]*client{}}
	for _, server := range servers {
		c, err := api.NewClient(api.Config{Address: server.URL, Client: newHTTPClient(server)})
		if err != nil {
			return nil, fmt.Errorf("make a client for the Prometheus server %s: %w", server.Name, err)
		}

		s.byName[server.Name] = &client{api: prometheusv1.NewAPI(c), slots: make(chan struct{}, maxAtOnce)}
	}

	return s, nil
}

// Names returns the names of the servers, sorted. It is never nil.
func (s *Servers) Names() []string {
	return slices.Sorted(maps.Keys(s.byName))
}

// Query evaluates a query now. sent, if not nil, is called immediately before
// the request is sent, which may be later if other requests to the server are
// not finished. The error is a short text that is safe to print.
func (s *Servers) Query(ctx context.Context, server, query string, sent func()) (Result, error) {
	c := s.byName[server]
	if c == nil {
		return Result{}, fmt.Errorf("there is no Prometheus server %q", server)
	}

	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return Result{}, ctx.Err()
	}

	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if sent != nil {
		sent()
	}

	value, warnings, _, err := c.api.Query(ctx, query, time.Time{}, prometheusv1.WithTimeout(s.timeout))
	if err == nil {
		var result Result
		if result, err = resultOf(value, warnings); err == nil {
			return result, nil
		}
	}

	var request *url.Error
	var network *net.OpError
	var large *http.MaxBytesError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("no answer within %s", s.timeout)
	case errors.As(err, &network) && network.Op == "dial":
		err = fmt.Errorf("it cannot be reached (%w): check that it runs, and its address in --prometheus-server", network)
	case errors.As(err, &large):
		err = fmt.Errorf("the answer has more than %d bytes", large.Limit)
	case errors.As(err, &request):
		err = request.Err // the name of the server is enough
	}

	return Result{}, errors.New("Prometheus server " + server + ": " + printable.Truncate(printable.Line(err.Error()), maxError))
}

// resultOf returns the number in the result of a query.
func resultOf(value model.Value, warnings prometheusv1.Warnings) (Result, error) {
	if len(warnings) > 0 { // of Thanos, for example: one of the stores did not answer
		return Result{}, fmt.Errorf("the result can be incomplete or wrong: %s", warnings[0])
	}

	switch v := value.(type) {
	case *model.Scalar:
		return number(v.Value), nil
	case model.Vector:
		switch {
		case v == nil: // null
			return Result{}, errors.New("the answer has no result")
		case len(v) == 0:
			return Result{NoData: true}, nil
		case len(v) > 1:
			return Result{}, fmt.Errorf("the result has %s instead of one: aggregate them, for example with sum or max",
				printable.Count(len(v), "element"))
		case v[0] == nil || v[0].Histogram != nil:
			return Result{}, errors.New("the result is a histogram, not a number: use a function such as histogram_quantile")
		}

		return number(v[0].Value), nil
	case nil:
		return Result{}, errors.New("the answer has no result")
	}

	return Result{}, fmt.Errorf("the result is a %s, not a scalar or an instant vector", value.Type())
}

func number(v model.SampleValue) Result {
	if math.IsNaN(float64(v)) {
		return Result{NoData: true}
	}

	return Result{Value: float64(v)}
}
