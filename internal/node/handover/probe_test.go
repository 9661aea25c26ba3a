// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// asked is what a probe is answered, and its error.
func asked(t *testing.T, socket string, ready bool) (string, string) {
	t.Helper()
	var out strings.Builder
	if err := AskProbe(t.Context(), &out, socket, ready); err != nil {
		return out.String(), err.Error()
	}

	return out.String(), ""
}

// decider is how an agent says it is.
type decider struct {
	health  error
	healthy bool
}

func (d *decider) Health() error { return d.health }
func (d *decider) Healthy() bool { return d.healthy }

func TestAnAgentThatWaitsIsAliveAndReadyAndOneThatStartsIsAlive(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "new", "probe.sock")
	tell := quiet(t)
	stuck := errors.New("no decision for 3m0s")
	agent := &decider{}
	stop := tell.Probe.Serve(socket, slog.New(slog.DiscardHandler))
	defer stop()
	for _, c := range []struct {
		do                 func()
		alive, ready, what string // what each says; what: why it is not so
	}{
		{func() { tell.Starting("looking") }, "looking\n", "", "not ready: looking"},
		{func() { tell.Waiting("waiting for the lock") }, "waiting for the lock\n", "waiting for the lock\n", ""},
		{func() { tell.Starting("has the lock") }, "has the lock\n", "", "not ready: has the lock"},
		{func() { tell.Running(agent) }, "running, the kubelet is not healthy\n", "", "not ready: running, the kubelet is not healthy"},
		{func() { agent.healthy = true }, "running\n", "running\n", ""},
		{func() { agent.healthy = false }, "running, the kubelet is not healthy\n", "", "not ready: running, the kubelet is not healthy"},
		{func() { agent.healthy, agent.health = true, stuck }, "", "", "not alive: no decision for 3m0s (running)"},
		{func() { _ = tell.Stopping() }, "stopping\n", "", "not ready: stopping"},
	} {
		c.do()
		out, words := asked(t, socket, false)
		assert.That(t, out == c.alive && (c.alive != "" || words == c.what), "alive says %q, %q, want %q", out, words, c.alive)
		out, words = asked(t, socket, true)
		assert.That(t, out == c.ready && words == c.what, "ready says %q, %q, want %q, %q", out, words, c.ready, c.what)
	}

	for path, mode := range map[string]os.FileMode{socket: os.ModeSocket | 0o600, filepath.Dir(socket): os.ModeDir | 0o700} {
		info, err := os.Stat(path)
		assert.That(t, err == nil && info.Mode() == mode, "%s is %v, %v, want %v", path, info, err, mode)
	}

	other := httptest.NewRecorder()
	tell.Probe.ServeHTTP(other, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	assert.That(t, other.Code == http.StatusNotFound, "another path: %d", other.Code)
	stop()
	_, words := asked(t, socket, false)
	assert.That(t, strings.HasPrefix(words, "no agent answers on "+socket+": dial unix "+socket+": "), "after its end: %q", words)
}

func TestAProbeThatCannotBeAnsweredDoesNotKeepTheNodeFromItsKubelet(t *testing.T) {
	var log strings.Builder
	(&Probe{}).Serve("/proc/version/probe.sock", slog.New(slog.NewTextHandler(&log, nil)))()
	assert.That(t, strings.Contains(log.String(), "cannot answer probes; continuing without them"), "the log is %s", log.String())
	(&Probe{}).Serve("", nil)() // no socket: nothing
}

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
	_, err := listenUnix(filepath.Join(socket, "a", "probe.sock"))
	assert.That(t, err != nil && strings.HasPrefix(err.Error(), "--probe-socket: mkdir "), "a file as directory: %v", err)
}
