package main

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

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/node/supervisor"
	"github.com/evenkeel/evenkeel/internal/program"
)

// maxSocketPath is what the address of a Unix socket holds.
const maxSocketPath = 107

// probeSocketVar names the agent's socket for the probes of its pod.
const probeSocketVar = "EVENKEEL_PROBE_SOCKET"

func probeCommand() *cobra.Command {
	var socket string
	var ready bool
	cmd := &cobra.Command{
		Use:   "probe [--socket PATH] [--ready]",
		Short: "Ask an agent on this host whether it is alive; for the exec probes of a pod",
		Long: `probe asks the agent that was given --probe-socket PATH, and prints its answer.
Without --socket it is $EVENKEEL_PROBE_SOCKET: the command line of an exec probe
cannot tell one pod from another.

An agent that waits for the node's lock is alive and, to --ready, ready: it has
checked all that it can and takes over as soon as the lock is free. So a rolling
update of a DaemonSet with maxSurge goes on from a new pod that waits to the old
one that is to end. An agent that has the lock is ready when its kubelet is
healthy; it is not alive when it has not decided anything for two minutes.

Exit codes: 0 it is, 1 it is not or does not answer, 3 usage.`,
		Example: `  evenkeel-agent probe --socket=/run/evenkeel/probe/bootstrap.sock --ready`,
		Args:    program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if socket == "" {
				socket = os.Getenv(probeSocketVar)
			}
			if socket == "" {
				return program.Usage("--socket is missing, and there is no %s: give the --probe-socket that the agent has", probeSocketVar)
			}
			path := "/healthz"
			if ready {
				path = "/readyz"
			}
			return askProbe(cmd.Context(), cmd.OutOrStdout(), socket, path)
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "the agent's --probe-socket (default: $"+probeSocketVar+")")
	cmd.Flags().BoolVar(&ready, "ready", false, "ask whether it is ready, too")
	return cmd
}

func askProbe(ctx context.Context, out io.Writer, socket, path string) error {
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

// probe is how this agent is, for who asks on its socket.
type probe struct {
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

func (p *probe) set(change func(*probe)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

func (p *probe) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	state, ready, agent := p.state, p.ready, p.agent
	p.mu.Unlock()
	if agent != nil {
		if state, ready = "running", agent.Healthy(); !ready {
			state += ", the kubelet is not healthy"
		}
		if err := agent.Health(); err != nil {
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

// serve answers on a Unix socket until stop. A socket that cannot be had is no reason to leave the node without its
// kubelet: the probe fails, which whoever asks will notice.
func (p *probe) serve(path string, log *slog.Logger) (stop func()) {
	if path == "" {
		return func() {}
	}
	listener, err := listenUnix(path)
	if err != nil {
		log.Error("cannot answer probes; going on without", "err", err)
		return func() {}
	}
	server := httpServer(p)
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

// teller tells the init system how the service is, and remembers it for the probe.
type teller struct {
	*supervisor.Notifier
	probe *probe
}

// starting says what is done before there is a kubelet.
func (t teller) starting(state string) { t.say(state, false) }

// waiting says what is waited for when all is done that can be.
func (t teller) waiting(state string) { t.say(state, true) }

func (t teller) say(state string, ready bool) {
	t.probe.set(func(p *probe) { p.state, p.ready = state, ready })
	_ = t.Notifier.Status(state) // for people's eyes only, and it is in the log
}

// decides says that from now on an agent decides, and knows how its kubelet is.
func (t teller) decides(agent running) { t.probe.set(func(p *probe) { p.agent = agent }) }

// Stopping implements agent.InitSystem.
func (t teller) Stopping() error {
	t.probe.set(func(p *probe) { p.state, p.ready, p.agent = "stopping", false, nil })
	return t.Notifier.Stopping()
}
