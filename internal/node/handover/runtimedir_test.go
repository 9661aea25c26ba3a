// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/evenkeel/evenkeel/internal/node/lockfile"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func there(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	assert.Must(t, err == nil || errors.Is(err, fs.ErrNotExist), "%v", err)

	return err == nil
}

// runtimeDirVar names the directory where this test binary, started again,
// makes a rundir, says so, and is killed.
const runtimeDirVar = "EVENKEEL_TEST_RUNDIR"

func TestMain(m *testing.M) {
	if parent := os.Getenv(runtimeDirVar); parent != "" {
		dir, err := makeRuntimeDir(parent)
		if err == nil {
			fmt.Print(dir.Path)
			err = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}

		fmt.Print(err)
		os.Exit(1)
	}

	os.Exit(m.Run())
}

func TestADirectoryOfAnAgentThatWasKilledIsSweptByTheNextOne(t *testing.T) {
	t.Setenv("RUNTIME_DIRECTORY", "")
	alive := assert.Value(OpenRuntimeDir())(t)
	defer alive.Remove()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), runtimeDirVar+"="+filepath.Dir(alive.Path))
	out, err := cmd.Output()
	killed := string(out)
	assert.Must(t, err != nil && err.Error() == "signal: killed" && there(t, killed), "it was not killed: %v, %s", err, killed)
	assert.NoError(t, os.MkdirAll(filepath.Join(killed, "dry-run", "dryrun-1"), 0o700))
	next := assert.Value(OpenRuntimeDir())(t)
	defer next.Remove()
	assert.That(t, !there(t, killed) && there(t, alive.Path) && there(t, next.Path), "killed: %t, alive: %t, next: %t", there(t, killed), there(t, alive.Path), there(t, next.Path))
}

func TestADirectoryThatNoAgentMadeForItselfIsLeftAlone(t *testing.T) {
	parent := t.TempDir()
	dir := func(name string, mode fs.FileMode, file string) {
		t.Helper()
		path := filepath.Join(parent, name)
		assert.NoError(t, errors.Join(os.Mkdir(path, 0o700), os.WriteFile(filepath.Join(path, file), nil, 0o600), os.Chmod(path, mode)))
	}
	dir("evenkeel-123", 0o700, "notify.sock")  // of an agent that is older than the lock, and may be alive
	dir("evenkeel-state", 0o700, "agent.lock") // somebody's --dynamic-config-dir
	dir("evenkeel-all", 0o777, runtimeDirLock) // everybody's
	dir("other", 0o700, runtimeDirLock)
	dir("evenkeel-left", 0o700, runtimeDirLock)
	assert.NoError(t, os.Symlink("other", filepath.Join(parent, "evenkeel-link")))
	if os.Getuid() == 0 {
		dir("evenkeel-theirs", 0o700, runtimeDirLock)
		assert.NoError(t, os.Chown(filepath.Join(parent, "evenkeel-theirs"), 54321, -1))
	}

	before := assert.Value(os.ReadDir(parent))(t)
	removeStaleDirs(parent)
	for _, e := range before {
		assert.Equal(t, there(t, filepath.Join(parent, e.Name())), e.Name() != "evenkeel-left")
	}

	assert.That(t, there(t, filepath.Join(parent, "other", runtimeDirLock)), "a link was followed")
}

func TestARuntimeDirectoryIsTheInitSystemsOrOurs(t *testing.T) {
	given := filepath.Join(t.TempDir(), "given")
	t.Setenv("RUNTIME_DIRECTORY", given+":/run/more")
	dir, err := OpenRuntimeDir()
	assert.Must(t, err == nil && dir.Path == given, "got %s, %v, want %s", dir.Path, err, given)
	dir.Remove()
	assert.That(t, there(t, given), "what the init system made was removed")
	for _, none := range []string{"", filepath.Join(given, strings.Repeat("x", 100))} { // the second is too long for sockets
		t.Setenv("RUNTIME_DIRECTORY", none)
		dir, err = OpenRuntimeDir()
		assert.Must(t, err == nil && strings.HasPrefix(filepath.Base(dir.Path), "evenkeel-"), "got %s, %v", dir.Path, err)
		info, err := os.Stat(dir.Path)
		assert.That(t, err == nil && info.Mode() == fs.ModeDir|0o700, "it is %v, %v", info, err)

		assert.Is(t, assert.Err(lockfile.TryAcquire(filepath.Join(dir.Path, runtimeDirLock))), lockfile.ErrHeld, "it is not held")
		dir.Remove()
		assert.That(t, !there(t, dir.Path), "it is there after its end")
	}
}

func TestADirectoryThatCannotBeHeldIsNotLeftBehind(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount")
	}

	full := t.TempDir()
	assert.NoError(t, syscall.Mount("tmpfs", full, "tmpfs", 0, "size=64k,nr_inodes=2")) // room for a directory
	t.Cleanup(func() { _ = syscall.Unmount(full, syscall.MNT_DETACH) })
	assert.Is(t, assert.Err(makeRuntimeDir(full)), syscall.ENOSPC)
	left, err := os.ReadDir(full)
	assert.That(t, err == nil && len(left) == 0, "%v is left, %v", left, err)
	assert.Is(t, assert.Err(makeRuntimeDir(filepath.Join(full, "missing"))), fs.ErrNotExist, "in a directory that is missing")
}
