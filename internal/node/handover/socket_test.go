// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// leave makes a socket as old as it says, and returns its path.
func leave(t *testing.T, dir, name string, mode fs.FileMode, old time.Duration, alive bool) string {
	t.Helper()
	path := filepath.Join(dir, name)
	listener := assert.Value(net.ListenUnix("unix", &net.UnixAddr{Name: path}))(t)
	t.Cleanup(func() { _ = listener.Close() })
	when := time.Now().Add(-old)
	assert.NoError(t, errors.Join(os.Chmod(path, mode), os.Chtimes(path, when, when)))
	if !alive {
		listener.SetUnlinkOnClose(false) // as one that was killed
		assert.NoError(t, listener.Close())
	}

	return path
}

func TestProbeSocketsOfAgentsThatWereKilledAreSweptByTheNextOne(t *testing.T) {
	dir := t.TempDir()
	want := map[string]bool{
		leave(t, dir, "killed.sock", 0o600, time.Hour, false):            false,
		leave(t, dir, "alive.sock", 0o600, time.Hour, true):              true,
		leave(t, dir, "about-to-listen.sock", 0o600, time.Second, false): true,
		leave(t, dir, "not-an-agents.sock", 0o666, time.Hour, false):     true,
	}
	listener := assert.Value(listenUnix(filepath.Join(dir, "new.sock")))(t)
	defer listener.Close()
	want[filepath.Join(dir, "new.sock")] = true
	for path, want := range want {
		assert.Equal(t, there(t, path), want, filepath.Base(path), "is there")
	}
}

func TestSocketsAreSweptOnlyWhereThereIsNothingElse(t *testing.T) {
	dir := t.TempDir()
	killed := leave(t, dir, "killed.sock", 0o600, time.Hour, false)
	other := filepath.Join(dir, "zz")
	assert.NoError(t, os.WriteFile(other, nil, 0o600))
	removeStaleSockets(dir)
	assert.That(t, there(t, killed), "a socket was removed from a directory that is not for sockets alone")
	assert.NoError(t, os.Remove(other))
	removeStaleSockets(dir)
	assert.That(t, !there(t, killed), "a socket that nobody answers on is left")
	removeStaleSockets(filepath.Join(dir, "missing")) // nothing to sweep
}

func TestASocketThatIsLeftBehindIsReplacedAndOneInUseIsNot(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "probe.sock")
	old := assert.Value(net.ListenUnix("unix", &net.UnixAddr{Name: socket}))(t)
	defer old.Close()
	assert.Error(t, assert.Err(listenUnix(socket)), "--probe-socket: another process answers on "+socket+": give each agent its own path", "in use")
	old.SetUnlinkOnClose(false) // as one that was killed
	assert.NoError(t, old.Close())
	listener := assert.Value(listenUnix(socket))(t)
	assert.NoError(t, listener.Close())
	assert.NoError(t, os.WriteFile(socket, []byte("precious"), 0o600))
	assert.Error(t, assert.Err(listenUnix(socket)), "--probe-socket: "+socket+" exists and is not a socket: choose another path", "a file")
	if _, err := listenUnix(filepath.Join(socket, "a", "probe.sock")); err == nil || !strings.HasPrefix(err.Error(), "--probe-socket: mkdir ") {
		t.Errorf("a file as directory: %v", err)
	}
}
