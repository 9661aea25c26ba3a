package main

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
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/lockfile"
	"github.com/evenkeel/evenkeel/internal/node/supervisor"
	"github.com/evenkeel/evenkeel/internal/program"
)

func TestWhatIsWrongWithTheNodesLockIsAUsageError(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		agent, kubelet []string
		want           string
	}{
		{[]string{"--bootstrap"}, nil, "--bootstrap needs --lock-file: without a lock nobody could ask this kubelet to leave"},
		{[]string{"--bootstrap", "--lock-file="}, nil, "--bootstrap needs --lock-file"},
		{nil, []string{"--exit-on-lock-contention"}, "the kubelet's --exit-on-lock-contention needs a --lock-file, as it does without an agent"},
		{[]string{"--lock-file=kubelet.lock"}, nil, `--lock-file must be an absolute path, not "kubelet.lock"`},
		{[]string{"--lock-file=/run/a"}, []string{"--lock-file=/run/a"}, "--lock-file is given twice: to the agent, and to its kubelet (/run/a), whose lock the agent takes: give one"},
		{[]string{"--lock-file=/run/a"}, []string{"--lock-file=/run/b"}, "--lock-file is given twice"},
		{[]string{"--lock-file=" + dir + "/kubelet.lock"}, nil, "--lock-file " + dir + "/kubelet.lock is the one that the agent gives it: choose another path"},
		{[]string{"--lock-file=" + dir + "/agent.lock"}, nil, "--lock-file " + dir + "/agent.lock is in --dynamic-config-dir, where only who has the lock may write: choose another directory"},
		{[]string{"--lock-file=" + dir + "//current"}, nil, "--lock-file " + dir + "//current is in --dynamic-config-dir"},
		{nil, []string{"--lock-file=" + dir + "/../" + filepath.Base(dir) + "/agent.lock"}, "the kubelet's --lock-file " + dir + "/agent.lock is in --dynamic-config-dir"},
		{[]string{"--probe-socket=probe.sock"}, nil, `--probe-socket must be an absolute path of at most 107 bytes, not "probe.sock"`},
		{[]string{"--probe-socket=/" + strings.Repeat("x", 107)}, nil, `--probe-socket must be an absolute path of at most 107 bytes, not "/xxx`},
	} {
		args := append(append(c.agent, "--dynamic-config-dir="+dir, "--", "/not/there"), c.kubelet...)
		_, err := runs(t, args...)
		wantUsage(t, err, c.want)
	}
	if left, err := filepath.Glob(dir + "/*"); err != nil || len(left) > 0 {
		t.Errorf("in the directory are %q, %v", left, err)
	}
}

func TestWhichLockAnAgentContendsForAndAsWhat(t *testing.T) {
	for _, c := range []struct {
		name    string
		o       options
		kubelet []string
		want    contention
	}{
		{"none", options{}, nil, contention{"--lock-file", "", false, v1alpha1.RunModeHost}},
		{"the agent's", options{lockFile: "/run/a"}, nil, contention{"--lock-file", "/run/a", false, v1alpha1.RunModeSelfHosted}},
		{"the agent's, until asked", options{lockFile: "/run/a", bootstrap: true}, nil, contention{"--lock-file", "/run/a", true, v1alpha1.RunModeBootstrap}},
		{"the kubelet's", options{}, []string{"--lock-file=/run/a"}, contention{"the kubelet's --lock-file", "/run/a", false, v1alpha1.RunModeHost}},
		{"the kubelet's, until asked", options{bootstrap: true}, []string{"--lock-file=/run/a"}, contention{"the kubelet's --lock-file", "/run/a", true, v1alpha1.RunModeBootstrap}},
		{"the kubelet's, as it would", options{}, []string{"--lock-file=/run/a", "--exit-on-lock-contention"}, contention{"the kubelet's --lock-file", "/run/a", true, v1alpha1.RunModeBootstrap}},
		{"the agent's, as the kubelet would", options{lockFile: "/run/a"}, []string{"--exit-on-lock-contention"}, contention{"--lock-file", "/run/a", true, v1alpha1.RunModeBootstrap}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.dynamicConfigDir = "/var/lib/evenkeel"
			k, err := component.ParseKubelet(append([]string{"/usr/bin/kubelet"}, c.kubelet...))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := c.o.contention(k); err != nil || got != c.want {
				t.Errorf("got %+v, %v, want %+v", got, err, c.want)
			}
		})
	}
}

func TestAKubeletHasALockOfItsOwnWhereverTheAgentHasAny(t *testing.T) {
	for _, c := range []struct{ dir, lock, want string }{
		{"", "", ""}, {"/var/lib/evenkeel/", "", "/var/lib/evenkeel/kubelet.lock"},
		{"/var/lib/evenkeel", "/run/a", "/var/lib/evenkeel/kubelet.lock"}, {"", "/run/a", "/run/a.kubelet"},
	} {
		if got := (&options{dynamicConfigDir: c.dir}).kubeletLock(contention{path: c.lock}); got != c.want {
			t.Errorf("with the directory %q and the lock %q: %q, want %q", c.dir, c.lock, got, c.want)
		}
	}
}

// quiet is a teller without an init system.
func quiet(t *testing.T) teller {
	t.Helper()
	t.Setenv("NOTIFY_SOCKET", "")
	n, err := supervisor.NewNotifier(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return teller{n, &probe{}}
}

func TestALockFileThatCannotBeUsedHasAnExitCodeOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink("elsewhere", link); err != nil {
		t.Fatal(err)
	}
	for path, words := range map[string]string{
		dir: "is a directory", filepath.Join(dir, "no", "lock"): "its directory does not exist",
		link: "it is a symbolic link, and that is not followed", "/proc/version/lock": "not a directory",
	} {
		o := &options{dynamicConfigDir: filepath.Join(dir, "evenkeel")}
		err := o.hold(t.Context(), contention{flag: "--lock-file", path: path}, quiet(t), slog.New(slog.DiscardHandler), func(context.Context) error {
			t.Errorf("%s: something was done without the lock", path)
			return nil
		})
		var coded *program.Exit
		if !errors.As(err, &coded) || coded.Code != exitLock || !strings.HasPrefix(err.Error(), "--lock-file cannot be used: lock file: ") || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want exit code 7 and %q", path, err, words)
		}
		if _, err := os.Stat(o.dynamicConfigDir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the directory was made: %v", path, err)
		}
	}
}

func TestALockThatOthersCouldTakeIsNotUsed(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "lock-") // others may enter it, unlike a test's own
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "lock")
	var log strings.Builder
	hold := func(mode os.FileMode) (done bool, err error) {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		log.Reset()
		err = (&options{}).hold(t.Context(), contention{flag: "--lock-file", path: path}, quiet(t), slog.New(slog.NewTextHandler(&log, nil)), func(context.Context) error {
			done = true
			return nil
		})
		return done, err
	}
	done, err := hold(0o777)
	var coded *program.Exit
	want := fmt.Sprintf("--lock-file cannot be used: lock file %s: others could take it: everybody may write to its directory %s, and replace the file: chmod o-w %[2]s, or choose another directory", path, dir)
	if done || !errors.As(err, &coded) || coded.Code != exitLock || err.Error() != want {
		t.Errorf("everybody's directory: done is %t, %v, want exit code 7 and %q", done, err, want)
	}
	done, err = hold(os.ModeSticky | 0o777)
	if !done || err != nil || !strings.Contains(log.String(), `level=WARN msg="the node's lock" err="lock file `+path+": everybody may write to its directory "+dir) {
		t.Errorf("a sticky directory: done is %t, %v, and the log is\n%s", done, err, log.String())
	}
}

func TestWhoIsAskedToLeaveHasDoneWhatItWasAskedFor(t *testing.T) {
	odd := errors.New("odd")
	for _, c := range []struct {
		name      string
		err, want error // that what is done under the lock ends with
	}{{"cleanly", nil, nil}, {"before there was anything to stop", context.Canceled, nil}, {"with an error", odd, odd}} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "lock")
			o, log := &options{dynamicConfigDir: t.TempDir()}, slog.New(slog.DiscardHandler)
			err := o.hold(t.Context(), contention{flag: "--lock-file", path: path, bootstrap: true}, quiet(t), log, func(ctx context.Context) error {
				if _, err := lockfile.TryAcquire(filepath.Join(o.dynamicConfigDir, agentLock)); !errors.Is(err, lockfile.ErrHeld) {
					t.Errorf("the directory is not held: %v", err)
				}
				if err := exec.Command("cat", path).Run(); err != nil { // an open is all that it takes
					t.Error(err)
				}
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Second):
					t.Error("nobody told it to leave")
				}
				return c.err
			})
			if !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("got %v, want %v", err, c.want)
			}
			for _, lock := range []string{path, filepath.Join(o.dynamicConfigDir, agentLock)} {
				if l, err := lockfile.TryAcquire(lock); err != nil {
					t.Errorf("it was not given back: %v", err)
				} else {
					_ = l.Release()
				}
			}
		})
	}
}

func TestWhoIsAskedToLeaveAsItGetsTheLockStartsNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	before := foreign(t, path)
	var log bytes.Buffer
	o := &options{dynamicConfigDir: filepath.Join(t.TempDir(), "evenkeel")}
	ended := make(chan error, 1)
	go func() {
		ended <- o.hold(t.Context(), contention{flag: "--lock-file", path: path, bootstrap: true}, quiet(t), slog.New(slog.NewTextHandler(&log, nil)), func(context.Context) error {
			t.Error("something was started")
			return nil
		})
	}()
	waits(t, os.Getpid())
	next := locker(t, path)
	waits(t, next.Process.Pid) // behind us
	if err := before.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v, want exit code 0", err)
	}
	if words := `msg="giving the lock on at once: another is to run this node" why="lock file ` + path; !strings.Contains(log.String(), words) {
		t.Errorf("the log does not say %s:\n%s", words, &log)
	}
	if _, err := os.Stat(o.dynamicConfigDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory was made: %v", err)
	}
	for deadline := time.Now().Add(10 * time.Second); lockfile.WhoHolds(path) != next.Process.Pid; <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d has the lock, want %d", lockfile.WhoHolds(path), next.Process.Pid)
		}
	}
}

// waits returns when a process is in line for a lock.
func waits(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !lockfile.Waiting(pid); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d does not wait", pid)
		}
	}
}

func TestALockThatIsLostHasAnExitCodeOfItsOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	log := slog.New(slog.DiscardHandler)
	err := (&options{}).hold(t.Context(), contention{flag: "--lock-file", path: path}, quiet(t), log, func(ctx context.Context) error {
		foreign(t, path+".new")
		if err := os.Rename(path+".new", path); err != nil {
			t.Error(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Second):
			t.Error("nobody told it to leave")
		}
		return nil
	})
	var coded *program.Exit
	if !errors.As(err, &coded) || coded.Code != exitLost || !errors.Is(err, lockfile.ErrLost) || !strings.HasPrefix(err.Error(), "--lock-file: ") {
		t.Errorf("got %v, want exit code 8", err)
	}
}

func TestWhoIsToldToStopWhileItWaitsForTheLockStops(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	foreign(t, path)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	tell := quiet(t)
	err := (&options{}).hold(ctx, contention{flag: "--lock-file", path: path}, tell, slog.New(slog.DiscardHandler), func(context.Context) error {
		t.Error("something was done without the lock")
		return nil
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want that time is up", err)
	}
	if state := tell.probe.state; !strings.HasPrefix(state, "waiting for the lock "+path+", held by process ") {
		t.Errorf("it said %q", state)
	}
}

func TestWhoHasTheLockWaitsForTheAgentBeforeToLeaveTheDirectory(t *testing.T) {
	dir := t.TempDir()
	before, err := lockfile.TryAcquire(filepath.Join(dir, agentLock))
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	tell := quiet(t)
	done := make(chan error, 1)
	o := &options{dynamicConfigDir: dir}
	go func() {
		done <- o.holdDirectory(t.Context(), time.Minute, tell, slog.New(slog.NewTextHandler(&log, nil)), func(context.Context) error { return nil })
	}()
	state := func() string { tell.probe.mu.Lock(); defer tell.probe.mu.Unlock(); return tell.probe.state }
	for deadline := time.Now().Add(10 * time.Second); state() != "waiting for the agent before to end"; <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("its state is %q", state())
		}
	}
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	if err := before.Release(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), `msg="waiting for the agent before to end"`) {
		t.Errorf("the log is %s", &log)
	}
}

func TestAnAgentThatDoesNotLeaveTheDirectoryIsNotWaitedForForEver(t *testing.T) {
	dir := t.TempDir()
	before, err := lockfile.TryAcquire(filepath.Join(dir, agentLock))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = before.Release() }()
	o := &options{dynamicConfigDir: dir}
	never := func(context.Context) error { t.Error("something was done"); return nil }
	log := slog.New(slog.DiscardHandler)
	for _, patience := range []time.Duration{0, 20 * time.Millisecond} {
		err = o.holdDirectory(t.Context(), patience, quiet(t), log, never)
		var coded *program.Exit
		if !errors.As(err, &coded) || coded.Code != exitHeld || !strings.HasPrefix(err.Error(), "another agent works on "+dir+": ") {
			t.Errorf("for %s: %v, want exit code 5", patience, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := o.holdDirectory(ctx, time.Minute, quiet(t), log, never); !errors.Is(err, context.Canceled) {
		t.Errorf("told to stop, it says %v", err)
	}
}

// locker is a process that is no kubelet, and asks for the lock and keeps it.
func locker(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("flock", "--no-fork", path, "sleep", "600") // of util-linux
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
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
	var err error
	for deadline := time.Now().Add(10 * time.Second); ; <-time.After(5 * time.Millisecond) {
		var lock *lockfile.Lock
		lock, err = lockfile.TryAcquire(path)
		var held *lockfile.HeldError
		if errors.As(err, &held) && held.By == (lockfile.Process{PID: cmd.Process.Pid, Name: "sleep"}) {
			return cmd
		}
		if err == nil {
			err = lock.Release()
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d does not have the lock: %v", cmd.Process.Pid, err)
		}
	}
}

func TestANewerKubeletThatHasRunHereIsNamed(t *testing.T) {
	for _, c := range []struct {
		ours     string
		versions []string
		want     string
	}{
		{"v1.36.3", nil, ""},
		{"v1.36.3", []string{"v1.36.3", "v1.35.9"}, ""},
		{"v1.35.9", []string{"v1.36.3", "v1.35.9"}, "v1.36.3"},
		{"v1.9.9", []string{"v1.35.9", "v1.36.3", "v1.10.0"}, "v1.36.3"},
		{"v1.36.0-rc.1", []string{"v1.36.0"}, "v1.36.0"},
		{"v1.36.3", []string{"lost+found"}, ""},
		{"weekly", []string{"v1.36.3"}, ""},
	} {
		if got := newerThan(c.ours, c.versions); got != c.want {
			t.Errorf("newer than %s of %q: %q, want %q", c.ours, c.versions, got, c.want)
		}
	}
}
