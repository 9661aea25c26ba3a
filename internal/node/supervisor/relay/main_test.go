// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
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
	r, err := Start(os.Stderr, slog.New(slog.DiscardHandler))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}

	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Stderr = r.Input()
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}

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
	file *os.File // the end to write to
	mu   sync.Mutex
	got  bytes.Buffer
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

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.Write(p)
}

func (s *sink) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.String()
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

	return s.text()
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

// copiers returns the copying processes of a process.
func copiers(t *testing.T, parent int) (pids []int) {
	t.Helper()
	all := assert.Value(filepath.Glob("/proc/[0-9]*/stat"))(t)
	for _, path := range all {
		text, _ := os.ReadFile(path)
		pid, rest, _ := strings.Cut(string(text), " ("+processName+") ")
		fields := strings.Fields(rest) // state, parent
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) && fields[0] != "Z" {
			n := assert.Value(strconv.Atoi(pid))(t)
			pids = append(pids, n)
		}
	}

	return pids
}

// copier waits for the only copying process of this process.
func copier(t *testing.T) (pid int) {
	t.Helper()
	assert.Eventually(t, "one copying process", func() bool {
		pids := copiers(t, os.Getpid())
		if len(pids) == 1 {
			pid = pids[0]
		}

		return len(pids) == 1
	})

	return pid
}
