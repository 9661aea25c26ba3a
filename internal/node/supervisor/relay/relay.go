// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package relay copies what a child process writes to the stderr of this
// process, and keeps the last lines that can say why the child exited. A small
// process of its own copies: it goes on while this process hangs or is stopped,
// and until the end of the output if this process is killed. So the child never
// waits for this process, and no output is lost with it.
//
// It must not know what the lines mean, and its imports stay few: the process
// that copies is this program again, and starts before the packages of the
// program are initialized (see init).
package relay

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// restartPause is the time until a copying process that died is started again.
const restartPause = 100 * time.Millisecond

// Relay is the output of one child. Close must be called when the child has
// ended.
type Relay struct {
	log    *slog.Logger
	to     *os.File
	in     *os.File // the end that the child writes to
	out    *os.File // kept open: if the copying process dies, the child gets no SIGPIPE, and the next process continues
	shared *shared
	memory *os.File // of shared

	closing chan struct{}
	once    sync.Once
	ended   chan struct{} // closed when no copying process is watched any more
}

// Start starts the process that copies to a file.
func Start(to *os.File, log *slog.Logger) (*Relay, error) {
	out, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("relay of the output: %w", err)
	}

	r := &Relay{log: log, to: to, in: in, out: out, closing: make(chan struct{}), ended: make(chan struct{})}
	if r.memory, r.shared, err = newShared(); err == nil {
		var cmd *exec.Cmd
		if cmd, err = r.spawn(); err == nil {
			go r.watch(cmd)
			return r, nil
		}

		r.shared.unmap()
		_ = r.memory.Close()
	}

	_, _ = in.Close(), out.Close()

	return nil, fmt.Errorf("relay of the output: %w", err)
}

// spawn starts a copying process. It has no Pdeathsig: what the child has
// written is copied even if this process dies.
func (r *Relay) spawn() (*exec.Cmd, error) {
	r.shared.begin()
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", // also if the file was replaced, or is not in this mount namespace
		Args: []string{processName}, Env: []string{}, Dir: "/",
		Stdin: r.out, Stderr: r.to, ExtraFiles: []*os.File{r.memory},
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}

	return cmd, cmd.Start()
}

// watch waits for the copying process, and starts another one if it dies before
// Close.
func (r *Relay) watch(cmd *exec.Cmd) {
	defer close(r.ended)
	var err error
	for {
		if err == nil {
			_ = cmd.Wait()
		}

		select {
		case <-r.closing:
			return
		case <-time.After(restartPause):
		}

		if cmd, err = r.spawn(); err != nil {
			r.log.Error("the process that copies the kubelet's log ended and cannot be started again; retrying", "err", err)
		} else {
			r.log.Warn("the process that copies the kubelet's log ended and was started again")
		}
	}
}

// Input returns the file that the child writes to. It is valid until Close.
func (r *Relay) Input() *os.File { return r.in }

// Kept returns the last lines, at most maxText bytes, without those that the
// child has just written. Call it before Close.
func (r *Relay) Kept() []byte { return r.shared.lines() }

// Lines returns the last lines, at most maxText bytes, of a child that has
// exited. It waits for at most this time until everything that the child wrote
// has been read. Descendants of the child that keep the file open do not
// matter.
func (r *Relay) Lines(wait time.Duration) []byte {
	r.settle(wait, func() bool { return r.shared.read() })
	return r.shared.lines()
}

// Drain waits for at most this time until everything that the child wrote has
// been copied.
func (r *Relay) Drain(wait time.Duration) {
	r.settle(wait, func() bool { return r.shared.read() && r.shared.written() })
}

func (r *Relay) settle(wait time.Duration, done func() bool) {
	late := time.After(wait)
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		// In this order: the copying process is busy before it reads.
		if n, err := unix.IoctlGetInt(int(r.out.Fd()), unix.TIOCINQ); err == nil && n == 0 && done() {
			return
		}

		select {
		case <-late:
			return
		case <-time.After(pause):
		}
	}
}

// Close releases the resources of this process. The copying process ends when
// no process has its Input open any more.
func (r *Relay) Close() {
	r.once.Do(func() {
		close(r.closing)
		_, _ = r.in.Close(), r.out.Close()
		go func() {
			<-r.ended // it uses both until then
			r.shared.unmap()
			_ = r.memory.Close()
		}()
	})
}
