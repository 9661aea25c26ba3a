// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/procs"
)

func wait(t *testing.T, p *Process) Exit {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(deadline):
		t.Fatal("the child does not end")
	}

	return p.Exit()
}

func TestExit(t *testing.T) {
	n, _ := unmanaged(t)
	for _, tt := range []struct {
		script string
		want   Exit
		text   string
	}{
		{"exit 0", Exit{Code: 0}, "exit status 0"},
		{"exit 1", Exit{Code: 1}, "exit status 1"},
		{"exit 255", Exit{Code: 255}, "exit status 255"},
		{"kill -KILL $$", Exit{Code: -1, Signal: "killed"}, "signal: killed"},
		{"kill -SEGV $$", Exit{Code: -1, Signal: "segmentation fault"}, "signal: segmentation fault"},
	} {
		p := startShell(t, n, tt.script)
		got := wait(t, p)
		assert.That(t, got == tt.want && got.String() == tt.text, "%s: %+v %q, want %+v %q", tt.script, got, got, tt.want, tt.text)
		assert.Equal(t, p.Stop(time.Hour), got, tt.script, "and then a stop, which returns")
	}
}

func TestExitOfAChildThatAnotherReapedIsUnknown(t *testing.T) {
	exit := exitOf(nil)
	assert.That(t, exit.Code == -1 && exit.Signal == "", "%+v, want code -1 and no signal", exit)
}

func TestStopSendsSIGTERM(t *testing.T) {
	n, _ := unmanaged(t)
	fifo := filepath.Join(shortDir(t), "fifo")
	p := startShell(t, n, "trap 'sleep 0.1; exit 7' TERM; mkfifo "+fifo+"; while :; do sleep 0.01; done")
	assert.Eventually(t, "the trap is set", func() bool { _, err := os.Stat(fifo); return err == nil })
	exit := p.Stop(deadline)
	assert.That(t, exit.Code == 7 && exit.Stopped, "exit %+v, want code 7, stopped", exit)
}

func TestStopCanBeCalledAgain(t *testing.T) {
	n, _ := unmanaged(t)
	p := startShell(t, n, "exec sleep 1000")
	assert.Equal(t, p.Exit(), (Exit{}), "before its end the exit is")
	exits := make([]Exit, 4)
	var wg sync.WaitGroup
	for i := range exits {
		wg.Go(func() { exits[i] = p.Stop(deadline) })
	}

	wg.Wait()
	for _, exit := range append(exits, p.Stop(0), p.Exit()) {
		assert.That(t, exit == exits[0] && exit.Signal == "terminated" && exit.Stopped, "exit %+v, want all like the first of %+v, terminated", exit, exits)
	}
}

func TestAChildThatIgnoresSIGTERMIsKilledAfterTheShortestGrace(t *testing.T) {
	n, _ := unmanaged(t)
	p := startSpeaker(t, n, "deaf speaker", 0)
	p.say(t, "READY=1")
	assert.Eventually(t, "the child is ready, and so deaf", p.Ready)
	first := make(chan Exit)
	go func() { first <- p.Stop(time.Hour) }()
	second := p.Stop(time.Millisecond)
	got := <-first
	assert.That(t, got == second && got.Signal == "killed" && got.Code == -1 && got.Stopped,
		"exits %+v and %+v, want both the same, killed, stopped", got, second)
}

func TestStartErrors(t *testing.T) {
	n, _ := unmanaged(t)
	dir := shortDir(t)
	file := func(name, content string, mode fs.FileMode) string {
		path := filepath.Join(dir, name)
		assert.NoError(t, os.WriteFile(path, []byte(content), mode))
		return path
	}
	for _, tt := range []struct {
		name, path string
		kind       error
		words      string
	}{
		{"missing", dir + "/no", fs.ErrNotExist, "no such file or directory"},
		{"not in PATH", "no-such-program-anywhere", fs.ErrNotExist, "not found in PATH: file does not exist"},
		{"a directory", dir, syscall.EISDIR, "is a directory"},
		{"not executable", file("plain", "#!/bin/sh\n", 0o600), fs.ErrPermission, "not executable: permission denied"},
		{"not a program", file("text", "hello", 0o700), syscall.ENOEXEC, "not a program for this machine: exec format error"},
		{"no interpreter", file("script", "#!/no/such/sh\n", 0o700), fs.ErrNotExist,
			"the file exists, but its interpreter or loader does not: no such file or directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Start(exec.Command(tt.path), 0, n)
			assert.That(t, errors.Is(err, tt.kind) && err.Error() == "start "+tt.path+": "+tt.words, "error %q, want %q, which is %v", err, "start "+tt.path+": "+tt.words, tt.kind)
			exit := wait(t, startShell(t, n, "exit 5"))
			assert.That(t, exit.Code == 5, "after the failure a good one ends with %v", exit)
		})
	}
}

func TestNotifierHasOneChildAtATime(t *testing.T) {
	n, _ := unmanaged(t)
	p := startShell(t, n, "exec sleep 1000")
	assert.Is(t, assert.Err(Start(exec.Command("/bin/true"), 0, n)), ErrRunning)
	p.Stop(deadline)
	exit := wait(t, startShell(t, n, "exit 5"))
	assert.That(t, exit.Code == 5, "the next child ends with %v", exit)
}

func TestChildGetsArgumentsAndFiles(t *testing.T) {
	n, _ := unmanaged(t)
	out := assert.Value(os.Create(filepath.Join(shortDir(t), "out")))(t)
	defer out.Close()
	cmd := exec.Command("sh", "-c", `echo "$0|$1|$A|$PPID"; echo err >&2; readlink /proc/self/fd/0`, "a b", "c") // from PATH
	cmd.Env, cmd.Stdout, cmd.Stderr = []string{"A=1", "PATH=" + os.Getenv("PATH")}, out, out
	p, err := Start(cmd, 0, n)
	assert.NoError(t, err)
	wait(t, p)
	want := fmt.Sprintf("a b|c|1|%d\nerr\n/dev/null\n", os.Getpid())
	got, err := os.ReadFile(out.Name())
	assert.That(t, err == nil && string(got) == want, "the child wrote %q (%v), want %q", got, err, want)
}

func TestChildHasItsOwnProcessGroup(t *testing.T) {
	n, _ := unmanaged(t)
	p := startShell(t, n, "exec sleep 1000")
	assert.Returns(t, p.Pid(), "process group")(unix.Getpgid(p.Pid()))
}

func TestChildDiesWithItsParent(t *testing.T) {
	withoutSystemd(t)
	exe := assert.Value(os.Executable())(t)
	agent := exec.Command(exe, shortDir(t))
	agent.Env, agent.Stderr = append(os.Environ(), roleVar+"=agent"), os.Stderr
	stdin := assert.Value(agent.StdinPipe())(t)
	defer stdin.Close()
	stdout := assert.Value(agent.StdoutPipe())(t)
	assert.NoError(t, agent.Start())
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	assert.Must(t, err == nil && !procs.Ended(pid), "the agent said %q, want the process ID of a living child", line)
	assert.NoError(t, agent.Process.Kill())
	_ = agent.Wait()
	assert.Eventually(t, "the child is gone", func() bool { return procs.Ended(pid) })
}

func TestChildOutlivesEndedThreads(t *testing.T) {
	n, _ := unmanaged(t)
	// Goroutines that end while locked end their threads. These were idle
	// threads, so the thread that forked is among them unless the supervisor
	// keeps it.
	endThreads := func() {
		var wg sync.WaitGroup
		all := make(chan struct{})
		for range 40 {
			wg.Add(1)
			go func() {
				runtime.LockOSThread()
				wg.Done()
				<-all
			}()
		}

		wg.Wait() // each has a thread
		close(all)
		runtime.GC()
	}
	endThreads()
	started := make(chan *Process)
	go func() { started <- startShell(t, n, "exec sleep 1000") }()
	p := <-started
	for range 5 {
		endThreads()
	}

	select {
	case <-p.Done():
		t.Fatalf("the child died: %v", p.Exit())
	case <-time.After(200 * time.Millisecond): // threads end without telling
	}

	exit := p.Stop(deadline)
	assert.That(t, exit.Signal == "terminated", "exit %v, want signal: terminated", exit)
}

func TestNothingIsLeftAfterAHundredChildren(t *testing.T) {
	newSystemd(t, time.Hour)
	n, _ := newNotifier(t)
	count := func() (fds, goroutines int) {
		open := assert.Value(os.ReadDir("/proc/self/fd"))(t)
		return len(open), runtime.NumGoroutine()
	}
	startShell(t, n, "exit 0").Stop(deadline) // what is opened once is open now
	fds, goroutines := count()
	for i := range 100 {
		p := assert.Value(Start(exec.Command("/bin/sleep", "1000"), 0, n))(t)
		p.Stop(deadline)
		if i%10 == 0 {
			assert.Must(t, assert.Err(Start(exec.Command("/dev/null/no"), 0, n)) != nil, "started a missing program")
		}
	}

	assert.Eventually(t, "as many files and goroutines as before", func() bool {
		f, g := count()
		return f <= fds && g <= goroutines
	})
	left, err := os.ReadDir(filepath.Dir(n.childSocket))
	assert.That(t, err == nil && len(left) == 0, "left in the notifier's directory: %v (%v)", left, err)
}

func TestTheOOMScoreIsWrittenOrAWarningLogged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "oom_score_adj")
	assert.NoError(t, os.WriteFile(path, nil, 0o600))
	log := &logBuffer{}
	protectFromOOM(path, log.logger())
	got, err := os.ReadFile(path)
	assert.That(t, err == nil && string(got) == "-999" && log.count("level") == 0, "wrote %q (%v) and logged, want -999 and nothing logged", got, err)
	protectFromOOM(t.TempDir(), log.logger())
	assert.That(t, log.count("level=WARN") == 1 && log.count("not protected from the kernel's OOM killer") == 1, "want one warning")

	const own = "/proc/self/oom_score_adj"
	before := assert.Value(os.ReadFile(own))(t)
	t.Cleanup(func() { _ = os.WriteFile(own, before, 0) })
	ProtectFromOOM(log.logger())
	after := strings.TrimSpace(string(assert.Value(os.ReadFile(own))(t)))
	assert.That(t, (after == "-999") != (log.count("level=WARN") == 2), "this process has the score %s, want -999 or one more warning", after)
}

// fakeSystemctl replaces systemctl by a script.
func fakeSystemctl(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	assert.NoError(t, os.WriteFile(filepath.Join(dir, "systemctl"), []byte("#!/bin/sh\n"+script+"\n"), 0o700))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestShuttingDownWhileSystemdIsStopping(t *testing.T) {
	for script, want := range map[string]bool{
		`[ "$*" = is-system-running ] && echo stopping; exit 1`: true,
		"echo running":             false,
		"echo degraded; exit 1":    false,
		"echo stopping soon":       false,
		"exit 1":                   false,
		"echo stopping >&2; false": false,
	} {
		t.Run(script, func(t *testing.T) {
			fakeSystemctl(t, script)
			assert.Equal(t, shuttingDown(t.Context(), t.TempDir()), want, "shutting down")
		})
	}
}

func TestNotShuttingDownIfUnknown(t *testing.T) {
	fakeSystemctl(t, "echo stopping")
	assert.That(t, !shuttingDown(t.Context(), filepath.Join(t.TempDir(), "no-systemd")), "shutting down without systemd")
	t.Setenv("PATH", t.TempDir())
	assert.That(t, !shuttingDown(t.Context(), t.TempDir()), "shutting down without systemctl")
	assert.That(t, assert.Err(os.Stat("/run/systemd/system")) == nil || !ShuttingDown(t.Context()),
		"this machine has no systemd, and is shutting down")
}

func TestShuttingDownHasATimeLimit(t *testing.T) {
	fakeSystemctl(t, "echo stopping; sleep 30") // sleep keeps the output open when the shell is killed
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	shuttingDown(ctx, t.TempDir())
	assert.That(t, ctx.Err() == nil, "the call waited for systemctl until its context ended")
	cancel()
	assert.That(t, !shuttingDown(ctx, t.TempDir()), "shutting down after the context ended")
}
