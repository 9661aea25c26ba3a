// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package blockdev

import (
	"context"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// serve serves a disk until the test ends, and returns its socket.
func serve(t *testing.T, r *Recorder) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "nbd")
	l := assert.Value(net.Listen("unix", socket))(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		assert.OK(t, <-done)
	})

	return socket
}

func qemuIO(t *testing.T, socket string, commands ...string) string {
	t.Helper()
	program, err := exec.LookPath("qemu-io")
	if err != nil {
		t.Skip("qemu-io is not installed (Debian: qemu-utils)")
	}

	args := []string{"-f", "raw", "-t", "writeback"}
	for _, c := range commands {
		args = append(args, "-c", c)
	}

	out, err := exec.CommandContext(t.Context(), program, append(args, "nbd:unix:"+socket)...).CombinedOutput()
	assert.Must(t, err == nil, "qemu-io: %v: %s", err, out)

	return string(out)
}

// QEMU writes zeros as data, and does not send discards.
func TestQEMUReadsWritesAndFlushes(t *testing.T) {
	r := newRecorder(t)
	socket := serve(t, r)
	out := qemuIO(t, socket, "read -P 0x2e 0 32k", "write -P 0x61 0 1k", "flush", "write -f -P 0x62 1k 512", "write -z 1536 512", "discard 2k 512", "read -P 0x61 0 1k", "length")
	assert.That(t, !strings.Contains(out, "fail") && strings.Contains(out, "32 KiB"), "qemu-io: %s", out)
	assert.Equal(t, letters(t, r), padded("aab0"), "the disk")
	// A flush comes with each close; the durable write comes after the first.
	var kinds string
	r.each(r.Position(), func(_ Position, rec record, _ io.Reader) {
		kinds += map[bool]string{false: "w", true: "f"}[rec.Flush]
		if rec.Durable {
			kinds += "!"
		}
	})
	assert.That(t, strings.HasPrefix(kinds, "wfw!w"), "the log has %s", kinds)
}
