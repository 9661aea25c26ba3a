package vm

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// monitor answers commands as QEMU does, with an event before each answer.
func monitor(t *testing.T, socket string, answers map[string]string) {
	t.Helper()
	l := assert.Value(net.Listen("unix", socket))(t)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, `{"QMP": {"version": {}, "capabilities": []}}`+"\n")
		lines := bufio.NewScanner(conn)
		for lines.Scan() {
			_, _ = io.WriteString(conn, `{"event": "RESUME"}`+"\n"+answers[lines.Text()]+"\n")
		}
	}()
}

func TestTheMonitorsAnswerIsFoundBehindEvents(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "qmp")
	monitor(t, socket, map[string]string{
		`{"execute":"qmp_capabilities"}`: `{"return": {}}`,
		`{"execute":"stop"}`:             `{"return": {}}`,
		`{"execute":"fly"}`:              `{"error": {"class": "CommandNotFound", "desc": "The command fly has not been found"}}`,
	})
	q := assert.Value(dialQMP(t.Context(), socket, nil))(t)
	defer q.close()
	assert.OK(t, q.execute(t.Context(), "stop"))
	assert.Error(t, q.execute(t.Context(), "fly"), "fly: The command fly has not been found")
}

func TestAMonitorThatIsNotThereIsAnError(t *testing.T) {
	ended := make(chan struct{})
	close(ended)
	assert.Error(t, assert.Err(dialQMP(t.Context(), filepath.Join(t.TempDir(), "qmp"), ended)), "it ended at once")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Is(t, assert.Err(dialQMP(ctx, filepath.Join(t.TempDir(), "qmp"), nil)), os.ErrNotExist)
}

func TestQEMUGetsTheDiskTheNetworkAndTheAccelerator(t *testing.T) {
	for _, c := range []struct {
		disk  Disk
		accel string
		want  []string
	}{
		{Disk{File: "nbd:unix:/s"}, "", []string{"cache=writeback,format=raw,file=nbd:unix:/s", "-accel tcg,thread=multi "}},
		{Disk{File: "two", Format: "qcow2"}, "kvm", []string{"cache=writeback,format=qcow2,file=two", "-accel kvm "}},
	} {
		argv := strings.Join(arguments(Options{Image: &Image{Kernel: "k", Initrd: "i"}, Dir: "d", Root: c.disk, Accel: c.accel}, "q", "127.0.0.1:5"), " ")
		for _, want := range append(c.want, "-kernel k -initrd i", "panic=1", "hostfwd=tcp:127.0.0.1:5-:7000", "unix:q,", "path=d/console.log") {
			assert.That(t, strings.Contains(argv, want), "%q is missing in %s", want, argv)
		}
	}
}

func TestTheDigestChangesWithEachFile(t *testing.T) {
	dir := t.TempDir()
	digest := func(name, content string) string {
		t.Helper()
		assert.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
		d := assert.Value(digestOf(dir))(t)
		return d
	}
	one := digest("a", "1")
	assert.That(t, digest("a", "1") == one, "the same files have another digest")
	assert.That(t, digest("a", "2") != one && digest("b", "1") != one, "other files have the same digest")
	assert.Is(t, assert.Err(digestOf(filepath.Join(dir, "none"))), os.ErrNotExist)
}

func TestAKernelThatDoesNotBootIsNotRunWithKVM(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	i := &Image{Kernel: "vmlinuz"}
	for script, want := range map[string]string{
		`echo "$@" | grep -q -- "-accel kvm .*-kernel vmlinuz .*-no-reboot"`: "",
		"exec sleep 60":                "the kernel does not boot",
		"echo no such CPU >&2; exit 1": "exit status 1: no such CPU",
		"kill -ABRT $$":                "signal: aborted",
	} {
		assert.NoError(t, os.WriteFile(filepath.Join(dir, "qemu-system-x86_64"), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := runsKernel(ctx, i, "kvm")
		cancel()
		got := fmt.Sprint(err)
		assert.That(t, (want != "" || err == nil) && (want == "" || strings.Contains(got, want)), "%s: %s, want %q", script, got, want)
	}
}
