// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package lockfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// steps runs a contender under ptrace(2).
type steps struct {
	t    *testing.T
	path string
	// at is called at the begin and end of each system call, from the first one
	// that names the lock file until the contender has the lock.
	at   func(n int, call string)
	held func()
	wait func() // before it waits for the lock

	count  int
	inside map[int]bool // threads in a system call
	begun  bool
	has    bool
	told   bool // the contender was told that another process wants the lock
}

// run kills the contender, and returns, when it is told that another process
// wants the lock.
func (s *steps) run(pid int) {
	s.t.Helper()
	s.inside = map[int]bool{}
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, unix.WALL, nil); err != nil || !status.Stopped() {
		s.t.Fatalf("it did not stop: %v, %#x", err, status)
	}

	const options = unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_EXITKILL
	assert.NoError(s.t, unix.PtraceSetOptions(pid, options))
	assert.NoError(s.t, unix.PtraceSyscall(pid, 0))
	late := time.AfterFunc(patience, func() { _ = unix.Kill(pid, unix.SIGKILL) })
	defer late.Stop()
	threads := map[int]bool{pid: true}
	for {
		thread, err := unix.Wait4(-pid, &status, unix.WALL, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}

		assert.Must(s.t, err == nil, "it ended (%v)", err)
		if !status.Stopped() {
			delete(threads, thread)
			if thread == pid {
				return
			}

			continue
		}

		signal := 0
		switch {
		case status.StopSignal() == unix.SIGTRAP|0x80:
			s.call(thread)
		case status.StopSignal() == unix.SIGTRAP: // a new thread
		case !threads[thread] && status.StopSignal() == unix.SIGSTOP: // begins
		default:
			signal = int(status.StopSignal())
		}

		threads[thread] = true
		if s.told {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if err := unix.PtraceSyscall(thread, signal); err != nil && !errors.Is(err, unix.ESRCH) {
			s.t.Fatal(err)
		}
	}
}

// calls are the system calls at which the file may be opened.
var calls = map[uint64]string{
	unix.SYS_OPENAT: "openat", unix.SYS_NEWFSTATAT: "newfstatat", unix.SYS_FSTAT: "fstat", unix.SYS_FLOCK: "flock", unix.SYS_READ: "read",
	unix.SYS_CLOSE: "close", unix.SYS_INOTIFY_INIT1: "inotify_init1", unix.SYS_INOTIFY_ADD_WATCH: "inotify_add_watch",
}

func (s *steps) call(thread int) {
	var regs unix.PtraceRegs
	assert.NoError(s.t, unix.PtraceGetRegs(thread, &regs))
	begins := !s.inside[thread]
	s.inside[thread] = begins
	name, path := calls[regs.Orig_rax], ""
	switch name {
	case "openat", "newfstatat":
		path = s.text(thread, regs.Rsi, 256)
	case "flock":
		name = fmt.Sprintf("flock %d", regs.Rsi)
	}

	if regs.Orig_rax == unix.SYS_WRITE && regs.Rdi == 1 {
		said := s.text(thread, regs.Rsi, min(regs.Rdx, 256))
		s.told = s.told || strings.HasPrefix(said, "contended")
		if strings.HasPrefix(said, "held") && !s.has {
			s.has = true
			s.held()
		}
	}

	s.begun = s.begun || path == s.path
	if !s.begun || s.has || name == "" {
		return
	}

	when := "after "
	if begins {
		when = "before "
	}

	s.count++
	s.at(s.count, when+name+" "+path)
	if name == fmt.Sprintf("flock %d", unix.LOCK_EX) && begins {
		s.wait()
	}
}

func (s *steps) text(thread int, address uint64, most uint64) string {
	buf := make([]byte, most)
	n, _ := syscall.PtracePeekData(thread, uintptr(address), buf)
	text, _, _ := bytes.Cut(buf[:n], []byte{0})
	return string(text)
}

// A yielding holder notices an open at any step of Acquire: through its watch,
// or, if the open came before the watch, when the process that opened the file
// waits for the lock.
func TestNoOpenIsMissedBetweenAnyTwoCalls(t *testing.T) {
	localcluster.SkipShort(t)
	runtime.LockOSThread() // ptrace(2) belongs to a thread
	defer runtime.UnlockOSThread()
	for _, name := range []string{"the lock is free", "the lock is held"} {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			watched := false
			for step := 0; ; step++ {
				where := "before all"
				path := lockPath(t)
				assert.NoError(t, os.WriteFile(path, nil, 0o600))
				var file *os.File
				waits := make(chan error, 1)
				open := func() { file = assert.Value(os.Open(path))(t) }
				s := &steps{t: t, path: path, wait: func() {}}
				s.at = func(n int, call string) {
					if n == step {
						where = call
						open()
					}
				}
				s.held = func() {
					watched = watched || strings.HasPrefix(where, "after inotify_add_watch")
					if file == nil {
						open() // so that it ends
					} else if !watched {
						go func() { waits <- flockWait(file) }()
					}
				}
				if name == "the lock is held" {
					_, s.wait = startHolder(t, path)
				}
				if step == 0 {
					open()
				}

				p := startPeer(t, Contender{Path: path, Yield: true}, tracedVar+"=1")
				s.run(p.pid())
				assert.Must(t, s.told, "an open %s was missed", where)
				if !watched {
					assert.NoError(t, <-waits)
				}

				_ = file.Close()
				if step > s.count {
					assert.That(t, watched && step >= 10, "%d steps were seen", s.count)
					t.Logf("%d steps", s.count)
					return
				}
			}
		})
	}
}
