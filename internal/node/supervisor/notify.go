package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// maxDatagram is what systemd itself takes at the most.
const maxDatagram = 4096

// maxSocketPath is what sockaddr_un holds, without its final NUL.
const maxSocketPath = 107

// notifySocket is where one child sends its notifications.
//
// It has a path and is not abstract: an abstract name is open to every process in the network namespace, which is
// that of every host-network pod, and any of them could fill the queue. The kernel says who sent a datagram, so that
// even root's other processes are not mistaken for the child.
type notifySocket struct {
	conn *net.UnixConn
	path string
	data [maxDatagram]byte
	oob  []byte
}

func listenNotify(path string) (*notifySocket, error) {
	// One child at a time has the path; what lies there is of a process that was killed.
	_ = os.Remove(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("notify socket: %w", err)
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("notify socket: %w", err)
	}
	s := &notifySocket{
		conn: conn,
		path: path,
		// Room for the most file descriptors that the kernel lets one message carry, so that none gets lost here.
		oob: make([]byte, unix.CmsgSpace(unix.SizeofUcred)+unix.CmsgSpace(253*4)),
	}
	if err := s.restrict(); err != nil {
		s.close()
		return nil, fmt.Errorf("notify socket: %w", err)
	}
	return s, nil
}

// restrict keeps other users away and has the kernel add to each datagram who sent it.
func (s *notifySocket) restrict() error {
	if err := os.Chmod(s.path, 0o600); err != nil {
		return err
	}
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return err
	}
	var setErr error
	err = raw.Control(func(fd uintptr) {
		setErr = os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1))
	})
	return errors.Join(err, setErr)
}

func (s *notifySocket) close() {
	_ = s.conn.Close() // wakes receive
	_ = os.Remove(s.path)
}

// receive returns the next datagram and the process that sent it, 0 if that is not known; the datagram is empty if
// it was too long. It fails when the socket is closed.
func (s *notifySocket) receive() (datagram []byte, sender int, err error) {
	n, oobn, flags, _, err := s.conn.ReadMsgUnix(s.data[:], s.oob)
	if err != nil {
		return nil, 0, err
	}
	sender = readControl(s.oob[:oobn])
	if flags&unix.MSG_TRUNC != 0 {
		n = 0
	}
	return s.data[:n], sender, nil
}

// readControl returns the sender's process ID and closes what file descriptors it sent: we keep none for anybody, and
// who sent one with BARRIER=1 waits for that.
func readControl(oob []byte) (sender int) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return 0
	}
	for _, m := range messages {
		if cred, err := unix.ParseUnixCredentials(&m); err == nil {
			sender = int(cred.Pid)
		}
		if fds, err := unix.ParseUnixRights(&m); err == nil {
			for _, fd := range fds {
				_ = syscall.Close(fd)
			}
		}
	}
	return sender
}

// listen handles the child's notifications until its socket is closed.
func (p *Process) listen() {
	defer close(p.heard)
	for {
		datagram, sender, err := p.socket.receive()
		if err != nil {
			return
		}
		if sender != p.Pid() {
			p.ignoreStranger(sender)
			continue
		}
		p.take(parseNotification(datagram))
	}
}

// take notes what the child said before it is passed on: systemd may be slow to take it.
func (p *Process) take(said notification) {
	p.mu.Lock()
	change := said.ready && !p.ready || said.watchdog && p.pinged.IsZero()
	p.ready = p.ready || said.ready
	if said.watchdog {
		p.pinged = time.Now()
	}
	p.mu.Unlock()
	if change {
		select {
		case p.changed <- struct{}{}:
		default: // one is waiting to be read already
		}
	}
	if len(said.forward) > 0 {
		p.notifier.forward(strings.Join(said.forward, "\n"))
	}
}

// ignoreStranger says once for each child that its socket is used by another process: most likely the child is a
// wrapper that did not exec the program.
func (p *Process) ignoreStranger(sender int) {
	p.mu.Lock()
	first := !p.stranger
	p.stranger = true
	p.mu.Unlock()
	if first {
		p.notifier.log.Warn("ignored a notification that the child did not send itself", "child", p.Pid(), "sender", sender)
	}
}

// notification is what a datagram of a child means to us.
type notification struct {
	ready    bool
	watchdog bool
	forward  []string // lines that systemd gets as they are
}

// parseNotification keeps what is the child's to say. READY is noted, not forwarded: when the service is ready is
// decided elsewhere. MAINPID, FDSTORE, STOPPING, RELOADING and the like would be about this process, and are dropped
// like everything that is not understood.
func parseNotification(datagram []byte) (said notification) {
	if bytes.IndexByte(datagram, 0) >= 0 || !utf8.Valid(datagram) {
		return said
	}
	for line := range strings.Lines(string(datagram)) {
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, "=")
		switch name {
		case "READY":
			said.ready = said.ready || value == "1"
			continue
		case "WATCHDOG":
			if value != "1" { // "trigger" would have us killed
				continue
			}
			said.watchdog = true
		case "EXTEND_TIMEOUT_USEC":
			if _, err := strconv.ParseUint(value, 10, 64); err != nil {
				continue
			}
		case "STATUS":
		default:
			continue
		}
		said.forward = append(said.forward, line)
	}
	return said
}

// childEnv is env with the notification variables of the child in place of ours. WATCHDOG_PID stays away: it would
// have to be known before the fork, and the child takes its absence for "me".
func childEnv(env []string, socket string, watchdog time.Duration) []string {
	if env == nil {
		env = os.Environ()
	}
	env = slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == "NOTIFY_SOCKET" || name == "WATCHDOG_USEC" || name == "WATCHDOG_PID"
	})
	env = append(env, "NOTIFY_SOCKET="+socket)
	if watchdog > 0 {
		env = append(env, "WATCHDOG_USEC="+strconv.FormatInt(max(1, watchdog.Microseconds()), 10))
	}
	return env
}

// oneLine keeps text from being read as more than one assignment.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == 0 {
			return ' '
		}
		return r // utf8.RuneError for what is not UTF-8, which systemd would not take
	}, text)
}
