// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/output"
	"github.com/evenkeel/evenkeel/testkit/procs"
)

const deadline = 30 * time.Second

// roleVar makes this test binary act as an agent: it starts a relay, and a
// shell with the script as its child.
const roleVar = "RELAY_TEST_AGENT"

func TestMain(m *testing.M) {
	if script := os.Getenv(roleVar); script != "" {
		beAgent(script)
	}

	os.Exit(m.Run())
}

func beAgent(script string) {
	r := must.Get(Start(os.Stderr, slog.New(slog.DiscardHandler)))
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Stderr = r.Input()
	must.OK(cmd.Start())
	fmt.Println(cmd.Process.Pid)
	_ = cmd.Wait()
	fmt.Printf("%q\n", r.Lines(deadline))
	_, _ = os.Stdin.Read(make([]byte, 1))
	os.Exit(0)
}

// agent is a process that relays the output of a script.
type agent struct {
	*exec.Cmd
	child int
	says  *bufio.Reader
}

// startAgent starts an agent with this destination.
func startAgent(t *testing.T, to *os.File, script string) *agent {
	t.Helper()
	exe := assert.Value(os.Executable())(t)
	a := &agent{Cmd: exec.Command(exe)}
	a.Env, a.Stderr = append(os.Environ(), roleVar+"="+script), to
	stdin := assert.Value(a.StdinPipe())(t)
	stdout := assert.Value(a.StdoutPipe())(t)
	assert.NoError(t, a.Start())
	t.Cleanup(func() { _ = stdin.Close(); _ = a.Process.Kill(); _ = a.Wait() })
	a.says = bufio.NewReader(stdout)
	line, _ := a.says.ReadString('\n')
	a.child = assert.Value(strconv.Atoi(strings.TrimSpace(line)))(t, "the agent says", line)

	return a
}

// sink is a destination that is read all the time.
type sink struct {
	output.Buffer
	file *os.File      // the end to write to
	done chan struct{} // closed at the end of the file
}

// pipe returns both ends of a pipe, which are closed when the test ends.
func pipe(t *testing.T) (out, in *os.File) {
	t.Helper()
	out, in, err := os.Pipe()
	assert.NoError(t, err)
	t.Cleanup(func() { _, _ = in.Close(), out.Close() })

	return out, in
}

func newSink(t *testing.T) *sink {
	t.Helper()
	out, in := pipe(t)
	s := &sink{file: in, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		_, _ = io.Copy(s, out)
	}()

	return s
}

// ended waits until no process has the file open any more, and returns what was
// written.
func (s *sink) ended(t *testing.T) string {
	t.Helper()
	_ = s.file.Close()
	select {
	case <-s.done:
	case <-time.After(deadline):
		t.Fatalf("after %v the destination is still open", deadline)
	}

	return s.String()
}

func startRelay(t *testing.T, to *os.File, log io.Writer) *Relay {
	t.Helper()
	r := assert.Value(Start(to, slog.New(slog.NewTextHandler(log, nil))))(t)
	t.Cleanup(r.Close)
	return r
}

// run runs a script as the child of a relay until it exits, and returns the
// last lines.
func run(t *testing.T, r *Relay, script string) string {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Stderr = r.Input()
	assert.NoError(t, cmd.Start())
	_ = cmd.Wait()

	return string(r.Lines(deadline))
}

// copiers returns the copying processes of this process.
func copiers() (pids []int) {
	for _, p := range procs.Children("/proc", os.Getpid()) {
		if p.Argv[0] == processName { // a zombie has no arguments
			pids = append(pids, p.PID)
		}
	}

	return pids
}

// copier waits for the only copying process of this process, and until it has
// the name that people see.
func copier(t *testing.T) (pid int) {
	t.Helper()
	assert.Eventually(t, "one copying process", func() bool {
		pids := copiers()
		if len(pids) != 1 {
			return false
		}

		pid = pids[0]
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))

		return err == nil && string(name) == processName+"\n"
	})

	return pid
}
