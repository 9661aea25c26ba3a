package localcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// errPortTaken means that a program stopped because another program listens on its port.
var errPortTaken = errors.New("port taken")

// StartTied starts a program that dies with the calling process: the kernel sends it SIGKILL, unless cmd's SysProcAttr says otherwise.
// The program has its own process group. The channel is closed when the program has ended and cmd's ProcessState is set.
func StartTied(cmd *exec.Cmd) (<-chan struct{}, error) {
	if cmd.SysProcAttr == nil {
		// An own process group: only the parent gets an interrupt from the terminal, and stops its children in order.
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

// startProcess starts cmd with its output in a log file. With a pipe, `go test` would wait for surviving processes.
func startProcess(name, log string, cmd *exec.Cmd) (*process, error) {
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
	return &process{name: name, log: log, cmd: cmd, done: done}, nil
}

// running reports whether the process runs. A nil process was never started.
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

// stop sends SIGTERM, and SIGKILL after the grace period. A nil process is already stopped.
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

// wait polls until check succeeds, the process ends, or the context ends.
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

// Probe sends a GET request, and returns nil if the answer is 200 OK within a second.
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

// tail returns the end of the log for an error, because the directory may be removed.
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

// retry calls try every 50 ms until it succeeds, or again returns false for its error. If the context ends first, the error has
// also the last error of try.
func retry(ctx context.Context, try func(context.Context) error, again func(error) bool) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := try(ctx)
		if err == nil || last == nil || ctx.Err() == nil {
			last = err
		}
		return err == nil || !again(err), nil
	})
	return errors.Join(err, last)
}
