// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// interval is short, but half of it exceeds the delays of a busy machine.
const interval = 200 * time.Millisecond

// quiet is long enough to notice that the watchdog is fed.
const quiet = 3 * interval

func TestNotifierSendsStatesToSystemd(t *testing.T) {
	sd, n := managed(t, 0)
	for _, err := range []error{n.Ready(), n.Status("all\nMAINPID=1\x00\xff"), n.Stopping()} {
		assert.OK(t, err)
	}

	sd.wants(t, "READY=1", "STATUS=all MAINPID=1 \ufffd", "STOPPING=1")
}

func TestMessagesAreForwardedExceptReady(t *testing.T) {
	sd, n := managed(t, 0)
	p := startSpeaker(t, n, "speaker", 0)
	p.say(t, "READY=1", "MAINPID=1\nSTATUS=starting\nFDSTORE=1\nEXTEND_TIMEOUT_USEC=9", "STOPPING=1", "WATCHDOG=1")
	sd.wants(t, "STATUS=starting\nEXTEND_TIMEOUT_USEC=9", "WATCHDOG=1")
	assert.That(t, p.Ready(), "not ready")
	assert.NoError(t, n.Ready())
	sd.wants(t, "READY=1")
}

func TestChildGetsItsOwnSocketAndWatchdog(t *testing.T) {
	sd, n := managed(t, time.Minute)
	sd.wants(t, "WATCHDOG=1")
	assert.That(t, n.interval == time.Minute, "systemd's watchdog is %v, want 1m", n.interval)
	p := startSpeaker(t, n, "speaker", time.Hour) // lowered to what systemd wants
	p.say(t, "env NOTIFY_SOCKET", "env WATCHDOG_USEC", "env WATCHDOG_PID")
	sd.wants(t, "STATUS=NOTIFY_SOCKET="+n.childSocket+" true", "STATUS=WATCHDOG_USEC=60000000 true",
		"STATUS=WATCHDOG_PID= false")
	p.Stop(deadline)
	sd.wants(t, "WATCHDOG=1") // at once and not at the next turn, in half a minute
	sd.silence(t, interval)   // once for the stop, and once for the end if that was not the same turn

	p = startSpeaker(t, n, "speaker", 0)
	p.say(t, "env WATCHDOG_USEC")
	sd.wants(t, "STATUS=WATCHDOG_USEC= false")
}

func TestWatchdogIsFedWhenAChildEnds(t *testing.T) {
	sd, n := managed(t, time.Hour)
	sd.wants(t, "WATCHDOG=1")
	sd.silence(t, quiet) // not more often than the interval requires
	wait(t, startShell(t, n, "exit 1"))
	sd.wants(t, "WATCHDOG=1") // the next turn is in half an hour
}

func TestWatchdogIsFedWhileNoChildRuns(t *testing.T) {
	sd, n := managed(t, interval)
	sd.wants(t, "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1")
	n.Close()
	n.Close()
	sd.silence(t, quiet)
}

func TestWatchdogIsFedUntilAChildIsReadyAndPings(t *testing.T) {
	for name, tt := range map[string]struct {
		watchdog time.Duration // of the child
		says     []string
	}{
		"it never pings":       {interval, []string{"READY=1"}},
		"it has no watchdog":   {0, []string{"READY=1", "WATCHDOG=1"}},
		"it is starting still": {interval, []string{"WATCHDOG=1"}},
	} {
		t.Run(name, func(t *testing.T) {
			sd, n := managed(t, interval)
			p := startSpeaker(t, n, "speaker", tt.watchdog)
			p.say(t, tt.says...)
			assert.Eventually(t, "it is heard", func() bool {
				_, pinged := p.Watchdog()
				return p.Ready() == slices.Contains(tt.says, "READY=1") && pinged == slices.Contains(tt.says, "WATCHDOG=1")
			})
			sd.wants(t, "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1")
		})
	}
}

func TestWatchdogIsFedForAReadyChildThatHangsOnlyWhileItIsCovered(t *testing.T) {
	sd, n := managed(t, interval)
	p := startSpeaker(t, n, "deaf speaker", interval)
	p.say(t, "READY=1", "WATCHDOG=1")
	assert.Eventually(t, "pinged", func() bool { _, seen := p.Watchdog(); return seen })
	sd.silence(t, quiet)

	n.Cover(true)
	sd.wants(t, "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1")
	n.Cover(false)
	sd.wants(t, "WATCHDOG=1") // the hand-over
	sd.silence(t, quiet)

	p.say(t, "WATCHDOG=1", "STATUS=end")
	sd.wants(t, "WATCHDOG=1", "STATUS=end") // its own, and only once
	sd.silence(t, quiet)

	stopped := make(chan Exit)
	go func() { stopped <- p.Stop(time.Hour) }()
	sd.wants(t, "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1") // a stop may take longer than the interval
	select {
	case <-p.Done():
		t.Fatal("the child is gone already")
	default:
	}

	p.Stop(0)
	<-stopped
	sd.wants(t, "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1")
}

func TestWatchdogOfAnotherProcessOrWithAnInvalidIntervalIsNotFed(t *testing.T) {
	for variable, warnings := range map[string]int{"WATCHDOG_PID=1": 0, "WATCHDOG_USEC=soon": 1} {
		sd := newSystemd(t, interval)
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
		n, log := newNotifier(t)
		warned := log.count("not feeding the service manager's watchdog")
		assert.That(t, n.interval == 0 && warned == warnings && log.count("WARN") == warnings,
			"%s: watchdog %v and %d warnings, want none and %d", name, n.interval, warned, warnings)
		sd.silence(t, quiet)
	}
}

func TestNotifierWithoutSystemd(t *testing.T) {
	withoutSystemd(t)
	t.Setenv("WATCHDOG_USEC", "1000") // left over in some environment
	n, log := newNotifier(t)
	for _, err := range []error{n.Ready(), n.Status("x"), n.Stopping()} {
		assert.OK(t, err)
	}

	assert.That(t, n.interval == 0, "watchdog %v, want none", n.interval)
	p := startSpeaker(t, n, "speaker", time.Hour)
	p.say(t, "STATUS=x\nWATCHDOG=1", "READY=1")
	assert.Eventually(t, "ready", p.Ready)
	p.Stop(deadline)
	n.Close()
	assert.Equal(t, log.count("level"), 0, "logged lines")
}

func TestMissingSystemdIsLoggedOnceAndItsReturnToo(t *testing.T) {
	withoutSystemd(t)
	path := filepath.Join(shortDir(t), "systemd")
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "20000")
	n, log := newNotifier(t)
	assert.ErrorHas(t, n.Ready(), path, "Ready:")
	assert.Eventually(t, "a warning", func() bool { return log.count("cannot notify") == 1 })
	conn := assert.Value(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"}))(t)
	defer conn.Close()
	assert.Eventually(t, "the end of it", func() bool { return log.count("can be notified again") == 1 })
	assert.Equal(t, log.count("cannot notify"), 1, "warned times")
}

func TestSystemdThatDoesNotReadBlocksForALimitedTime(t *testing.T) {
	listenAsSystemd(t)
	n, _ := newNotifier(t)
	assert.Eventually(t, "its queue is full", func() bool { return n.Status(strings.Repeat("x", 1000)) != nil })
	p := startSpeaker(t, n, "speaker", 0)
	p.say(t, "READY=1\nSTATUS=up")
	assert.Eventually(t, "ready", p.Ready)
	err := n.Ready()
	assert.That(t, os.IsTimeout(err) || strings.Contains(err.Error(), "i/o timeout"), "Ready: %v, want a timeout", err)

	p.Stop(time.Hour) // returns when the child has ended, long before
}

func TestDirectoryWithoutAnAbsolutePathIsAnError(t *testing.T) {
	withoutSystemd(t)
	nowhere := filepath.Join(shortDir(t), "gone")
	assert.NoError(t, os.Mkdir(nowhere, 0o700))
	t.Chdir(nowhere)
	assert.NoError(t, os.Remove(nowhere))
	_, err := NewNotifier("relative", (&logBuffer{}).logger())
	assert.That(t, err != nil && strings.HasPrefix(err.Error(), "directory of the notify socket: "),
		"NewNotifier: %v, want an error about the directory", err)
}

func TestWatchdogIsNotFedForAnAgentThatHangs(t *testing.T) {
	sd, n := managed(t, interval)
	var alive atomic.Bool
	alive.Store(true)
	n.Heed(alive.Load)
	sd.wants(t, "WATCHDOG=1", "WATCHDOG=1")
	alive.Store(false)
	sd.silence(t, quiet)
	deaf := filepath.Join(t.TempDir(), "deaf")
	p := startShell(t, n, "trap '' TERM; >"+deaf+"; while :; do sleep 1; done")
	assert.Eventually(t, "the child is deaf", func() bool { _, err := os.Stat(deaf); return err == nil })
	go p.Stop(time.Minute) // who stops a child waits for it
	sd.wants(t, "WATCHDOG=1", "WATCHDOG=1")
	p.Stop(0)
	sd.silence(t, quiet)
	alive.Store(true)
	sd.wants(t, "WATCHDOG=1")
}
