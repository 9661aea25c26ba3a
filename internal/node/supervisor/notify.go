// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

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

// maxDatagram is the limit of systemd itself.
const maxDatagram = 4096

// MaxSocketPath is the longest path of a Unix socket, in bytes: the capacity of
// sockaddr_un, without the final NUL.
const MaxSocketPath = 107

// notifySocket receives the notifications of one child.
//
// It has a path: an abstract name is open to every process in the network
// namespace, including all host-network pods, and any of them could fill its
// queue. The kernel adds the sender to each datagram, so that even other
// processes of root are not taken for the child.
type notifySocket struct {
	conn *net.UnixConn
	path string
	data [maxDatagram]byte
	oob  []byte
}

func listenNotify(path string) (*notifySocket, error) {
	// Only one child at a time uses the path; an existing socket belongs to a
	// process that was killed.
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
		// Room for the largest number of file descriptors in one message, so
		// that each can be closed.
		oob: make([]byte, unix.CmsgSpace(unix.SizeofUcred)+unix.CmsgSpace(253*4)),
	}
	if err := s.restrict(); err != nil {
		s.close()
		return nil, fmt.Errorf("notify socket: %w", err)
	}

	return s, nil
}

// restrict denies access to other users, and makes the kernel add the sender to
// each datagram.
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
	_ = s.conn.Close() // makes receive return
	_ = os.Remove(s.path)
}

// receive returns the next datagram and its sender, 0 if unknown; the datagram
// is empty if it was too long. It fails when the socket is closed.
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

// readControl returns the process ID of the sender, and closes the file
// descriptors that it sent: none are kept, and a sender of BARRIER=1 waits for
// the close.
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

// listen handles notifications of the child until its socket is closed.
func (p *Process) listen() {
	defer close(p.heard)
	for {
		datagram, sender, err := p.socket.receive()
		if err != nil {
			return
		}

		if sender != p.Pid() {
			p.ignoreOther(sender)
			continue
		}

		p.handle(parseNotification(datagram))
	}
}

// handle records a notification before it forwards it, because systemd may be
// slow to receive it.
func (p *Process) handle(said notification) {
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
		default: // a change is already signalled
		}
	}

	if len(said.forward) > 0 {
		p.notifier.forward(strings.Join(said.forward, "\n"))
	}
}

// ignoreOther logs once for each child that another process uses its socket:
// probably the child is a wrapper that did not exec the program.
func (p *Process) ignoreOther(sender int) {
	p.mu.Lock()
	first := !p.warned
	p.warned = true
	p.mu.Unlock()
	if first {
		p.notifier.log.Warn("ignored a notification of another process than the child", "child", p.Pid(), "sender", sender)
	}
}

// notification is the meaning of a datagram of a child.
type notification struct {
	ready    bool
	watchdog bool
	forward  []string // lines to forward to systemd
}

// parseNotification keeps what a child may say. READY is recorded, not
// forwarded: the agent decides when the service is ready. MAINPID, FDSTORE,
// STOPPING, RELOADING and the like would refer to this process, and are dropped
// like unknown lines.
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
			if value != "1" { // with "trigger" systemd would kill the service
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

// childEnv replaces the notification variables in env. WATCHDOG_PID is omitted:
// it would have to be known before the fork, and without it the child takes the
// settings for its own.
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

// oneLine prevents that text is read as more than one assignment.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == 0 {
			return ' '
		}

		return r // utf8.RuneError replaces invalid UTF-8, which systemd refuses
	}, text)
}
