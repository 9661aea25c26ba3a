// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/lockfile"
	"github.com/evenkeel/evenkeel/internal/node/supervisor"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// quiet is a service without an init system.
func quiet(t *testing.T) *Service {
	t.Helper()
	t.Setenv("NOTIFY_SOCKET", "")
	n := assert.Value(supervisor.NewNotifier(t.TempDir(), slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(n.Close)

	return &Service{Notifier: n}
}

// holder returns an agent that wants the lock at a path, and its log.
func holder(t *testing.T, path, dir string) (Holder, *bytes.Buffer) {
	t.Helper()
	log := &bytes.Buffer{}
	return Holder{Lock{Flag: "--lock-file", Path: path}, dir, quiet(t), slog.New(slog.NewTextHandler(log, nil))}, log
}

// never is done under a lock that nobody gets.
func never(t *testing.T) func(context.Context) error {
	return func(context.Context) error {
		t.Error("something was done without the lock")
		return nil
	}
}

// toldToLeave waits until an agent that has the lock is told to leave.
func toldToLeave(ctx context.Context, t *testing.T) {
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Second):
		t.Error("nobody told it to leave")
	}
}

func TestALockFileThatCannotBeUsedIsAFailureOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	o, _ := holder(t, filepath.Join(dir, "no", "lock"), filepath.Join(dir, "evenkeel"))
	wantFailed(t, o.Hold(t.Context(), never(t)), Unusable, "--lock-file cannot be used: lock file: its directory does not exist: ")
	assert.Is(t, assert.Err(os.Stat(o.Dir)), os.ErrNotExist, "the directory was made")
}

func TestALockThatOthersCouldTakeIsNotUsed(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "lock-") // others may enter it, unlike a test's own
	assert.NoError(t, err)
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "lock")
	assert.NoError(t, os.Chmod(dir, 0o777))
	o, log := holder(t, path, "")
	err = o.Hold(t.Context(), never(t))
	want := fmt.Sprintf("--lock-file cannot be used: lock file %s: other users could take it: everyone can write to its directory %s, and replace the file: chmod o-w %[2]s, or choose another directory", path, dir)
	wantFailed(t, err, Unusable, "")
	assert.Error(t, err, want)
	assert.NoError(t, os.Chmod(dir, os.ModeSticky|0o777))
	done := false
	err = o.Hold(t.Context(), func(context.Context) error {
		done = true
		return nil
	})
	warning := `level=WARN msg="the node's lock" err="lock file ` + path + ": everyone can write to its directory " + dir
	assert.That(t, done && err == nil && strings.Contains(log.String(), warning),
		"a sticky directory: done is %t, %v, and the log is\n%s", done, err, log.String())
}

func TestAnAgentThatIsAskedToLeaveEndsWithTheErrorOfItsRun(t *testing.T) {
	odd := errors.New("odd")
	for _, c := range []struct {
		name      string
		err, want error // that what is done under the lock ends with
	}{{"cleanly", nil, nil}, {"before there was anything to stop", context.Canceled, nil}, {"with an error", odd, odd}} {
		t.Run(c.name, func(t *testing.T) {
			path, dir := filepath.Join(t.TempDir(), "lock"), t.TempDir()
			o, _ := holder(t, path, dir)
			o.Lock.Bootstrap = true
			err := o.Hold(t.Context(), func(ctx context.Context) error {
				assert.Is(t, assert.Err(lockfile.TryAcquire(checkpoint.AgentLock(dir))), lockfile.ErrHeld, "the directory is not held")
				if err := exec.Command("cat", path).Run(); err != nil { // an open is all that it takes
					t.Error(err)
				}

				toldToLeave(ctx, t)
				return c.err
			})
			assert.That(t, errors.Is(err, c.want) && (c.want != nil || err == nil), "got %v, want %v", err, c.want)
			for _, lock := range []string{path, checkpoint.AgentLock(dir)} {
				l := assert.Value(lockfile.TryAcquire(lock))(t, "it was not given back")
				_ = l.Release()
			}
		})
	}
}

func TestAnAgentThatIsAskedToLeaveAsItGetsTheLockStartsNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	before := foreign(t, path)
	dir := filepath.Join(t.TempDir(), "evenkeel")
	o, log := holder(t, path, dir)
	o.Lock.Bootstrap = true
	ended := make(chan error, 1)
	go func() { ended <- o.Hold(t.Context(), never(t)) }()
	waits(t, os.Getpid())
	next := locker(t, path)
	waits(t, next.Process.Pid) // behind us
	assert.NoError(t, before.Process.Kill())
	assert.NoError(t, <-ended, "it ended with")
	words := `msg="releasing the lock: another process requested the node" why="lock file ` + path
	assert.That(t, strings.Contains(log.String(), words), "the log does not say %s:\n%s", words, log)
	assert.Is(t, assert.Err(os.Stat(dir)), os.ErrNotExist, "the directory was made")
	assert.Eventually(t, "the next process has the lock", func() bool { return lockfile.WhoHolds(path) == next.Process.Pid })
}

// waits returns when a process is in line for a lock.
func waits(t *testing.T, pid int) {
	t.Helper()
	assert.Eventually(t, "a process waits", func() bool { return lockfile.Waiting(pid) })
}

func TestALockThatIsLostIsAFailureOfItsOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	o, _ := holder(t, path, "")
	err := o.Hold(t.Context(), func(ctx context.Context) error {
		foreign(t, path+".new")
		assert.OK(t, os.Rename(path+".new", path))
		toldToLeave(ctx, t)
		return nil
	})
	wantFailed(t, err, Lost, "--lock-file: ")
	assert.Is(t, err, lockfile.ErrLost)
}

func TestAnAgentThatIsStoppedWhileItWaitsForTheLockEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	foreign(t, path)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	o, _ := holder(t, path, "")
	assert.Is(t, o.Hold(ctx, never(t)), context.DeadlineExceeded)
	state := o.Service.Probe.state
	assert.That(t, strings.HasPrefix(state, "waiting for the lock "+path+", held by process "), "it said %q", state)
}

func TestTheHolderOfTheLockWaitsForThePreviousAgentToLeaveTheDirectory(t *testing.T) {
	dir := t.TempDir()
	before := assert.Value(lockfile.TryAcquire(checkpoint.AgentLock(dir)))(t)
	o, log := holder(t, "", dir)
	probe := &o.Service.Probe
	done := make(chan error, 1)
	go func() {
		done <- o.holdDirectory(t.Context(), time.Minute, func(context.Context) error { return nil })
	}()
	state := func() string { probe.mu.Lock(); defer probe.mu.Unlock(); return probe.state }
	assert.Eventually(t, "it waits", func() bool { return state() == "waiting for the previous agent to end" })
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	default:
	}

	assert.NoError(t, before.Release())
	assert.NoError(t, <-done)
	assert.That(t, strings.Contains(log.String(), `msg="waiting for the previous agent to end"`), "the log is %s", log)
}

func TestTheWaitForThePreviousAgentIsLimited(t *testing.T) {
	dir := t.TempDir()
	before := assert.Value(lockfile.TryAcquire(checkpoint.AgentLock(dir)))(t)
	defer func() { _ = before.Release() }()
	o, _ := holder(t, "", dir)
	for _, patience := range []time.Duration{0, 20 * time.Millisecond} {
		wantFailed(t, o.holdDirectory(t.Context(), patience, never(t)), DirectoryHeld, "another agent works on "+dir+": ")
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Is(t, o.holdDirectory(ctx, time.Minute, never(t)), context.Canceled, "told to stop, it says")
}

// locker is a process that is no kubelet, and asks for the lock and keeps it.
func locker(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("flock", "--no-fork", path, "sleep", "600") // of util-linux
	assert.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})

	return cmd
}

// foreign is one that has the lock.
func foreign(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	cmd := locker(t, path)
	assert.Eventually(t, "a process has the lock", func() bool { return lockfile.WhoHolds(path) == cmd.Process.Pid })
	return cmd
}

// waitsFor is how the lock tells who has it.
func waitsFor(pid int, name string) error {
	return fmt.Errorf("%w, as ever", &lockfile.HeldError{Path: "/run/lock/kubelet", By: lockfile.Process{PID: pid, Name: name}})
}

// newQueue is where an agent waits, and its log.
func newQueue(t *testing.T) (*queue, *bytes.Buffer) {
	t.Helper()
	log := &bytes.Buffer{}
	return &queue{path: "/run/lock/kubelet", service: quiet(t), log: slog.New(slog.NewTextHandler(log, nil))}, log
}

const (
	foreignWords = `msg="another program holds the node's lock; this node may have no kubelet; end that process, or give kubelets and agents another --lock-file" file=/run/lock/kubelet holder="process 7 (sleep)"`
	endedWords   = `msg="a child of an ended process still holds the node's lock; this node may have no kubelet; run fuser -v FILE and end that process" file=/run/lock/kubelet took="process 7, which has ended"`
)

// wantWarnings lets these minutes pass, and counts the lines with ERROR since
// the queue began.
func (q *queue) wantWarnings(t *testing.T, log *bytes.Buffer, minutes time.Duration, foreign, ended int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		go q.watch(ctx)
		time.Sleep(warnInterval*minutes + time.Second) // on the bubble's clock
		cancel()
		synctest.Wait()
	})
	text := log.String()
	assert.That(t, strings.Count(text, foreignWords) == foreign && strings.Count(text, endedWords) == ended && strings.Count(text, "level=ERROR") == foreign+ended,
		"want %d and %d warnings:\n%s", foreign, ended, text)
}

func TestAHolderThatIsNoKubeletIsLoggedEveryMinute(t *testing.T) {
	q, log := newQueue(t)
	q.report(waitsFor(7, "sleep"))
	state := "waiting for the lock /run/lock/kubelet, held by process 7 (sleep)"
	assert.That(t, q.service.Probe.state == state && q.service.Probe.ready, "the probe is %+v", &q.service.Probe)
	line := `level=INFO msg="waiting for the node's lock" err="lock file /run/lock/kubelet: the lock is held by process 7 (sleep), as ever"`
	assert.That(t, strings.Contains(log.String(), line), "no line %s in\n%s", line, log)
	q.wantWarnings(t, log, 0, 1, 0)
	q.wantWarnings(t, log, 2, 3, 0)
	q.report(waitsFor(8, "kubelet"))
	q.wantWarnings(t, log, 2, 3, 0)
}

func TestAHolderThatHasEndedIsLoggedOnlyIfItsLockStaysHeld(t *testing.T) {
	q, log := newQueue(t)
	q.report(waitsFor(7, ""))
	state := "waiting for the lock /run/lock/kubelet, held by process 7, which has ended"
	assert.That(t, q.service.Probe.state == state, "the probe is %+v", &q.service.Probe)
	q.wantWarnings(t, log, 1, 0, 0)
	q.wantWarnings(t, log, 3, 0, 2)
	q.report(waitsFor(0, ""))
	q.wantWarnings(t, log, 3, 0, 2)
}

func TestOnlyAProcessThatIsNoKubeletAndNoAgentIsForeign(t *testing.T) {
	for by, want := range map[lockfile.Process]bool{
		{PID: 7, Name: "kubelet"}: false, {PID: 7, Name: "kubelet-v1.36.3"}: false, {PID: 7, Name: "evenkeel-agent"}: false,
		{}: false, {PID: 7}: false, {PID: 7, Name: "sleep"}: true,
	} {
		assert.Equal(t, isForeign(by), want, by, "foreign is")
	}
}
