// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/output"
)

// deadline is the limit for every wait; it is long because the machine may be
// busy.
const deadline = 20 * time.Second

// roleVar makes this test binary act as another program.
const roleVar = "SUPERVISOR_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVar) {
	case "":
		os.Exit(m.Run())
	case "speaker":
		speak(os.Args[1])
	case "deaf speaker":
		signal.Ignore(syscall.SIGTERM)
		speak(os.Args[1])
	case "agent":
		beAgent()
	}

	os.Exit(99)
}

// speak is a child that sends each line of the fifo, a quoted string, as a
// notification.
func speak(fifo string) {
	f := must.Get(os.OpenFile(fifo, os.O_RDWR, 0)) // and so it never ends
	for lines := bufio.NewScanner(f); lines.Scan(); {
		text := must.Get(strconv.Unquote(lines.Text()))
		if name, ok := strings.CutPrefix(text, "env "); ok {
			value, set := os.LookupEnv(name)
			text = fmt.Sprintf("STATUS=%s=%s %v", name, value, set)
		}

		if text == "BARRIER=1" {
			barrier()
			text = "STATUS=barrier passed"
		}

		must.Get(daemon.SdNotify(false, text))
	}
}

// barrier is sd_notify_barrier(3): it sends one end of a pipe and waits until
// the receiver has closed it.
func barrier() {
	r, w := must.Get2(os.Pipe())
	fd := must.Get(unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))
	must.OK(unix.Sendmsg(fd, []byte("BARRIER=1"), unix.UnixRights(int(w.Fd())),
		&unix.SockaddrUnix{Name: os.Getenv("NOTIFY_SOCKET")}, 0))
	must.OK(errors.Join(unix.Close(fd), w.Close(), r.SetReadDeadline(time.Now().Add(deadline))))
	_, err := r.Read(make([]byte, 1))
	must.That(err == io.EOF, "the receiver keeps the file descriptor: %v", err)
}

// beAgent starts a long-running child, prints its process ID and waits to be
// killed.
func beAgent() {
	n := must.Get(NewNotifier(os.Args[1], slog.New(slog.DiscardHandler)))
	fmt.Println(must.Get(Start(exec.Command("/bin/sleep", "1000"), 0, n)).Pid())
	_, _ = os.Stdin.Read(make([]byte, 1)) // ends with the test, even if that dies
}

// logBuffer is a log that can be read while it is written.
type logBuffer struct{ output.Buffer }

func (b *logBuffer) count(words string) int { return strings.Count(b.String(), words) }

func (b *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// shortDir returns a temporary directory whose path fits into a socket address,
// unlike t.TempDir for long names.
func shortDir(t *testing.T) string {
	t.Helper()
	dir := assert.Value(os.MkdirTemp("", "sv-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func newNotifier(t *testing.T) (*Notifier, *logBuffer) {
	t.Helper()
	log := &logBuffer{}
	n := assert.Value(NewNotifier(shortDir(t), log.logger()))(t)
	t.Cleanup(n.Close)

	return n, log
}

// withoutSystemd removes the environment variables of systemd.
func withoutSystemd(t *testing.T) {
	t.Helper()
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		t.Setenv(name, "")
	}
}

// unmanaged returns the notifier of an agent that systemd does not run.
func unmanaged(t *testing.T) (*Notifier, *logBuffer) {
	t.Helper()
	withoutSystemd(t)
	return newNotifier(t)
}

// systemd is a fake systemd.
type systemd struct{ got chan string }

// listenAsSystemd listens at a new address, which is in the environment.
func listenAsSystemd(t *testing.T) *net.UnixConn {
	t.Helper()
	withoutSystemd(t)
	path := filepath.Join(shortDir(t), "systemd")
	conn := assert.Value(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"}))(t)
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)

	return conn
}

// newSystemd returns a systemd that reads; watchdog 0: no watchdog.
func newSystemd(t *testing.T, watchdog time.Duration) *systemd {
	t.Helper()
	conn := listenAsSystemd(t)
	if watchdog > 0 {
		t.Setenv("WATCHDOG_USEC", strconv.FormatInt(watchdog.Microseconds(), 10))
		t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	}

	s := &systemd{got: make(chan string, 10_000)}
	go func() {
		for buf := make([]byte, 2*maxDatagram); ; {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}

			s.got <- string(buf[:n])
		}
	}()

	return s
}

// managed returns a fake systemd, and the notifier of an agent that it runs.
func managed(t *testing.T, watchdog time.Duration) (*systemd, *Notifier) {
	t.Helper()
	sd := newSystemd(t, watchdog)
	n, _ := newNotifier(t)
	return sd, n
}

// wants requires that the next messages are these.
func (s *systemd) wants(t *testing.T, messages ...string) {
	t.Helper()
	for _, want := range messages {
		select {
		case got := <-s.got:
			assert.Must(t, got == want, "systemd got %q, want %q", got, want)
		case <-time.After(deadline):
			t.Fatalf("systemd did not get %q", want)
		}
	}
}

// silence drops messages until none arrives for this time.
func (s *systemd) silence(t *testing.T, long time.Duration) {
	t.Helper()
	for late := time.After(deadline); ; {
		select {
		case <-s.got:
		case <-time.After(long):
			return
		case <-late:
			t.Fatalf("systemd never got no message for %v", long)
		}
	}
}

// speaker is a child that sends notifications for the test.
type speaker struct {
	*Process
	fifo *os.File
}

func startSpeaker(t *testing.T, n *Notifier, role string, watchdog time.Duration) *speaker {
	t.Helper()
	exe := assert.Value(os.Executable())(t)
	path := filepath.Join(shortDir(t), "fifo")
	assert.NoError(t, unix.Mkfifo(path, 0o600))
	fifo := assert.Value(os.OpenFile(path, os.O_RDWR, 0))(t)
	t.Cleanup(func() { _ = fifo.Close() })
	cmd := exec.Command(exe, path)
	cmd.Env, cmd.Stderr = append(os.Environ(), roleVar+"="+role), os.Stderr
	p := assert.Value(Start(cmd, watchdog, n))(t)
	t.Cleanup(func() { p.Stop(0) })

	return &speaker{Process: p, fifo: fifo}
}

func (s *speaker) say(t *testing.T, messages ...string) {
	t.Helper()
	for _, m := range messages {
		assert.NoError(t, assert.Err(fmt.Fprintln(s.fifo, strconv.Quote(m))))
	}
}

// startShell runs a script as the child.
func startShell(t *testing.T, n *Notifier, script string) *Process {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Stderr = os.Stderr
	p := assert.Value(Start(cmd, 0, n))(t)
	t.Cleanup(func() { p.Stop(0) })

	return p
}
