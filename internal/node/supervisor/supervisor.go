// Package supervisor runs one child process, the node's kubelet, as a service manager would: it starts it, stops it,
// says how it ended, and stands between it and systemd for sd_notify(3), so that the kubelet can stay what it is.
//
// It must not know what the child's configuration is, whether it is healthy, or when it is to be restarted: that is
// decided elsewhere and only carried out here.
package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Command says what to run.
type Command struct {
	Path string   // looked up in PATH if it has no slash
	Args []string // without argv[0]
	Env  []string // nil: this process's own; NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID are replaced in both

	// Stdout and Stderr are inherited as they are; nil: /dev/null. With a pipe the output would depend on this
	// process's living and reading.
	Stdout, Stderr *os.File

	// Watchdog is how often at the least the child is to send WATCHDOG=1; 0: it is not asked to. It is lowered to
	// Notifier.Watchdog, because the child's messages are what systemd is then fed with. A kubelet refuses to start
	// with a second or less.
	Watchdog time.Duration
}

// Exit says how a child ended.
type Exit struct {
	Code    int       // -1 if a signal ended it, or if it is not known
	Signal  string    // such as "killed"; empty if it exited by itself
	Stopped bool      // Stop had been called before it ended
	At      time.Time // carries the monotonic clock
}

// String is such as "exit status 1" or "signal: killed".
func (e Exit) String() string {
	if e.Signal != "" {
		return "signal: " + e.Signal
	}
	return fmt.Sprintf("exit status %d", e.Code)
}

// Process is a child that was started. All its methods can be called at any time from any goroutine.
type Process struct {
	cmd      *exec.Cmd
	notifier *Notifier
	socket   *notifySocket
	watchdog time.Duration
	changed  chan struct{}
	heard    chan struct{} // closed when the last notification has been handled
	done     chan struct{}

	mu       sync.Mutex
	exit     Exit
	ready    bool
	pinged   time.Time // zero: never
	stopping bool
	stranger bool // a foreign notification has been logged
}

// Start runs cmd as the one child of n, and returns once it executes. The child is killed by the kernel if this
// process dies, whatever kills it. The child's own children are not: a wrapper around the real program must exec it,
// which signals and notifications need as well.
//
// The error names the path and is fs.ErrNotExist, fs.ErrPermission, syscall.EISDIR or syscall.ENOEXEC where it is
// one of these, and ErrRunning if n has a child already.
func Start(cmd Command, n *Notifier) (*Process, error) {
	path, err := exec.LookPath(cmd.Path)
	if err != nil {
		return nil, startError(cmd.Path, explain(cmd.Path, err))
	}
	if n.interval > 0 && cmd.Watchdog > n.interval {
		cmd.Watchdog = n.interval
	}
	p := &Process{
		notifier: n,
		watchdog: cmd.Watchdog,
		changed:  make(chan struct{}, 1),
		heard:    make(chan struct{}),
		done:     make(chan struct{}),
	}
	if err := n.attach(p); err != nil {
		return nil, startError(cmd.Path, err)
	}
	p.socket, err = listenNotify(n.childSocket)
	if err != nil {
		n.detach()
		return nil, startError(cmd.Path, err)
	}

	p.cmd = &exec.Cmd{
		Path: path,
		Args: append([]string{cmd.Path}, cmd.Args...),
		Env:  childEnv(cmd.Env, n.childSocket, cmd.Watchdog),
		SysProcAttr: &syscall.SysProcAttr{
			Pdeathsig: syscall.SIGKILL,
			// A process group of its own: ^C in a terminal goes to the whole foreground group, and the child must
			// not stop because of it before this process has decided so. (systemd goes by the cgroup.)
			Setpgid: true,
		},
	}
	if cmd.Stdout != nil {
		p.cmd.Stdout = cmd.Stdout
	}
	if cmd.Stderr != nil {
		p.cmd.Stderr = cmd.Stderr
	}
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		p.socket.close()
		n.detach()
		return nil, startError(cmd.Path, explain(path, err))
	}
	go p.listen()
	return p, nil
}

// run starts the child and waits for it. The kernel sends Pdeathsig when the thread that forked dies, not the
// process; and Go ends threads as it likes unless a goroutine is locked to them. So one thread is kept for as long as
// the child lives.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	_ = p.cmd.Wait() // what it would say is in ProcessState

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
	exit := Exit{Code: -1, At: time.Now()}
	if state == nil { // somebody else waited for it
		return exit
	}
	exit.Code = state.ExitCode()
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		exit.Signal = status.Signal().String()
	}
	return exit
}

// Pid is the child's process ID, which is its process group's as well.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the child is gone and nothing is left of it here.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit says how the child ended. It is the zero Exit before Done.
func (p *Process) Exit() Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit
}

// Stop sends SIGTERM, SIGKILL after grace, and returns when the child is gone. Calling it again, at the same time or
// later, waits for the same end; the shortest grace counts.
func (p *Process) Stop(grace time.Duration) Exit {
	p.mu.Lock()
	first := !p.stopping
	p.stopping = true
	p.mu.Unlock()
	if first {
		// From here on the child need not ping any more: systemd is fed for it.
		p.notifier.feedNow()
		// Once only: to Kubernetes' programs a second SIGTERM means exit at once. The error can only be that it is
		// gone already.
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	return p.Exit()
}

// Ready says whether the child has sent READY=1.
func (p *Process) Ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready
}

// Watchdog returns how long ago, in monotonic time, the child sent its last WATCHDOG=1, and whether it ever did.
func (p *Process) Watchdog() (since time.Duration, seen bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pinged.IsZero() {
		return 0, false
	}
	return time.Since(p.pinged), true
}

// Changed receives when the child became ready or sent its first WATCHDOG=1. It is for one reader; what it missed
// comes as one.
func (p *Process) Changed() <-chan struct{} { return p.changed }

// pingsItself says whether the child is past its start, running, and has shown that it sends the WATCHDOG=1 it was
// asked for.
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

// explain says in words what is wrong with the program at path, and not twice where that is.
func explain(path string, err error) error {
	var lookup *exec.Error
	if errors.As(err, &lookup) {
		err = lookup.Err
	}
	var op *fs.PathError
	if errors.As(err, &op) && op.Path == path {
		err = op.Err
	}
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("it is not in PATH: %w", fs.ErrNotExist)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("it is not executable: %w", err)
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("it is not a program for this machine: %w", err)
	case errors.Is(err, fs.ErrNotExist):
		if _, statErr := os.Stat(path); statErr == nil {
			return fmt.Errorf("it is there, but its interpreter or loader is not: %w", err)
		}
	}
	return err
}
