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

// ErrRunning says that a Notifier's child is still running.
var ErrRunning = errors.New("another child is running")

// sendTimeout bounds how long a service manager that does not read can hold us up.
const sendTimeout = time.Second

// Notifier is this process's side towards systemd. Without one (no NOTIFY_SOCKET) it forwards nothing and feeds
// nothing, and its methods do nothing.
//
// While systemd wants to be fed (WatchdogSec= of the unit) it is fed
//   - by the child's own WATCHDOG=1, once the child is ready, was asked for them and has sent one: when they stop,
//     systemd is to notice as it would without us;
//   - by the Notifier at half the interval otherwise: no child runs, it is still starting or already stopping, it
//     never sends any, or Cover says so. But for a child that is stopping it is not, while what Heed was given says that
//     whoever runs the child hangs: then systemd is to start all of it anew.
type Notifier struct {
	log         *slog.Logger
	systemd     string        // the socket of systemd; empty: there is none
	interval    time.Duration // of systemd's watchdog; 0: it wants none
	childSocket string
	private     string // the directory of childSocket if it is ours to remove

	feed    chan struct{} // feed now
	closing chan struct{}
	closed  chan struct{}
	once    sync.Once
	covered atomic.Bool                 // fed by us, whatever the child does
	alive   atomic.Pointer[func() bool] // of what runs the child; nil: it is

	mu      sync.Mutex
	child   *Process
	failing bool
}

// NewNotifier reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID and starts to feed systemd's watchdog if there is
// one. Close ends that.
//
// The child's notify socket is made in dir, which is created if need be and must belong to this process alone. It
// should be on a tmpfs, so that a full or read-only disk keeps no child from starting. If dir is empty, or too long
// for the address of a socket, it is a new directory in /run or that for temporary files, which Close removes.
func NewNotifier(dir string, log *slog.Logger) (*Notifier, error) {
	n := &Notifier{
		log:     log,
		systemd: os.Getenv("NOTIFY_SOCKET"),
		feed:    make(chan struct{}, 1),
		closing: make(chan struct{}),
		closed:  make(chan struct{}),
	}
	if err := n.placeSocket(dir); err != nil {
		return nil, fmt.Errorf("directory of the notify socket: %w", err)
	}
	if n.systemd != "" {
		interval, err := daemon.SdWatchdogEnabled(false)
		if err != nil { // no reason to leave the node without its kubelet
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

func (n *Notifier) placeSocket(dir string) error {
	const name = "notify.sock"
	if dir != "" {
		abs, err := filepath.Abs(dir) // a NOTIFY_SOCKET that is relative is not valid
		if err != nil {
			return err
		}
		if n.childSocket = filepath.Join(abs, name); len(n.childSocket) <= maxSocketPath {
			return nil
		}
	}
	private, err := makePrivate("/run", os.TempDir())
	if err != nil {
		return err
	}
	n.private, n.childSocket = private, filepath.Join(private, name)
	return nil
}

// makePrivate makes a new directory in the first of parents that lets it.
func makePrivate(parents ...string) (dir string, err error) {
	for _, parent := range parents {
		if dir, err = os.MkdirTemp(parent, "evenkeel-"); err == nil {
			return dir, nil
		}
	}
	return "", err
}

// Watchdog returns how often systemd wants to be fed; 0: it does not.
func (n *Notifier) Watchdog() time.Duration { return n.interval }

// Ready tells systemd that the service is up.
func (n *Notifier) Ready() error { return n.send(daemon.SdNotifyReady) }

// Cover makes the Notifier feed systemd's watchdog whatever the child does, or ends that. While a configuration is on
// trial a hung kubelet is the agent's to judge: systemd would end the agent with it, and no verdict would ever be given.
func (n *Notifier) Cover(on bool) {
	if n.covered.Swap(on) != on && n.interval > 0 {
		n.forward(daemon.SdNotifyWatchdog) // whose turn was due is not known to the other
	}
}

// Heed makes the Notifier feed systemd's watchdog by itself only while alive returns true. alive must not block.
func (n *Notifier) Heed(alive func() bool) { n.alive.Store(&alive) }

// hangs reports whether what runs the child does nothing any more. Who stops a child waits for it, as long as it takes.
func (n *Notifier) hangs(child *Process) bool {
	alive := n.alive.Load()
	return alive != nil && !(*alive)() && (child == nil || !child.isStopping())
}

// Stopping tells systemd that the service is on its way down.
func (n *Notifier) Stopping() error { return n.send(daemon.SdNotifyStopping) }

// Status sets the line that systemctl status shows; a STATUS= of the child replaces it, and the other way round.
func (n *Notifier) Status(text string) error { return n.send("STATUS=" + oneLine(text)) }

// Close ends the feeding of systemd's watchdog. It is to be called after the last child has gone, and can be called
// again.
func (n *Notifier) Close() {
	n.once.Do(func() { close(n.closing) })
	<-n.closed
	if n.private != "" {
		_ = os.RemoveAll(n.private)
	}
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

// feedNow has systemd fed without waiting for the next turn: the child, who did it until now, may have done it last
// nearly half an interval ago, and the next turn may be as far away.
func (n *Notifier) feedNow() {
	select {
	case n.feed <- struct{}{}:
	default: // it is about to be done
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

// forward sends what nobody waits for. A failure is logged when it begins and when it ends.
func (n *Notifier) forward(state string) {
	err := n.send(state)
	n.mu.Lock()
	turned := n.failing != (err != nil)
	n.failing = err != nil
	n.mu.Unlock()
	switch {
	case turned && err != nil:
		n.log.Warn("the service manager cannot be notified", "err", err)
	case turned:
		n.log.Info("the service manager is notified again")
	}
}

// send is daemon.SdNotify, but bounded in time: that one waits for ever on a service manager that does not read, and
// the child's notifications would wait with it.
func (n *Notifier) send(state string) error {
	if n.systemd == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.systemd, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	defer conn.Close()
	_ = conn.SetWriteDeadline(time.Now().Add(sendTimeout)) // fails only if closed, and then so does Write
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	return nil
}
