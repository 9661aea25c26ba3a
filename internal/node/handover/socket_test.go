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
)

// leave makes a socket as old as it says, and returns its path.
func leave(t *testing.T, dir, name string, mode fs.FileMode, old time.Duration, alive bool) string {
	t.Helper()
	path := filepath.Join(dir, name)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	when := time.Now().Add(-old)
	if err := errors.Join(os.Chmod(path, mode), os.Chtimes(path, when, when)); err != nil {
		t.Fatal(err)
	}
	if !alive {
		listener.SetUnlinkOnClose(false) // as one that was killed
		if err := listener.Close(); err != nil {
			t.Fatal(err)
		}
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
	listener, err := listenUnix(filepath.Join(dir, "new.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	want[filepath.Join(dir, "new.sock")] = true
	for path, want := range want {
		if got := there(t, path); got != want {
			t.Errorf("%s is there: %t, want %t", filepath.Base(path), got, want)
		}
	}
}

func TestSocketsAreSweptOnlyWhereThereIsNothingElse(t *testing.T) {
	dir := t.TempDir()
	killed := leave(t, dir, "killed.sock", 0o600, time.Hour, false)
	other := filepath.Join(dir, "zz")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	removeStaleSockets(dir)
	if !there(t, killed) {
		t.Error("a socket was removed from a directory that is not for sockets alone")
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	removeStaleSockets(dir)
	if there(t, killed) {
		t.Error("a socket that nobody answers on is left")
	}
	removeStaleSockets(filepath.Join(dir, "missing")) // nothing to sweep
}

func TestASocketThatIsLeftBehindIsReplacedAndOneInUseIsNot(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "probe.sock")
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if _, err := listenUnix(socket); err == nil || err.Error() != "--probe-socket: another process answers on "+socket+": give each agent its own path" {
		t.Errorf("in use: %v", err)
	}
	old.SetUnlinkOnClose(false) // as one that was killed
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	listener, err := listenUnix(socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(socket, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenUnix(socket); err == nil || err.Error() != "--probe-socket: "+socket+" exists and is not a socket: choose another path" {
		t.Errorf("a file: %v", err)
	}
	if _, err := listenUnix(filepath.Join(socket, "a", "probe.sock")); err == nil || !strings.HasPrefix(err.Error(), "--probe-socket: mkdir ") {
		t.Errorf("a file as directory: %v", err)
	}
}
