// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/node/supervisor"
)

// AskProbe asks the agent that answers on a socket whether it is alive and,
// with ready, whether it is ready. It prints a positive answer, and returns a
// negative one as an error.
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

// Probe answers on a socket whether this agent is alive and ready. It may be
// used by several goroutines at once.
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

// Serve answers on a Unix socket until stop is called. If the socket cannot be
// made, Serve logs that and returns: the probe fails then, and the node still
// gets its kubelet.
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

// listenUnix makes a socket that only its owner may use, and its directory. It
// replaces a socket that an ended agent left behind.
func listenUnix(path string) (net.Listener, error) {
	wrap := func(err error) error { return fmt.Errorf("--probe-socket: %w", err) }
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, wrap(err)
	}

	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, wrap(err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("--probe-socket: %s exists and is not a socket: choose another path", path)
	default:
		if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
			_ = conn.Close()
			return nil, fmt.Errorf("--probe-socket: another process answers on %s: give each agent its own path", path)
		}

		if err := os.Remove(path); err != nil {
			return nil, wrap(err)
		}
	}

	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, wrap(err)
	}

	if err := os.Chmod(path, 0o600); err != nil {
		_ = listener.Close()
		return nil, wrap(err)
	}

	removeStaleSockets(filepath.Dir(path))

	return listener, nil
}

// listenDelay is much longer than a process takes to listen on a socket that it
// has made.
const listenDelay = time.Minute

// removeStaleSockets removes the probe sockets of agents that were killed from
// a directory that has only sockets: each pod has a socket of its own, and no
// later pod uses it again.
func removeStaleSockets(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}

	for _, e := range entries {
		if e.Type() != fs.ModeSocket {
			return // the directory may belong to another program
		}
	}

	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := e.Info()
		if err != nil || !isOwn(path, fs.ModeSocket|0o600) || time.Since(info.ModTime()) < listenDelay {
			continue
		}

		conn, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			_ = conn.Close()
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			_ = os.Remove(path)
		}
	}
}

// isOwn reports whether the file at path belongs to this user and has this
// mode.
func isOwn(path string, mode fs.FileMode) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != mode {
		return false
	}

	stat, ok := info.Sys().(*syscall.Stat_t)

	return ok && int(stat.Uid) == os.Geteuid()
}

// Service reports the state of the agent's service to the init system and to
// the probe.
type Service struct {
	*supervisor.Notifier
	Probe Probe
}

// Starting reports what the agent does before it has a kubelet. The agent is
// not ready.
func (s *Service) Starting(state string) { s.report(state, false) }

// Waiting reports what the agent waits for, after it has done everything that
// needs no lock. The agent is ready.
func (s *Service) Waiting(state string) { s.report(state, true) }

func (s *Service) report(state string, ready bool) {
	s.Probe.Set(state, ready)
	_ = s.Notifier.Status(state) // for people only, and the log has it too
}

// Running reports that agent runs the kubelet from now on, and lets the probe
// ask agent.
func (s *Service) Running(agent RunningAgent) { s.Probe.set("running", false, agent) }

// Stopping implements agent.InitSystem.
func (s *Service) Stopping() error {
	s.Probe.Set("stopping", false)
	return s.Notifier.Stopping()
}
