package handover

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/evenkeel/evenkeel/internal/node/lockfile"
)

// rundirLock is held by an agent in a directory that it made for itself. One that is free is of an agent that was killed.
const rundirLock = "rundir.lock"

// RuntimeDir is where what need not last is kept: on a tmpfs, so that a full disk
// stops neither a kubelet nor a dry run.
type RuntimeDir struct {
	Path string
	lock *lockfile.Lock // nil: the directory is the init system's
}

// OpenRuntimeDir makes it, or takes the one that the init system made. It removes those of agents that were killed.
func OpenRuntimeDir() (RuntimeDir, error) {
	if dir := os.Getenv("RUNTIME_DIRECTORY"); dir != "" {
		dir, _, _ = strings.Cut(dir, ":")
		return RuntimeDir{Path: dir}, os.MkdirAll(dir, 0o700)
	}
	for _, parent := range []string{"/run", os.TempDir()} {
		sweepRundirs(parent)
		if dir, err := makeRundir(parent); err == nil {
			return dir, nil
		}
	}
	return RuntimeDir{}, errors.New("cannot make a directory in /run or for temporary files; set RUNTIME_DIRECTORY")
}

// makeRundir makes a directory, which is held until it is removed.
func makeRundir(parent string) (RuntimeDir, error) {
	dir, err := os.MkdirTemp(parent, "evenkeel-")
	if err != nil {
		return RuntimeDir{}, err
	}
	// Locked under another name, so that nobody who sweeps finds it free.
	path := filepath.Join(dir, rundirLock)
	lock, err := lockfile.TryAcquire(path + ".new")
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return RuntimeDir{}, errors.Join(err, os.RemoveAll(dir))
	}
	return RuntimeDir{dir, lock}, nil
}

// Remove removes what this agent made.
func (r RuntimeDir) Remove() {
	if r.lock != nil {
		_ = os.RemoveAll(r.Path) // else the next agent does
		_ = r.lock.Release()
	}
}

// sweepRundirs removes the directories of agents that were killed. What cannot be removed does no harm.
func sweepRundirs(parent string) {
	dirs, _ := filepath.Glob(filepath.Join(parent, "evenkeel-*")) // the pattern is a good one
	for _, dir := range dirs {
		path := filepath.Join(dir, rundirLock)
		if !private(dir, fs.ModeDir|0o700) || !private(path, 0o600) { // an agent's that is older than the lock, or not an agent's
			continue
		}
		if lock, err := lockfile.TryAcquire(path); err == nil {
			RuntimeDir{dir, lock}.Remove()
		}
	}
}

// aboutToListen is how long a socket may be there before its process listens: much longer than that takes.
const aboutToListen = time.Minute

// sweepSockets removes the probe sockets of agents that were killed from a directory that has sockets only: pods have a
// socket each, and none comes back to its own.
func sweepSockets(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.Type() != fs.ModeSocket {
			return // whose directory it is, is not known
		}
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := e.Info()
		if err != nil || !private(path, fs.ModeSocket|0o600) || time.Since(info.ModTime()) < aboutToListen {
			continue
		}
		conn, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			_ = conn.Close()
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			_ = os.Remove(path)
		}
	}
}

// private tells whether what is at path is this user's, and has this mode.
func private(path string, mode fs.FileMode) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != mode {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
