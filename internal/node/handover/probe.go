// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/node/supervisor"
)

// AskProbe asks the agent that answers on a socket whether it is alive and, with ready, whether it is ready. It prints a
// positive answer, and returns a negative one as an error.
func AskProbe(ctx context.Context, out io.Writer, socket string, ready bool) error {
	path := "/healthz"
	if ready {
		path = "/readyz"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path, nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: transport, Timeout: 5 * time.Second}).Do(req)
	if err != nil {
		return fmt.Errorf("no agent answers on %s: %w", socket, errors.Unwrap(err))
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 4<<10))
	if err != nil {
		return fmt.Errorf("the agent on %s did not complete its answer: %w", socket, err)
	}
	if res.StatusCode != http.StatusOK {
		return errors.New(strings.TrimSpace(string(text)))
	}
	_, err = out.Write(text)
	return err
}

// Probe answers on a socket whether this agent is alive and ready. It may be used by several goroutines at once.
type Probe struct {
	mu    sync.Mutex
	state string
	ready bool
	agent RunningAgent // nil: it has not started, or has ended
}

// RunningAgent is an agent that has started to decide what its kubelet runs.
type RunningAgent interface {
	Health() error // nil: it is alive
	Healthy() bool // reports whether its kubelet is healthy
}

// Set sets the answer of an agent that does not run a kubelet.
func (p *Probe) Set(state string, ready bool) { p.set(state, ready, nil) }

func (p *Probe) set(state string, ready bool, agent RunningAgent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state, p.ready, p.agent = state, ready, agent
}

// ServeHTTP implements http.Handler.
func (p *Probe) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	state, ready, running := p.state, p.ready, p.agent
	p.mu.Unlock()
	if running != nil {
		if state, ready = "running", running.Healthy(); !ready {
			state += ", the kubelet is not healthy"
		}
		if err := running.Health(); err != nil {
			http.Error(w, fmt.Sprintf("not alive: %v (%s)", err, state), http.StatusInternalServerError)
			return
		}
	}
	switch {
	case r.URL.Path == "/readyz" && !ready:
		http.Error(w, "not ready: "+state, http.StatusServiceUnavailable)
	case r.URL.Path == "/readyz", r.URL.Path == "/healthz":
		fmt.Fprintln(w, state)
	default:
		http.NotFound(w, r)
	}
}

// Serve answers on a Unix socket until stop is called. If the socket cannot be made, Serve logs that and returns: the probe
// fails then, and the node still gets its kubelet.
func (p *Probe) Serve(path string, log *slog.Logger) (stop func()) {
	if path == "" {
		return func() {}
	}
	listener, err := listenUnix(path)
	if err != nil {
		log.Error("cannot answer probes; continuing without them", "err", err)
		return func() {}
	}
	server := agent.NewServer(p)
	var all sync.WaitGroup
	all.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("probes are not answered any more", "err", err)
		}
	})
	return func() {
		_ = server.Close()
		all.Wait()
	}
}

// Service reports the state of the agent's service to the init system and to the probe.
type Service struct {
	*supervisor.Notifier
	Probe Probe
}

// Starting reports what the agent does before it has a kubelet. The agent is not ready.
func (s *Service) Starting(state string) { s.report(state, false) }

// Waiting reports what the agent waits for, after it has done everything that needs no lock. The agent is ready.
func (s *Service) Waiting(state string) { s.report(state, true) }

func (s *Service) report(state string, ready bool) {
	s.Probe.Set(state, ready)
	_ = s.Notifier.Status(state) // for people only, and the log has it too
}

// Running reports that agent runs the kubelet from now on, and lets the probe ask agent.
func (s *Service) Running(agent RunningAgent) { s.Probe.set("running", false, agent) }

// Stopping implements agent.InitSystem.
func (s *Service) Stopping() error {
	s.Probe.Set("stopping", false)
	return s.Notifier.Stopping()
}
