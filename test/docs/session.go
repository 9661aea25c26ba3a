// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/output"
)

// Session is a shell at which the commands of a page are typed, one after
// another: variables, exports and the working directory last. Standard input is
// a terminal on which every question is answered with y. Close ends it.
type Session struct {
	// Mounts are shell commands that are run before each command, in a mount
	// namespace of its own; empty: there is none.
	Mounts string

	state string // file with the variables
	kept  []*keptRunning
}

// NewSession begins a session in a working directory with these variables, each
// NAME=VALUE, and no others. Files of its own are in state, a directory.
func NewSession(workdir, state string, env ...string) (*Session, error) {
	s := &Session{state: filepath.Join(state, "variables")}
	var b strings.Builder
	for _, v := range append(env, "PWD="+workdir) {
		name, value, _ := strings.Cut(v, "=")
		fmt.Fprintf(&b, "export %s='%s'\n", name, strings.ReplaceAll(value, "'", `'\''`))
	}

	return s, os.WriteFile(s.state, []byte(b.String()), 0o600)
}

// patience is how long a command that keeps running may take to print what the
// page says, before it is ended.
const patience = 10 * time.Second

// typed runs a command in the state that the commands before it have left, and
// leaves it to the next one.
const typed = `eval "$3" || exit; set -a; . "$1"; cd "$PWD" || exit; trap 'export -p >"$1"' EXIT; eval "$2"`

// Run types a command and returns what it prints and its exit code. The error
// says that it did not end.
func (s *Session) Run(ctx context.Context, text string) (_ string, code int, err error) {
	defer must.Catch(&err)

	terminal, keyboard := must.Get2(openTerminal())
	defer keyboard.Close()
	defer terminal.Close()
	must.Get(keyboard.WriteString("y\ny\ny\n")) // the answers
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "bash", "-c", typed, "bash", s.state, text, s.Mounts)
	cmd.Env = []string{"TERM=dumb", "PATH=" + os.Getenv("PATH")}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if s.Mounts != "" {
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	}

	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	runtime.LockOSThread() // the parent-death signal is about the thread
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	if ctx.Err() != nil {
		return out.String(), 0, fmt.Errorf("it has not ended: %w", ctx.Err())
	}
	if _, is := errors.AsType[*exec.ExitError](err); err != nil && !is {
		return out.String(), 0, err
	}

	return out.String(), cmd.ProcessState.ExitCode(), nil
}

// openTerminal returns both ends of a new terminal.
func openTerminal() (terminal, keyboard *os.File, err error) {
	defer must.Catch(&err)

	keyboard = must.Get(os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0))
	number := must.Get(unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN))
	must.OK(unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0))
	terminal = must.Get(os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0))

	return terminal, keyboard, nil
}

// keptRunning is a command that keeps running.
type keptRunning struct {
	program string   // its first word
	page    []string // what it prints by the time that it is ended
	cmd     *exec.Cmd
	done    <-chan struct{}
	out     *output.Buffer
}

// Keep types a command that keeps running, and returns when it has printed
// something. One of the same program that was started before is ended first.
// The error says that it has ended, or that it prints nothing. What it has
// printed is compared with what the page says when it is ended.
func (s *Session) Keep(ctx context.Context, text string, page []string) (err error) {
	defer must.Catch(&err)

	program, _, _ := strings.Cut(text, " ")
	for i, k := range s.kept {
		if k.program == program {
			s.kept = slices.Delete(s.kept, i, i+1)
			must.OK(k.end(patience))
			break
		}
	}

	k := &keptRunning{program: program, page: page, out: &output.Buffer{}}
	k.cmd = exec.Command("bash", "-c", `. "$1"; cd "$PWD" || exit; eval "exec $2"`, "bash", s.state, text)
	k.cmd.Env = []string{"TERM=dumb"}
	k.cmd.Stdout, k.cmd.Stderr = k.out, k.out
	k.done = must.Get(localcluster.StartTied(k.cmd))
	for k.out.String() == "" {
		select {
		case <-k.done:
			return fmt.Errorf("it should keep running, and has ended: %s", k.out)
		case <-ctx.Done():
			return errors.Join(errors.New("it has printed nothing"), k.end(0))
		case <-time.After(10 * time.Millisecond):
		}
	}

	s.kept = append(s.kept, k)

	return nil
}

// end asks a command to end when it has printed what the page says, or after
// this long, and waits until it has ended.
func (k *keptRunning) end(limit time.Duration) error {
	for deadline, ended := time.Now().Add(limit), false; !ended && time.Now().Before(deadline) && Compare(k.page, k.out.String()) != nil; {
		select {
		case <-k.done:
			ended = true
		case <-time.After(100 * time.Millisecond):
		}
	}

	if err := k.cmd.Process.Signal(syscall.SIGTERM); errors.Is(err, os.ErrProcessDone) {
		<-k.done
		return fmt.Errorf("%s should have kept running, and has ended: %s", k.program, k.out)
	} else if err != nil {
		return fmt.Errorf("end %s: %w", k.program, err)
	}

	select {
	case <-k.done:
		if err := Compare(k.page, k.out.String()); err != nil {
			return fmt.Errorf("%s: %w", k.program, err)
		}

		return nil
	case <-time.After(time.Minute):
		return errors.Join(fmt.Errorf("%s does not end: %s", k.program, k.out), k.cmd.Process.Kill())
	}
}

// Close ends all commands that keep running. The error says which have ended
// before.
func (s *Session) Close() error {
	var errs []error
	for _, k := range s.kept {
		errs = append(errs, k.end(patience))
	}

	s.kept = nil

	return errors.Join(errs...)
}
