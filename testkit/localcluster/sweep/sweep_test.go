// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// follow starts a process that names a path on its command line.
func follow(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	assert.NoError(t, os.WriteFile(path, nil, 0o600))
	cmd := exec.Command("tail", "-f", path)
	assert.NoError(t, cmd.Start())
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })

	return cmd
}

func TestOnlyProcessesOfTheDirectoryThatAreNotSparedAreKilled(t *testing.T) {
	root := t.TempDir()
	dir, neighbour := filepath.Join(root, "node"), filepath.Join(root, "node2")
	for _, d := range []string{dir, neighbour} {
		assert.NoError(t, os.Mkdir(d, 0o700))
	}

	doomed, spared, other := follow(t, filepath.Join(dir, "a")), follow(t, filepath.Join(dir, "b")), follow(t, filepath.Join(neighbour, "c"))
	assert.NoError(t, Cluster(dir, []int{spared.Process.Pid}))
	assert.Error(t, doomed.Wait(), "signal: killed", "a process of the directory")
	for name, cmd := range map[string]*exec.Cmd{"a spared one": spared, "one of a directory with a longer name": other} {
		assert.OK(t, cmd.Process.Signal(unix.Signal(0)), name)
	}
}
