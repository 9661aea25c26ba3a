// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// processName is argv[0] of a copying process.
const processName = "evenkeel-log"

// sharedFD is the descriptor of the shared memory in a copying process.
const sharedFD = 3

// init makes this program a copying process if it was started as one. It does
// not return then, so most packages of the program are never initialized: that
// saves memory and time. Nothing else may start in this way.
func init() {
	if len(os.Args) == 1 && os.Args[0] == processName {
		os.Exit(copyOutput())
	}
}

const (
	readSize   = 64 << 10  // of one read, in bytes: what fits into a pipe
	bufferSize = 256 << 10 // limits, in bytes, what is read before it can be written
)

// copyOutput copies stdin to stderr until its end, and keeps the last lines in
// the shared memory. Signals that stop a service are ignored: the child may
// still write.
func copyOutput() int {
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGPIPE)
	_ = os.WriteFile("/proc/self/comm", []byte(processName), 0) // its name, for people
	state, err := mapShared(sharedFD)
	if err != nil {
		state = &shared{} // copying goes on
	}

	output, done := newQueue(), make(chan struct{})
	go func() {
		defer close(done)
		for piece := output.take(newBuffer()); len(piece) > 0; piece = output.take(piece) {
			writeAll(unix.Stderr, piece)
			state.pending.Add(-uint32(len(piece)))
		}
	}()
	input, lines := make([]byte, readSize), &selector{}
	for {
		state.busy.Store(0)
		if !wait(unix.Stdin, unix.POLLIN) {
			break
		}

		state.busy.Store(1)
		n, err := unix.Read(unix.Stdin, input)
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if err != nil || n == 0 {
			break
		}

		lines.add(input[:n])
		state.set(lines.text())
		state.pending.Add(uint32(n))
		output.add(input[:n])
	}

	state.busy.Store(0)
	output.close()
	<-done

	return 0
}

// writeAll writes p. It drops what the destination refuses: a child must not
// end because nobody reads its log.
func writeAll(fd int, p []byte) {
	for len(p) > 0 {
		n, err := unix.Write(fd, p)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN: // another process made the file nonblocking
			if !wait(fd, unix.POLLOUT) {
				return
			}
		case err != nil:
			return
		default:
			p = p[n:]
		}
	}
}

// wait waits until a descriptor is ready. It returns false if the descriptor
// cannot be used.
func wait(fd int, events int16) bool {
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: events}}, -1)
		if err == nil {
			return true
		}
		if err != unix.EINTR {
			return false
		}
	}
}
