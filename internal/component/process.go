// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// process describes one short run of a component's binary.
type process struct {
	path     string
	args     []string
	env      []string // added to the image's own environment for a program in an image
	dir      string   // the only directory of the process; "" if it needs none
	deadline time.Duration
	confined bool // with limited memory, a high OOM score and no network
	// stop ends the process instead of a kill, if it succeeds; nil: kill it.
	stop func(running func() bool) error
}

// exitStatus describes how a process ended.
type exitStatus struct {
	code       int   // valid if err is nil
	err        error // it did not start, was stopped, or died of a signal
	ownFailure bool  // it exceeded its deadline, or died of a signal other than SIGKILL
}

// execute runs a process in its own process group, which never outlives this
// call or this process. out receives its output; the process is killed as soon
// as out.overrun is set.
func execute(ctx context.Context, p process, out *outputReader) exitStatus {
	// The kernel sends Pdeathsig when the thread that started the process
	// exits, so the goroutine must stay on its thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := fmt.Errorf("it did not exit within %s and was killed", p.deadline)
	timer := time.AfterFunc(p.deadline, func() { cancel(late) })
	defer timer.Stop()
	out.onOverrun = func(message string) {
		cancel(fmt.Errorf("it continued past the end of the dry run (%q) and was killed", message))
	}

	cmd := exec.CommandContext(ctx, p.path, p.args...)
	cmd.Env = p.env
	cmd.Stdout, cmd.Stderr = io.Writer(out), io.Writer(out)
	dieWithParent(cmd)
	if p.confined {
		confine(cmd)
	}

	cmd.WaitDelay = time.Second
	cmd.Cancel = func() error {
		running := func() bool { return cmd.Process.Signal(syscall.Signal(0)) == nil }
		if p.stop != nil && p.stop(running) == nil {
			return nil
		}

		return killGroup(cmd)
	}
	if p.stop != nil {
		cmd.WaitDelay = stopGrace
	}

	keepDescriptors()
	if err := cmd.Start(); err != nil {
		return exitStatus{err: fmt.Errorf("it cannot be started: %w", err)}
	}

	if p.confined {
		if err := limitMemory(cmd.Process.Pid, dryRunMemory); err != nil {
			_ = killGroup(cmd)
			_ = cmd.Wait()
			return exitStatus{err: fmt.Errorf("its memory cannot be limited: %w", err)}
		}
	}

	err := cmd.Wait()
	// Kill its children too. The group ID cannot be reused while a member
	// lives; without members, only a new group with the same ID, created in
	// this instant, could be hit.
	_ = killGroup(cmd)
	out.flush()
	if ctx.Err() != nil {
		return exitStatus{err: context.Cause(ctx), ownFailure: errors.Is(context.Cause(ctx), late)}
	}

	var exit *exec.ExitError
	switch {
	case err == nil:
		return exitStatus{}
	case errors.As(err, &exit) && exit.Exited():
		return exitStatus{code: exit.ExitCode()}
	default:
		return exitStatus{err: fmt.Errorf("it died: %w", err), ownFailure: exit == nil || !sigkilled(exit)}
	}
}

// dryRunEnv returns the environment without the variables of systemd, and with
// another TMPDIR.
func dryRunEnv(tmp string) []string {
	removed := []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"}
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(removed, name)
	})
	if tmp != "" {
		env = append(env, "TMPDIR="+tmp) // the last value of a variable counts
	}

	return env
}
