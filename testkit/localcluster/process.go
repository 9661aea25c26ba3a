// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// StartTied starts a program that dies with the calling process: the kernel
// sends it SIGKILL, unless cmd's SysProcAttr says otherwise. The program has
// its own process group. The channel is closed when the program has ended and
// cmd's ProcessState is set.
func StartTied(cmd *exec.Cmd) (<-chan struct{}, error) {
	if cmd.SysProcAttr == nil {
		// An own process group: only the parent gets an interrupt from the
		// terminal, and stops its children in order.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	}

	started, done := make(chan error), make(chan struct{})
	go func() {
		// The parent-death signal is sent when the *thread* that forked ends,
		// so it must live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the state is in cmd.ProcessState
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}

	return done, nil
}

// Process is a child that dies with this process.
type Process struct {
	Name string
	Log  string // file with its output
	Cmd  *exec.Cmd
	Done <-chan struct{} // closed when it has ended and Cmd's ProcessState is set
}

// StartProcess starts cmd, with its output at the end of a log file. With a
// pipe, `go test` would wait for surviving processes.
func StartProcess(name, log string, cmd *exec.Cmd) (*Process, error) {
	out, err := os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}

	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	done, err := StartTied(cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}

	return &Process{Name: name, Log: log, Cmd: cmd, Done: done}, nil
}

// running reports whether the process runs. A nil process was never started.
func (p *Process) running() bool {
	if p == nil {
		return false
	}

	select {
	case <-p.Done:
		return false
	default:
		return true
	}
}

// Pid returns the process ID.
func (p *Process) Pid() int { return p.Cmd.Process.Pid }

// Stop sends SIGTERM, and waits until the process has ended. It kills it after
// the grace period, and that is an error. A nil process is already stopped.
func (p *Process) Stop(grace time.Duration) error {
	if p == nil {
		return nil
	}

	_ = p.Cmd.Process.Signal(syscall.SIGTERM) // fails only if it has ended
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.Done:
		return nil
	case <-timer.C:
		p.Kill()
		return fmt.Errorf("%s did not stop within %s; its last words:\n%s", p.Name, grace, p.Tail())
	}
}

// Kill kills the process, and waits until it has ended.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill() // fails only if it has ended
	<-p.Done
}

// Said returns everything that the process has printed.
func (p *Process) Said() string {
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}

	return string(text)
}

// Wait polls until check succeeds, the process ends, or the context ends.
func (p *Process) Wait(ctx context.Context, check func(context.Context) error) error {
	err := retry(ctx, check, func(error) bool { return p.running() })
	if p.running() {
		if err != nil {
			return fmt.Errorf("%s is not ready: %w\n%s", p.Name, err, p.Tail())
		}

		return nil
	}

	return fmt.Errorf("%s stopped: unexpected end: %s\n%s", p.Name, p.Cmd.ProcessState, p.Tail())
}

// service is a program that can be started and stopped again and again, until
// the end of the cluster or node that it belongs to.
type service struct {
	mu      sync.Mutex
	process *Process
	ended   bool
}

// start starts the program, unless it runs already, and waits until it is
// ready. If it does not become ready, the program is stopped, and the error has
// the end of its log.
func (s *service) start(ctx context.Context, name, log string, cmd *exec.Cmd, ready func(context.Context) error) error {
	p, err := s.launch(name, log, cmd)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := p.Wait(ctx, ready); err != nil {
		s.stop()
		return err
	}

	return nil
}

func (s *service) launch(name, log string, cmd *exec.Cmd) (_ *Process, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, fmt.Errorf("start %s: its cluster or node is stopped", name)
	}
	if !s.process.running() {
		s.process, err = StartProcess(name, log, cmd)
	}

	return s.process, err
}

// stop stops the program, if it runs. It is killed if it does not end soon.
func (s *service) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.process.Stop(3 * time.Second)
	s.process = nil
}

// end stops the program for ever.
func (s *service) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.stop()
}

// pid returns the process ID of the program; 0 if it does not run.
func (s *service) pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.process.running() {
		return 0
	}

	return s.process.Pid()
}

// Probe sends a GET request, and returns nil if the answer is 200 OK within a
// second.
func Probe(ctx context.Context, url string) (err error) {
	defer must.Catch(&err)

	request := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, url, nil))
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response := must.Get(client.Do(request))
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}

	return nil
}

// Tail returns the end of the log for an error, because the directory may be
// removed.
func (p *Process) Tail() string {
	text := p.Said()
	return text[max(0, len(text)-4096):]
}

// always is for retry: every error is worth another try.
func always(error) bool { return true }

// retry calls try, which may use package must, every 50 ms until it succeeds,
// or again returns false for its error. If the context ends first, the error
// has also the last error of try.
func retry(ctx context.Context, try func(context.Context) error, again func(error) bool) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := must.Try(func() { must.OK(try(ctx)) })
		if err == nil || last == nil || ctx.Err() == nil {
			last = err
		}

		return err == nil || !again(err), nil
	})

	return errors.Join(err, last)
}

// ports allocates free TCP ports, and keeps other clusters on this machine from
// using them until release: an abstract unix socket with the port's number
// reserves each port until the process ends. The ports are below the range that
// Linux uses for outgoing connections.
type ports struct {
	mu   sync.Mutex
	held []net.Listener
}

const (
	firstPort = 20000
	lastPort  = 31999
)

func (p *ports) take() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	const count = lastPort - firstPort + 1
	start := rand.IntN(count)
	var errs []error
	for i := range 200 {
		port := firstPort + (start+i)%count
		reserved, err := net.Listen("unix", fmt.Sprintf("@evenkeel-localcluster-%d", port))
		if err != nil {
			errs = append(errs, err)
			continue
		}

		// On all addresses, because the kubelet listens on all of them.
		probe, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err == nil {
			err = probe.Close()
		}
		if err != nil {
			errs = append(errs, err, reserved.Close())
			continue
		}

		p.held = append(p.held, reserved)

		return port, nil
	}

	return 0, fmt.Errorf("no free port: %w", errors.Join(errs...))
}

// own are ports that this process has until it ends.
var own ports

// FreeAddress returns an address on loopback, for a program that may be started
// several times. Nobody else listens on it, and no outgoing connection uses its
// port.
func FreeAddress() (string, error) {
	port, err := own.take()
	return fmt.Sprintf("127.0.0.1:%d", port), err
}

func (p *ports) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.held {
		_ = l.Close() // closing an abstract socket cannot leave anything behind
	}

	p.held = nil
}
