// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/output"
	"github.com/evenkeel/evenkeel/testkit/procs"
)

// tenMiB writes 160,000 lines of 64 bytes, and then an error.
const tenMiB = `i=0; line=$(printf '%062d' 7); block=$(for n in 1 2 3 4 5 6 7 8 9 10; do echo I$line; done)
while [ $i -lt 16000 ]; do echo "$block"; i=$((i+1)); done >&2; echo Error: the end >&2; exit 1`

const tenMiBLength = 160_000*64 + len("Error: the end\n")

func TestAStoppedAgentNeitherBlocksTheChildNorItsLog(t *testing.T) {
	to := newSink(t)
	a := startAgent(t, to.file, "read x; "+tenMiB) // the agent's stdin is /dev/null for the child: read returns at once
	assert.NoError(t, a.Process.Signal(syscall.SIGSTOP))
	assert.Eventually(t, "the child ends", func() bool { return procs.Ended(a.child) })
	assert.Eventually(t, "its log arrives", func() bool { return len(to.String()) == tenMiBLength })
	assert.NoError(t, a.Process.Signal(syscall.SIGCONT))
	assert.Returns(t, "\"Error: the end\\n\"\n", "the agent knows")(a.says.ReadString('\n'))
}

func TestTheLogArrivesAlthoughTheAgentIsKilled(t *testing.T) {
	to := newSink(t)
	a := startAgent(t, to.file, tenMiB)
	assert.Eventually(t, "the child writes", func() bool { return to.String() != "" })
	assert.NoError(t, a.Process.Kill())
	_ = a.Wait()
	got := to.ended(t)
	assert.That(t, len(got) == tenMiBLength && strings.HasSuffix(got, "Error: the end\n"), "%d bytes arrived, want %d", len(got), tenMiBLength)
}

func TestTheLogArrivesUnchanged(t *testing.T) {
	for name, tt := range map[string]struct{ script, log, lines string }{
		"nothing":               {"exit 1", "", ""},
		"an error":              {"echo hello; echo Error: x; exit 1", "hello\nError: x\n", "Error: x\n"},
		"no newline at the end": {"echo hello; printf 'Error: x'", "hello\nError: x", "Error: x\n"},
		"binary rubbish":        {`printf 'Error: \000\377\033[2J\n\n\377'`, "Error: \x00\xff\x1b[2J\n\n\xff", "Error: \x00\xff\x1b[2J\n"},
		"a closed stderr":       {"echo Error: x; exec >&- 2>&-; exit 1", "Error: x\n", "Error: x\n"},
		"a line of 1 MB": {`printf 'Error: '; head -c 1000000 /dev/zero | tr '\0' x; echo; echo Error: y`,
			"Error: " + strings.Repeat("x", 1_000_000) + "\nError: y\n", "Error: " + strings.Repeat("x", maxLine-len("Error: ")) + "\nError: y\n"},
	} {
		t.Run(name, func(t *testing.T) {
			to := newSink(t)
			r := startRelay(t, to.file, io.Discard)
			assert.Equal(t, run(t, r, "exec >&2; "+tt.script), tt.lines, "last lines")
			r.Close()
			got := to.ended(t)
			assert.That(t, got == tt.log, "the log is %.200q (%d bytes), want %.200q (%d bytes)", got, len(got), tt.log, len(tt.log))
		})
	}
}

func TestDescendantsThatKeepTheFileOpenDelayNothing(t *testing.T) {
	to := newSink(t)
	r := startRelay(t, to.file, io.Discard)
	assert.Equal(t, run(t, r, "sleep 1000 >&2 & echo $! >&2; echo Error: x >&2; exit 1"), "Error: x\n", "last lines")
	r.Drain(deadline)
	var pid int
	assert.Eventually(t, "the log arrives", func() bool {
		n, err := fmt.Sscanf(to.String(), "%d\nError: x\n", &pid)
		return n == 1 && err == nil
	})
	assert.That(t, !procs.Ended(pid), "the descendant has ended")
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

func TestASlowReaderHidesNoError(t *testing.T) {
	const size = 200_000 // more than fits into the destination, which nobody reads
	for name, output := range map[string]string{
		"in large pieces": fmt.Sprintf("head -c %d /dev/zero", size),
		"in small pieces": fmt.Sprintf("i=0; while [ $i -lt %d ]; do printf %%0100d 0; i=$((i+1)); done", size/100),
	} {
		t.Run(name, func(t *testing.T) {
			out, in := pipe(t)
			r := startRelay(t, in, io.Discard)
			assert.Equal(t, run(t, r, "{ "+output+"; echo; echo Error: x; } >&2; exit 1"), "Error: x\n", "last lines")
			r.Close()
			_ = in.Close()
			all, err := io.ReadAll(out)
			assert.That(t, err == nil && len(all) == size+len("\nError: x\n"),
				"%d bytes arrived (%v), want %d", len(all), err, size+len("\nError: x\n"))
		})
	}
}

// Nobody reads the log, and each write is read before the next one: however
// small they are, none stays in the pipe.
func TestSmallWritesAreReadThoughNobodyReadsTheLog(t *testing.T) {
	_, in := pipe(t)
	r := startRelay(t, in, io.Discard)
	for _, output := range append(slices.Repeat([]string{strings.Repeat("0", 32<<10)}, 2), append(slices.Repeat([]string{"0"}, 50), "\nError: x\n")...) {
		assert.NoError(t, assert.Err(r.Input().WriteString(output)))
		assert.Eventually(t, "everything is read", func() bool {
			n, err := unix.IoctlGetInt(int(r.out.Fd()), unix.TIOCINQ)
			return err == nil && n == 0
		})
	}

	assert.Equal(t, string(r.Lines(deadline)), "Error: x\n", "last lines")
}

func TestABrokenDestinationDoesNotEndTheChild(t *testing.T) {
	out, in := pipe(t)
	_ = out.Close()
	r := startRelay(t, in, io.Discard)
	assert.Equal(t, run(t, r, tenMiB), "Error: the end\n", "last lines")
}

func TestANonblockingDestinationLosesNothing(t *testing.T) {
	to := newSink(t)
	r := startRelay(t, to.file, io.Discard)
	assert.NoError(t, unix.SetNonblock(int(to.file.Fd()), true))
	run(t, r, tenMiB)
	r.Close()
	got := to.ended(t)
	assert.That(t, len(got) == tenMiBLength, "%d bytes arrived, want %d", len(got), tenMiBLength)
}

func TestAKilledCopyingProcessIsReplaced(t *testing.T) {
	to, log := newSink(t), &output.Buffer{}
	r := startRelay(t, to.file, log)
	first := copier(t)
	assert.NoError(t, syscall.Kill(first, syscall.SIGKILL))
	assert.Equal(t, run(t, r, tenMiB), "Error: the end\n", "last lines") // it blocks for a moment, and gets no SIGPIPE
	second := copier(t)
	assert.That(t, second != first && strings.Count(log.String(), "level=WARN") == 1, "process %d follows %d, with %d warnings, want another one and one warning", second, first, strings.Count(log.String(), "level=WARN"))
	r.Close()
	got := to.ended(t)
	assert.That(t, len(got) == tenMiBLength, "%d bytes arrived, want %d", len(got), tenMiBLength)
}

func TestSignalsThatStopAServiceDoNotStopTheLog(t *testing.T) {
	to := newSink(t)
	r := startRelay(t, to.file, io.Discard)
	pid := copier(t)
	run(t, r, "true") // it has started
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		assert.NoError(t, syscall.Kill(pid, s))
	}

	got := run(t, r, tenMiB)
	assert.That(t, got == "Error: the end\n" && copier(t) == pid, "last lines %q, want the error from the same process", got)
}

func TestTheCopyingProcessIsSmall(t *testing.T) {
	to := newSink(t)
	r := startRelay(t, to.file, io.Discard)
	run(t, r, tenMiB)
	status := assert.Value(os.ReadFile("/proc/" + strconv.Itoa(copier(t)) + "/status"))(t)
	_, anon, _ := strings.Cut(string(status), "RssAnon:")
	kb, err := strconv.Atoi(strings.Fields(anon)[0])
	t.Logf("memory of its own: %d kB", kb)
	assert.That(t, err == nil && kb <= 4<<10, "%d kB of memory of its own (%v), want at most 4 MiB", kb, err)
}

func TestNothingIsLeftAfterManyRelays(t *testing.T) {
	to := newSink(t)
	count := func() (fds, goroutines int) {
		open := assert.Value(os.ReadDir("/proc/self/fd"))(t)
		return len(open), runtime.NumGoroutine()
	}
	fds, goroutines := count()
	for range 20 {
		r := startRelay(t, to.file, io.Discard)
		cmd := exec.Command("/bin/true")
		assert.Must(t, cmd.Run() == nil, "cannot run a program")
		r.Close()
		r.Close()
	}

	assert.Eventually(t, "as many files, goroutines and processes as before", func() bool {
		f, g := count()
		return f <= fds && g <= goroutines && len(copiers()) == 0
	})
}

func TestTooFewDescriptorsAreAnError(t *testing.T) {
	to := newSink(t)
	var limit unix.Rlimit
	assert.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	open := assert.Value(os.ReadDir("/proc/self/fd"))(t)
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }()
	for more := range 4 {
		assert.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(len(open) - 1 + more), Max: limit.Max}))
		r, err := Start(to.file, nil)
		if err == nil {
			r.Close()
			continue // enough
		}

		assert.That(t, strings.HasPrefix(err.Error(), "relay of the output: "), "with %d more descriptors: %v", more, err)
	}
}
