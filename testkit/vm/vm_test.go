// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"fmt"
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
