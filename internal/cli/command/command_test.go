// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAFileIsReadUpToItsLimit(t *testing.T) {
	e := &Env{}
	file := filepath.Join(t.TempDir(), "workers.yaml")
	for size, want := range map[int]string{
		1 << 20:     "",
		1<<20 + 1:   file + " is larger than 1 MiB, which is the limit: it was not used; use a smaller file",
		4<<20 + 100: file + " is larger than 1 MiB, which is the limit: it was not used; use a smaller file",
	} {
		assert.NoError(t, os.WriteFile(file, make([]byte, size), 0o600))
		data, name, err := e.ReadFile(t.Context(), file, 1<<20)
		switch {
		case name != file:
			t.Errorf("the name of the file is %s", name)
		case want == "" && (err != nil || len(data) != size):
			t.Errorf("read %d of %d bytes: %v", len(data), size, err)
		case want != "" && (err == nil || err.Error() != want || data != nil):
			t.Errorf("read %d of %d bytes; the error is %v, want %s", len(data), size, err, want)
		}
	}
}

func TestReadingAPipeWithoutAWriterEndsWhenInterrupted(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	assert.NoError(t, syscall.Mkfifo(pipe, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := (&Env{}).ReadFile(ctx, pipe, 1)
	assert.That(t, err != nil && strings.Contains(err.Error(), "interrupted: nothing was written"), "the error is %v", err)
}

func TestReadingStandardInputEndsWhenInterrupted(t *testing.T) {
	in, out := io.Pipe()
	defer out.Close()
	e := &Env{IOStreams: genericclioptions.IOStreams{In: in}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := e.ReadFile(ctx, "-", 1)
	assert.That(t, err != nil && strings.Contains(err.Error(), "interrupted: nothing was written"), "the error is %v", err)
}
