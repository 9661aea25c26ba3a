// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

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

// monitor answers commands like QEMU's.
func monitor(t *testing.T, answers ...string) *qmp {
	socket := filepath.Join(t.TempDir(), "qmp")
	listener := assert.Value(net.Listen("unix", socket))(t)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}

		defer conn.Close()
		fmt.Fprintln(conn, `{"QMP": {}}`)
		read := bufio.NewScanner(conn)
		for _, answer := range append([]string{`{"return": {}, "id": 1}`}, answers...) {
			if !read.Scan() {
				return
			}

			fmt.Fprintln(conn, answer)
		}

		read.Scan()
	}()
	t.Cleanup(func() { listener.Close() })
	q, err := dialQMP(t.Context(), socket, nil)
	assert.NoError(t, err)
	t.Cleanup(q.close)

	return q
}

func TestACommandWaitsForItsOwnAnswer(t *testing.T) {
	q := monitor(t, `{"event": "RTC_CHANGE"}{"return": {}, "id": 1}{"error": {"desc": "no such command"}, "id": 2}`, `{"return": {}, "id": 3}`)
	assert.ErrorHas(t, q.execute(t.Context(), "halt"), "no such command")
	assert.NoError(t, q.execute(t.Context(), "stop"))
}

func TestAMachineThatStandsStillBecauseTheDiskIsFullSaysSo(t *testing.T) {
	q := monitor(t, `{"event": "BLOCK_IO_ERROR", "data": {"device": "disk", "nospace": true, "reason": "No space left on device", "action": "stop"}}`)
	assert.ErrorHas(t, q.execute(t.Context(), "cont"), "QEMU has stopped the machine: it cannot use the file of disk: No space left on device")
	<-q.broken
}
