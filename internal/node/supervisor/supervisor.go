// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package supervisor starts and stops one child process, the kubelet, reports
// how it ended, and relays sd_notify(3) messages between the kubelet and
// systemd.
//
// It must not know the configuration of the child, whether it is healthy, or
// when to restart it: the caller decides that.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Exit says how a child ended.
type Exit struct {
	Code    int    // -1 if a signal ended the child, or if the code is unknown
	Signal  string // such as "killed"; empty if the child exited
	Stopped bool   // Stop was called before the child ended
}

// String returns a text such as "exit status 1" or "signal: killed".
func (e Exit) String() string {
	if e.Signal != "" {
		return "signal: " + e.Signal
	}

	return fmt.Sprintf("exit status %d", e.Code)
}

// Process is a started child. All methods may be called at any time from any
// goroutine.
type Process struct {
	cmd      *exec.Cmd
	notifier *Notifier
	socket   *notifySocket
	watchdog time.Duration
	changed  chan struct{}
	heard    chan struct{} // closed after the last notification
	done     chan struct{}

	mu       sync.Mutex
	exit     Exit
	ready    bool
	pinged   time.Time // zero: never
	stopping bool
	warned   bool // a notification of another process was logged
}

// Start runs cmd as the only child of n, and returns once it executes. The
// kernel kills the child when this process dies. It does not kill the children
// of the child, so a wrapper must exec the real program; signals and
// notifications need that too. NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID
// are replaced in its environment.
//
// The child must inherit its output: with a pipe that this process reads, the
// child would wait for this process, and output would be lost with it (see
// package relay).
//
// watchdog is the interval in which the child must send WATCHDOG=1; 0: none.
// Start lowers it to systemd's interval, because systemd receives the messages
// of the child. A kubelet refuses to start with one second or less.
//
// The error names the path and is fs.ErrNotExist, fs.ErrPermission,
// syscall.EISDIR or syscall.ENOEXEC where it applies, and ErrRunning if n
// already has a child.
func Start(cmd *exec.Cmd, watchdog time.Duration, n *Notifier) (*Process, error) {
	name := cmd.Args[0]
	if _, err := exec.LookPath(name); err != nil {
		return nil, startError(name, describeError(name, err))
	}
	if n.interval > 0 && watchdog > n.interval {
		watchdog = n.interval
	}

	p := &Process{
		cmd:      cmd,
		notifier: n,
		watchdog: watchdog,
		changed:  make(chan struct{}, 1),
		heard:    make(chan struct{}),
		done:     make(chan struct{}),
	}
	if err := n.attach(p); err != nil {
		return nil, startError(name, err)
	}

	var err error
	if p.socket, err = listenNotify(n.childSocket); err != nil {
		n.detach()
		return nil, startError(name, err)
	}

	cmd.Env = childEnv(cmd.Env, n.childSocket, watchdog)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL,
		// A separate process group: ^C in a terminal signals the whole
		// foreground group, and the child must not stop before this process
		// decides so. (systemd signals the cgroup.)
		Setpgid: true,
	}
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		p.socket.close()
		n.detach()
		return nil, startError(name, describeError(cmd.Path, err))
	}

	go p.listen()

	return p, nil
}

// run starts the child and waits for it. The kernel sends Pdeathsig when the
// forking thread dies, not the process, and Go may end threads unless a
// goroutine is locked to them. So run keeps its thread for as long as the child
// lives.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}

	_ = p.cmd.Wait() // ProcessState has the result

	exit := exitOf(p.cmd.ProcessState)
	p.socket.close()
	<-p.heard
	p.notifier.detach()
	p.mu.Lock()
	exit.Stopped = p.stopping
	p.exit = exit
	p.mu.Unlock()
	close(p.done)
}

func exitOf(state *os.ProcessState) Exit {
	exit := Exit{Code: -1}
	if state == nil { // another waiter reaped the child
		return exit
	}

	exit.Code = state.ExitCode()
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		exit.Signal = status.Signal().String()
	}

	return exit
}

// Pid returns the process ID of the child, which is also the ID of its process
// group.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the child has ended and everything of it is cleaned up.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit returns how the child ended; zero before Done.
func (p *Process) Exit() Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit
}

// Stop sends SIGTERM, then SIGKILL after grace, and returns when the child has
// ended. Further calls wait for the same end; the shortest grace applies.
func (p *Process) Stop(grace time.Duration) Exit {
	p.mu.Lock()
	first := !p.stopping
	p.stopping = true
	p.mu.Unlock()
	if first {
		// From now on the child need not ping: this process feeds the watchdog.
		p.notifier.feedNow()
		// Only once: for Kubernetes programs a second SIGTERM means immediate
		// exit. An error means that the child has already ended.
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}

	select {
	case <-p.done:
	case <-time.After(grace):
		_ = p.cmd.Process.Kill()
		<-p.done
	}

	return p.Exit()
}

// Ready reports whether the child has sent READY=1.
func (p *Process) Ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready
}

// Watchdog returns the time since the last WATCHDOG=1 of the child (monotonic),
// and whether there was one.
func (p *Process) Watchdog() (since time.Duration, seen bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pinged.IsZero() {
		return 0, false
	}

	return time.Since(p.pinged), true
}

// Changed returns a channel for one reader, which receives when the child
// becomes ready or sends its first WATCHDOG=1. Several changes may arrive as
// one.
func (p *Process) Changed() <-chan struct{} { return p.changed }

// pingsItself reports whether the child is ready, not stopping, and sends the
// requested WATCHDOG=1.
func (p *Process) pingsItself() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready && !p.stopping && p.watchdog > 0 && !p.pinged.IsZero()
}

func (p *Process) isStopping() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopping
}

func startError(path string, err error) error { return fmt.Errorf("start %s: %w", path, err) }

// describeError adds what is wrong with the program at path, and removes
// duplicate paths.
func describeError(path string, err error) error {
	if lookup, ok := errors.AsType[*exec.Error](err); ok {
		err = lookup.Err
	}
	if op, ok := errors.AsType[*fs.PathError](err); ok && op.Path == path {
		err = op.Err
	}

	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("not found in PATH: %w", fs.ErrNotExist)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("not executable: %w", err)
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("not a program for this machine: %w", err)
	case errors.Is(err, fs.ErrNotExist):
		if _, statErr := os.Stat(path); statErr == nil {
			return fmt.Errorf("the file exists, but its interpreter or loader does not: %w", err)
		}
	}

	return err
}

// oomScoreAdj is the value that a kubelet sets for itself. The kernel must not
// kill this process first, because the kubelet would die with it.
const oomScoreAdj = -999

// ProtectFromOOM makes the kernel spare this process when memory runs out. If
// that is not allowed, it logs a warning. Children inherit the setting; a
// kubelet sets its own.
func ProtectFromOOM(log *slog.Logger) { protectFromOOM("/proc/self/oom_score_adj", log) }

func protectFromOOM(path string, log *slog.Logger) {
	if err := os.WriteFile(path, []byte(strconv.Itoa(oomScoreAdj)), 0); err != nil {
		log.Warn("not protected from the kernel's OOM killer", "err", err)
	}
}

// ShuttingDown reports whether systemd runs the node and is stopping it. It
// returns false if that is unknown after a second.
func ShuttingDown(ctx context.Context) bool { return shuttingDown(ctx, "/run/systemd/system") }

// shuttingDown calls systemctl only if runDir exists, as sd_booted(3) does.
func shuttingDown(ctx context.Context, runDir string) bool {
	if _, err := os.Stat(runDir); err != nil {
		return false
	}

	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "systemctl", "is-system-running")
	cmd.WaitDelay = 100 * time.Millisecond // in case a descendant keeps its output open
	out, _ := cmd.Output()                 // an error for every state other than "running"

	return strings.TrimSpace(string(out)) == "stopping"
}
