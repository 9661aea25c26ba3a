// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// ErrRunning means that the child of a Notifier is still running.
var ErrRunning = errors.New("another child is running")

// sendTimeout limits how long a service manager that does not read can block
// this process.
const sendTimeout = time.Second

// Notifier sends sd_notify(3) messages to systemd. Without NOTIFY_SOCKET its
// methods do nothing.
//
// If systemd has a watchdog for the unit (WatchdogSec=), there are two ways to
// feed it. The child's own WATCHDOG=1 messages are forwarded once the child is
// ready and has sent one, so that systemd notices a child that hangs. Otherwise
// the Notifier feeds the watchdog at half the interval: while no child runs,
// while the child starts, stops or never sends WATCHDOG=1, and after
// Cover(true). It does not do so while the function that was given to Heed
// reports that the caller hangs, except while a child is stopping: then systemd
// restarts the unit.
type Notifier struct {
	log         *slog.Logger
	systemd     string        // the socket of systemd; empty: none
	interval    time.Duration // of the watchdog of systemd; 0: none
	childSocket string

	feed    chan struct{} // wakes feedWatchdog
	closing chan struct{}
	closed  chan struct{}
	once    sync.Once
	covered atomic.Bool                 // set by Cover
	alive   atomic.Pointer[func() bool] // set by Heed; nil: always alive

	mu      sync.Mutex
	child   *Process
	failing bool
}

// NewNotifier reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, and starts
// to feed the watchdog of systemd if there is one. Close stops that.
//
// The notify socket of the child is created in dir, which is created if needed
// and must belong to this process alone. It should be on a tmpfs, so that a
// full or read-only disk does not prevent a child from starting. NotifySocket
// must fit into a socket address.
func NewNotifier(dir string, log *slog.Logger) (*Notifier, error) {
	dir, err := filepath.Abs(dir) // NOTIFY_SOCKET must be absolute
	if err != nil {
		return nil, fmt.Errorf("directory of the notify socket: %w", err)
	}

	n := &Notifier{
		log:         log,
		systemd:     os.Getenv("NOTIFY_SOCKET"),
		childSocket: NotifySocket(dir),
		feed:        make(chan struct{}, 1),
		closing:     make(chan struct{}),
		closed:      make(chan struct{}),
	}
	if n.systemd != "" {
		interval, err := daemon.SdWatchdogEnabled(false)
		if err != nil { // the kubelet must run anyway
			log.Warn("not feeding the service manager's watchdog", "err", err)
		}

		n.interval = interval
	}

	if n.interval > 0 {
		go n.feedWatchdog()
	} else {
		close(n.closed)
	}

	return n, nil
}

// NotifySocket is the path of the child's notify socket in a directory.
func NotifySocket(dir string) string { return filepath.Join(dir, "notify.sock") }

// Ready tells systemd that the service is up.
func (n *Notifier) Ready() error { return n.send(daemon.SdNotifyReady) }

// Cover makes the Notifier feed the watchdog whatever the child does, or ends
// that. During a trial the agent judges a kubelet that hangs: systemd would
// kill the agent with it, and the trial would never get a verdict.
func (n *Notifier) Cover(on bool) {
	if n.covered.Swap(on) != on && n.interval > 0 {
		n.forward(daemon.SdNotifyWatchdog) // the interval of the other sender may be almost over
	}
}

// Heed makes the Notifier feed the watchdog by itself only while alive returns
// true. alive must not block.
func (n *Notifier) Heed(alive func() bool) { n.alive.Store(&alive) }

// hangs reports whether the caller of the supervisor hangs. A caller that stops
// a child may wait as long as needed.
func (n *Notifier) hangs(child *Process) bool {
	alive := n.alive.Load()
	return alive != nil && !(*alive)() && (child == nil || !child.isStopping())
}

// Stopping tells systemd that the service is stopping.
func (n *Notifier) Stopping() error { return n.send(daemon.SdNotifyStopping) }

// Status sets the line that systemctl status shows; the latest of it and a
// STATUS= of the child is shown.
func (n *Notifier) Status(text string) error { return n.send("STATUS=" + oneLine(text)) }

// Close stops feeding the watchdog. Call it after the last child has ended;
// further calls do nothing.
func (n *Notifier) Close() {
	n.once.Do(func() { close(n.closing) })
	<-n.closed
}

func (n *Notifier) attach(p *Process) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.child != nil {
		return ErrRunning
	}

	n.child = p

	return nil
}

func (n *Notifier) detach() {
	n.mu.Lock()
	n.child = nil
	n.mu.Unlock()
	n.feedNow()
}

// feedNow feeds the watchdog without waiting for the next tick: the last
// message of the child, and the next tick, may each be almost half an interval
// away.
func (n *Notifier) feedNow() {
	select {
	case n.feed <- struct{}{}:
	default: // already signalled
	}
}

func (n *Notifier) feedWatchdog() {
	defer close(n.closed)
	tick := time.NewTicker(max(1, n.interval/2))
	defer tick.Stop()
	for {
		n.mu.Lock()
		child := n.child
		n.mu.Unlock()
		if (child == nil || n.covered.Load() || !child.pingsItself()) && !n.hangs(child) {
			n.forward(daemon.SdNotifyWatchdog)
		}

		select {
		case <-n.closing:
			return
		case <-n.feed:
		case <-tick.C:
		}
	}
}

// forward sends a state without reporting the error. It logs the first failure,
// and the first success after it.
func (n *Notifier) forward(state string) {
	err := n.send(state)
	n.mu.Lock()
	turned := n.failing != (err != nil)
	n.failing = err != nil
	n.mu.Unlock()
	switch {
	case turned && err != nil:
		n.log.Warn("cannot notify the service manager", "err", err)
	case turned:
		n.log.Info("the service manager can be notified again")
	}
}

// send is daemon.SdNotify with a timeout: SdNotify waits without a limit for a
// service manager that does not read, and would block notifications of the
// child.
func (n *Notifier) send(state string) error {
	if n.systemd == "" {
		return nil
	}

	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.systemd, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}

	defer conn.Close()
	_ = conn.SetWriteDeadline(time.Now().Add(sendTimeout)) // an error also makes Write fail
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}

	return nil
}
