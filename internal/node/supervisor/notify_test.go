// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestParseNotification(t *testing.T) {
	for _, tt := range []struct {
		name, datagram string
		want           notification
	}{
		{"ready", "READY=1", notification{ready: true}},
		{"ready with a newline", "READY=1\n", notification{ready: true}},
		{"not ready", "READY=0", notification{}},
		{"ready stays", "READY=1\nREADY=0", notification{ready: true}},
		{"watchdog", "WATCHDOG=1", notification{watchdog: true, forward: []string{"WATCHDOG=1"}}},
		{"watchdog triggered", "WATCHDOG=trigger", notification{}},
		{"status", "STATUS=a=b c", notification{forward: []string{"STATUS=a=b c"}}},
		{"status taken back", "STATUS=", notification{forward: []string{"STATUS="}}},
		{"more time", "EXTEND_TIMEOUT_USEC=5000000", notification{forward: []string{"EXTEND_TIMEOUT_USEC=5000000"}}},
		{"more time, garbled", "EXTEND_TIMEOUT_USEC=-5", notification{}},
		{"all at once", "MAINPID=1\nREADY=1\nSTATUS=up\nFDSTORE=1\nFDNAME=x\n\nWATCHDOG=1\nEXTEND_TIMEOUT_USEC=1\n",
			notification{ready: true, watchdog: true, forward: []string{"STATUS=up", "WATCHDOG=1", "EXTEND_TIMEOUT_USEC=1"}}},
		{"what is about us", "MAINPID=1\nMAINPIDFD=1\nFDSTORE=1\nFDSTOREREMOVE=1\nSTOPPING=1\nRELOADING=1\n" +
			"MONOTONIC_USEC=1\nNOTIFYACCESS=all\nWATCHDOG_USEC=1\nBUSERROR=x\nERRNO=2\nEXIT_STATUS=1\nBARRIER=1", notification{}},
		{"nothing", "", notification{}},
		{"garbage", "\x01\x02=\n=\n====\nready=1\n READY=1\nREADY = 1", notification{}},
		{"a NUL", "READY=1\x00", notification{}},
		{"not UTF-8", "READY=1\nSTATUS=\xff", notification{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := parseNotification([]byte(tt.datagram))
			assert.NoDiff(t, cmp.Diff(tt.want, got, cmp.AllowUnexported(notification{})), tt.datagram)
		})
	}
}

func TestChildEnvReplacesNotifyVariables(t *testing.T) {
	env := []string{"A=1", "NOTIFY_SOCKET=/old", "WATCHDOG_PID=1", "WATCHDOG_USEC=5", "B=2", "NOTIFY_SOCKETS=x"}
	before := slices.Clone(env)
	for _, tt := range []struct {
		watchdog time.Duration
		want     []string
	}{
		{0, []string{"A=1", "B=2", "NOTIFY_SOCKETS=x", "NOTIFY_SOCKET=/new"}},
		{3 * time.Second, []string{"A=1", "B=2", "NOTIFY_SOCKETS=x", "NOTIFY_SOCKET=/new", "WATCHDOG_USEC=3000000"}},
		{time.Nanosecond, []string{"A=1", "B=2", "NOTIFY_SOCKETS=x", "NOTIFY_SOCKET=/new", "WATCHDOG_USEC=1"}},
	} {
		assert.NoDiff(t, cmp.Diff(tt.want, childEnv(env, "/new", tt.watchdog)), "watchdog", tt.watchdog)
	}

	assert.NoDiff(t, cmp.Diff(before, env), "the caller's was changed")
	t.Setenv("SUPERVISOR_TEST_OURS", "1")
	assert.That(t, slices.Contains(childEnv(nil, "/new", 0), "SUPERVISOR_TEST_OURS=1"), "a nil environment does not inherit the one of this process")
}

func TestReadyAndWatchdogAreRecorded(t *testing.T) {
	n, _ := unmanaged(t)
	p := startSpeaker(t, n, "speaker", time.Hour)
	_, seen := p.Watchdog()
	assert.That(t, !p.Ready() && !seen, "ready or a watchdog seen before anything was sent")

	for _, step := range []struct {
		message string
		so      func() bool
	}{
		{"READY=1", p.Ready},
		{"WATCHDOG=1", func() bool { _, seen := p.Watchdog(); return seen }},
	} {
		p.say(t, step.message)
		select {
		case <-p.Changed():
		case <-time.After(deadline):
			t.Fatalf("no change after %s", step.message)
		}

		assert.Must(t, step.so(), "%s changed nothing", step.message)
	}

	assert.Eventually(t, "the ping gets older", func() bool { since, _ := p.Watchdog(); return since > 50*time.Millisecond })
	p.say(t, "WATCHDOG=1", "READY=1")
	assert.Eventually(t, "it is renewed", func() bool { since, _ := p.Watchdog(); return since < 50*time.Millisecond })
	select {
	case <-p.Changed():
		t.Error("a second change for the same state")
	default:
	}

	p.Stop(deadline)

	next := startSpeaker(t, n, "speaker", time.Hour)
	_, seen = next.Watchdog()
	assert.That(t, !next.Ready() && !seen, "the next child starts with the state of the last one")
}

func TestInvalidDatagramIsIgnored(t *testing.T) {
	sd, n := managed(t, 0)
	p := startSpeaker(t, n, "speaker", 0)
	p.say(t, "garbage", "", "READY=1\x00",
		"READY=1\nSTATUS="+strings.Repeat("x", maxDatagram),
		"STATUS=end")
	sd.wants(t, "STATUS=end")
	assert.That(t, !p.Ready(), "ready after garbage and a datagram that is too long")
	longest := "STATUS=" + strings.Repeat("y", maxDatagram-len("READY=1\nSTATUS="))
	p.say(t, "READY=1\n"+longest)
	sd.wants(t, longest)
	assert.That(t, p.Ready(), "the longest datagram that is allowed was not read")
}

func TestNotificationOfAnotherProcessIsIgnored(t *testing.T) {
	sd := newSystemd(t, 0)
	n, log := newNotifier(t)
	p := startSpeaker(t, n, "speaker", time.Hour)
	info := assert.Value(os.Stat(n.childSocket))(t)
	assert.That(t, info.Mode().Perm() == 0o600, "the socket's mode is %v, want 0600", info.Mode().Perm())
	conn := assert.Value(net.Dial("unixgram", n.childSocket))(t)
	defer conn.Close()
	for range 3 {
		assert.NoError(t, assert.Err(conn.Write([]byte("READY=1\nWATCHDOG=1\nSTATUS=spoofed"))))
	}

	p.say(t, "STATUS=genuine")
	sd.wants(t, "STATUS=genuine")
	_, seen := p.Watchdog()
	assert.That(t, !p.Ready() && !seen, "a notification of this process was accepted")
	assert.Equal(t, log.count("ignored a notification"), 1, "said times")
}

func TestFileDescriptorsFromTheChildAreClosed(t *testing.T) {
	sd, n := managed(t, 0)
	p := startSpeaker(t, n, "speaker", 0)
	p.say(t, "BARRIER=1")
	sd.wants(t, "STATUS=barrier passed")
}

func TestLeftoverSocketIsReplaced(t *testing.T) {
	n, _ := unmanaged(t)
	old := assert.Value(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: n.childSocket, Net: "unixgram"}))(t)
	_ = old.Close() // which leaves the file, as a killed process does
	assert.NoError(t, assert.Err(os.Stat(n.childSocket)), "nothing is left over")
	p := startSpeaker(t, n, "speaker", 0)
	p.say(t, "READY=1")
	assert.Eventually(t, "ready", p.Ready)
}

func TestStartFailsWithoutSocket(t *testing.T) {
	withoutSystemd(t)
	dir := shortDir(t)
	file := filepath.Join(dir, "file")
	assert.NoError(t, os.WriteFile(file, nil, 0o600))
	taken := filepath.Join(dir, "taken")
	assert.NoError(t, os.MkdirAll(filepath.Join(taken, "notify.sock", "x"), 0o700))
	for dir, words := range map[string]string{
		filepath.Join(file, "sub"): "start /bin/true: notify socket: mkdir " + file + ": not a directory",
		taken:                      "address already in use",
	} {
		n := assert.Value(NewNotifier(dir, (&logBuffer{}).logger()))(t)
		assert.ErrorHas(t, assert.Err(Start(exec.Command("/bin/true"), 0, n)), words, "error")
		assert.That(t, n.child == nil, "the notifier has a child")
	}
}

func TestSocketThatCannotBeRestrictedIsAnError(t *testing.T) {
	s := assert.Value(listenNotify(filepath.Join(shortDir(t), "s")))(t)
	s.close()
	assert.Is(t, s.restrict(), fs.ErrNotExist, "without its file")
	assert.NoError(t, os.WriteFile(s.path, nil, 0o600))
	assert.Is(t, s.restrict(), net.ErrClosed, "closed")
}

func TestInvalidControlDataHasNoSender(t *testing.T) {
	assert.Equal(t, readControl([]byte("far too short for one header")), 0, "sender")
}

// A child can say nothing to systemd but what it may say about itself.
func FuzzNotification(f *testing.F) {
	for _, text := range []string{"READY=1\nSTATUS=up", "WATCHDOG=1", "WATCHDOG=trigger", "MAINPID=1\nFDSTORE=1", "EXTEND_TIMEOUT_USEC=5\nEXTEND_TIMEOUT_USEC=x", "READY=0", "STATUS=a\x00b", "STOPPING=1", "\xff", "=\n==", "STATUS=a\r\nMAINPID=2"} {
		f.Add([]byte(text))
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		said := parseNotification(data)
		size := 0
		for _, line := range said.forward {
			name, value, _ := strings.Cut(line, "=")
			assert.That(t, slices.Contains([]string{"WATCHDOG", "EXTEND_TIMEOUT_USEC", "STATUS"}, name) && (name != "WATCHDOG" || value == "1"), "%q forwards %q", data, line)
			if size += len(line); strings.ContainsAny(line, "\n\x00") || !utf8.ValidString(line) {
				t.Errorf("%q forwards %q, which is more than a line", data, line)
			}
		}

		if size > len(data) || said.ready && !strings.Contains(string(data), "READY=1") || said.watchdog && !strings.Contains(string(data), "WATCHDOG=1") {
			t.Errorf("%q says %+v", data, said)
		}
		line := oneLine(string(data))
		assert.That(t, !strings.ContainsAny(line, "\n\x00") && utf8.ValidString(line), "%q is the line %q", data, line)
	})
}
