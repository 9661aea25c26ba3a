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

// process is one short run of a component's binary.
type process struct {
	path     string
	args     []string
	env      []string // of a program in an image, the image's stands
	dir      string   // the one directory that is for it; "" if it needs none
	deadline time.Duration
	confined bool // with bounded memory, first in the queue of the OOM killer, without the network
	// stop has it end by itself, soon, if it is still running; with an error, or without a stop, it is killed.
	stop func(running func() bool) error
}

// ending is how a process came to its end.
type ending struct {
	code   int   // the exit code, if err is nil
	err    error // it did not start, was stopped by us, or died of a signal
	itself bool  // err is the process's own doing: it exceeded its deadline, or died of a signal other than SIGKILL
}

// execute runs a process to its end, in a process group of its own that never outlives this call, nor the death of
// this process. out gets what it writes; if out.strayed is set the process is killed at once.
func execute(ctx context.Context, p process, out *transcript) ending {
	// The kernel sends Pdeathsig when the thread that forked dies, so that this goroutine must keep its thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := fmt.Errorf("it did not come to an end within %s and was killed", p.deadline)
	timer := time.AfterFunc(p.deadline, func() { cancel(late) })
	defer timer.Stop()
	out.onStray = func(line string) {
		cancel(fmt.Errorf("it went on where the dry run should have ended (%q) and was killed", line))
	}

	cmd := exec.CommandContext(ctx, p.path, p.args...)
	cmd.Env = p.env
	cmd.Stdout, cmd.Stderr = io.Writer(out), io.Writer(out)
	dieWithUs(cmd)
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
		return ending{err: fmt.Errorf("it cannot be run: %w", err)}
	}
	if p.confined {
		if err := limit(cmd.Process.Pid, dryRunMemory); err != nil {
			_ = killGroup(cmd)
			_ = cmd.Wait()
			return ending{err: fmt.Errorf("its memory cannot be limited: %w", err)}
		}
	}
	err := cmd.Wait()
	// What it started itself goes with it. The group's number cannot be anybody else's while a member lives, and with
	// none left there is nobody to hit but a new group, which would need this very number in the same instant.
	_ = killGroup(cmd)
	out.flush()
	if ctx.Err() != nil {
		return ending{err: context.Cause(ctx), itself: errors.Is(context.Cause(ctx), late)}
	}
	var exit *exec.ExitError
	switch {
	case err == nil:
		return ending{}
	case errors.As(err, &exit) && exit.Exited():
		return ending{code: exit.ExitCode()}
	default:
		return ending{err: fmt.Errorf("it died: %w", err), itself: exit == nil || !killed(exit)}
	}
}

// dryRunEnv is our environment without what would let the process speak to systemd, and with a TMPDIR of its own.
func dryRunEnv(tmp string) []string {
	gone := []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"}
	if tmp != "" {
		gone = append(gone, "TMPDIR")
	}
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(gone, name)
	})
	if tmp != "" {
		env = append(env, "TMPDIR="+tmp)
	}
	return env
}
