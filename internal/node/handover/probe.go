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
	"time"

	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/node/supervisor"
)

// MaxSocketPath is what the address of a Unix socket holds.
const MaxSocketPath = 107

// AskProbe asks the agent that answers on a socket whether it is alive or, with ready, whether it is ready, and prints its
// answer. It returns an error if it is not so.
func AskProbe(ctx context.Context, out io.Writer, socket string, ready bool) error {
	path := "/healthz"
	if ready {
		path = "/readyz"
	}
	return ask(ctx, out, socket, path)
}

func ask(ctx context.Context, out io.Writer, socket, path string) error {
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
		return fmt.Errorf("the agent on %s did not finish its answer: %w", socket, err)
	}
	if res.StatusCode != http.StatusOK {
		return errors.New(strings.TrimSpace(string(text)))
	}
	_, err = out.Write(text)
	return err
}

// Probe is how this agent is, for who asks on its socket.
type Probe struct {
	mu    sync.Mutex
	state string
	ready bool
	agent running // once it decides; nil: not yet, or not any more
}

// running is an agent that decides.
type running interface {
	Health() error
	Healthy() bool // its kubelet
}

// Set changes what is answered.
func (p *Probe) Set(state string, ready bool) { p.set(state, ready, nil) }

func (p *Probe) set(state string, ready bool, agent running) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state, p.ready, p.agent = state, ready, agent
}

func (p *Probe) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	state, ready, runs := p.state, p.ready, p.agent
	p.mu.Unlock()
	if runs != nil {
		if state, ready = "running", runs.Healthy(); !ready {
			state += ", the kubelet is not healthy"
		}
		if err := runs.Health(); err != nil {
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

// Serve answers on a Unix socket until stop. A socket that cannot be had is no reason to leave the node without its
// kubelet: the probe fails, which whoever asks will notice.
func (p *Probe) Serve(path string, log *slog.Logger) (stop func()) {
	if path == "" {
		return func() {}
	}
	listener, err := listenUnix(path)
	if err != nil {
		log.Error("cannot answer probes; going on without", "err", err)
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

// listenUnix makes a socket that only its owner may use, and its directory. One that an agent left behind, which nobody
// answers on, is replaced.
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
		return nil, fmt.Errorf("--probe-socket: %s is there and is no socket: name another path", path)
	default:
		if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
			_ = conn.Close()
			return nil, fmt.Errorf("--probe-socket: another process answers on %s: give each agent a path of its own", path)
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
	sweepSockets(filepath.Dir(path))
	return listener, nil
}

// Service tells the init system how the service is, and remembers it for the probe.
type Service struct {
	*supervisor.Notifier
	Probe Probe
}

// Starting says what is done before there is a kubelet.
func (s *Service) Starting(state string) { s.say(state, false) }

// Waiting says what is waited for when all is done that can be.
func (s *Service) Waiting(state string) { s.say(state, true) }

func (s *Service) say(state string, ready bool) {
	s.Probe.Set(state, ready)
	_ = s.Notifier.Status(state) // for people's eyes only, and it is in the log
}

// Running says that from now on an agent decides, and knows how its kubelet is.
func (s *Service) Running(agent running) { s.Probe.set("running", false, agent) }

// Stopping implements agent.InitSystem.
func (s *Service) Stopping() error {
	s.Probe.Set("stopping", false)
	return s.Notifier.Stopping()
}
