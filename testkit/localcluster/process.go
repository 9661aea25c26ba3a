package localcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// errPortTaken means that a program stopped because somebody listens on its port.
var errPortTaken = errors.New("port taken")

// Begin starts a program, which dies with the process that started it: by SIGKILL and in a group of its own, unless cmd's
// SysProcAttr says otherwise. The channel is closed when it has ended; cmd's ProcessState then says how.
func Begin(cmd *exec.Cmd) (<-chan struct{}, error) {
	if cmd.SysProcAttr == nil {
		// A group of its own: an interrupt from the terminal is for the parent, which stops its children in order.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	}
	started, done := make(chan error), make(chan struct{})
	go func() {
		// The parent-death signal is sent when the *thread* that forked ends, so it must live as long as the child.
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

// process is a child that dies with this process.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done <-chan struct{}
}

// startProcess starts cmd with its output in a log file: a pipe of ours would keep `go test` waiting for survivors.
func startProcess(name, log string, cmd *exec.Cmd) (*process, error) {
	out, err := os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	done, err := Begin(cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return &process{name: name, log: log, cmd: cmd, done: done}, nil
}

// running tells if the process has not ended; a nil process is one that was never started.
func (p *process) running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// stop ends the process: politely, and after the grace by force. A nil process is stopped already.
func (p *process) stop(grace time.Duration) {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails only if it has ended
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// wait polls until check is happy, the process has ended, or the context has.
func (p *process) wait(ctx context.Context, check func(context.Context) error) error {
	err := retry(ctx, check, func(error) bool { return p.running() })
	if p.running() {
		if err != nil {
			return fmt.Errorf("%s is not ready: %w\n%s", p.name, err, p.tail())
		}
		return nil
	}
	tail := p.tail()
	if bytes.Contains(tail, []byte("address already in use")) {
		return fmt.Errorf("%s stopped: %w\n%s", p.name, errPortTaken, tail)
	}
	return fmt.Errorf("%s stopped: unexpected end: %s\n%s", p.name, p.cmd.ProcessState, tail)
}

// tail is the end of the log, for an error that can be understood after the directory is gone.
func (p *process) tail() []byte {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return []byte(err.Error())
	}
	const most = 4096
	if len(data) > most {
		data = data[len(data)-most:]
	}
	return data
}

// retry tries every 50 ms until it works, or fails with an error for which again says false. When the context ends
// first, the error is the context's and the last that says more than that.
func retry(ctx context.Context, try func(context.Context) error, again func(error) bool) error {
	var last error
	err := poll(ctx, func() bool {
		err := try(ctx)
		if err == nil || last == nil || ctx.Err() == nil {
			last = err
		}
		return err == nil || !again(err)
	})
	return errors.Join(err, last)
}

// poll calls done every 50 ms until it says true; the error is the context's.
func poll(ctx context.Context, done func() bool) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}
