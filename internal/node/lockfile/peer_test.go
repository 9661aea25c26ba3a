// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package lockfile

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/output"
)

// contendVar has a Contender, in JSON, for this test binary, started again.
const contendVar = "LOCKFILE_TEST_CONTEND"

// contend prints what happens to a contender: "waiting ...", "held", "contended
// ...", "notice ...". A line of input makes it release the lock, the end of its
// input makes it end.
func contend(text string) {
	var c Contender
	exitIf(json.Unmarshal([]byte(text), &c))
	starve := os.Getenv(starveVar) != ""
	c.Notice = func(err error) { fmt.Println("notice", err) }
	if starve {
		starveOfFiles()
	}

	claim, err := c.Acquire(context.Background(), func(err error) {
		if starve {
			feed()
		}

		fmt.Println("waiting", err)
	})
	exitIf(err)
	fmt.Println("held")
	go func() {
		<-claim.Contended()
		fmt.Println("contended", claim.Why())
	}()
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err == nil {
		fmt.Println("released", claim.Release())
		_, _ = in.ReadString('\n')
	}

	os.Exit(0)
}

// exitIf ends a process that this test has started if it failed.
func exitIf(err error) {
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
}

// tracedVar makes a process stop when it has started, traced by the thread that
// started it.
const tracedVar = "LOCKFILE_TEST_TRACED"

// starveVar makes a contender have one file descriptor: enough for the file,
// and none for inotify.
const starveVar = "LOCKFILE_TEST_STARVE"

var plenty unix.Rlimit

func starveOfFiles() {
	if r, w, err := os.Pipe(); err == nil { // Go's own files are open from now on
		_, _ = r.Close(), w.Close()
	}

	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &plenty)
	next, err := unix.Dup(0) // the lowest that is free
	exitIf(err)
	_ = unix.Close(next)
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(next) + 1, Max: plenty.Max})
}

func feed() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &plenty) }

// peer is another process.
type peer struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	said  output.Buffer
	heard int           // lines
	ended chan struct{} // closed when it cannot say more
}

// patience is the limit for every wait on a busy machine.
const patience = 30 * time.Second

// startPeer starts a contender in another process.
func startPeer(t *testing.T, c Contender, env ...string) *peer {
	t.Helper()
	return startPeerAs(t, c, []string{"/proc/self/exe"}, env...)
}

// startHolding starts a contender in another process, and waits until it has
// the lock.
func startHolding(t *testing.T, c Contender) *peer {
	t.Helper()
	p := startPeer(t, c)
	p.hears("held")
	return p
}

// startWaiting starts a contender in another process, and waits until it waits
// for the lock.
func startWaiting(t *testing.T, c Contender) *peer {
	t.Helper()
	p := startPeer(t, c)
	queued(t, p.pid())
	return p
}

func wantHolder(t *testing.T, path string, want *peer) {
	t.Helper()
	assert.Equal(t, WhoHolds(path), want.pid(), "process has the lock")
}

// startPeerAs starts a contender with a command line that ends in this test
// binary.
func startPeerAs(t *testing.T, c Contender, argv []string, env ...string) *peer {
	t.Helper()
	text := assert.Value(json.Marshal(map[string]any{"Path": c.Path, "Yield": c.Yield, "ReopenEvery": c.ReopenEvery}))(t)
	return start(t, argv, append(env, contendVar+"="+string(text))...)
}

// start starts a process.
func start(t *testing.T, argv []string, env ...string) *peer {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	p := &peer{t: t, cmd: cmd, ended: make(chan struct{})}
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	if slices.Contains(env, tracedVar+"=1") {
		cmd.SysProcAttr = &unix.SysProcAttr{Ptrace: true, Setpgid: true}
	}

	p.stdin = assert.Value(cmd.StdinPipe())(t)
	stdout := assert.Value(cmd.StdoutPipe())(t)
	assert.NoError(t, cmd.Start())
	go func() { _, _ = io.Copy(&p.said, stdout); close(p.ended) }()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("process %d said\n%s", p.pid(), p.said.String())
		}
	})

	return p
}

func (p *peer) pid() int { return p.cmd.Process.Pid }

// kill ends it with SIGKILL.
func (p *peer) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended // Wait closes the pipe
	_ = p.cmd.Wait()
}

func (p *peer) signal(s unix.Signal) {
	p.t.Helper()
	assert.NoError(p.t, p.cmd.Process.Signal(s))
}

func (p *peer) release() {
	p.t.Helper()
	assert.NoError(p.t, assert.Err(io.WriteString(p.stdin, "\n")))
	p.hears("released <nil>")
}

// hears waits for the next line with this prefix.
func (p *peer) hears(prefix string, words ...string) {
	p.t.Helper()
	line := ""
	assert.Eventually(p.t, fmt.Sprintf("process %d says %q", p.pid(), prefix), func() bool {
		ended := false
		select {
		case <-p.ended:
			ended = true
		default:
		}

		lines := strings.SplitAfter(p.said.String(), "\n")
		for ; p.heard < len(lines)-1 && line == ""; p.heard++ { // the last one is not complete
			if strings.HasPrefix(lines[p.heard], prefix) {
				line = lines[p.heard]
			}
		}

		assert.Must(p.t, line != "" || !ended, "process %d ended before it said %q", p.pid(), prefix)
		return line != ""
	})
	for _, w := range words {
		assert.That(p.t, strings.Contains(line, w), "line %q lacks %q", line, w)
	}
}

// saidNothingOf fails if a line with this prefix was printed.
func (p *peer) saidNothingOf(prefix string) {
	p.t.Helper()
	assert.That(p.t, !strings.Contains("\n"+p.said.String(), "\n"+prefix), "unexpected line with %q", prefix)
}

// queued waits until a process waits for a lock.
func queued(t *testing.T, pid int) {
	t.Helper()
	assert.Eventually(t, fmt.Sprintf("process %d waits for the lock", pid), func() bool { return Waiting(pid) })
}

func lockPath(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "lock")
}

// touchOpen opens and closes the file.
func touchOpen(t *testing.T, path string) {
	t.Helper()
	file := assert.Value(os.Open(path))(t)
	_ = file.Close()
}
