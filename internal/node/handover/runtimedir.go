// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/evenkeel/evenkeel/internal/node/lockfile"
	"github.com/evenkeel/evenkeel/internal/node/supervisor"
)

// runtimeDirLock is the name of the lock that an agent holds in a directory of
// its own. If the lock is free, the agent was killed.
const runtimeDirLock = "rundir.lock"

// RuntimeDir is a directory for files that need not outlive the agent. It is on
// a tmpfs where there is one, so that a full disk stops neither a kubelet nor a
// dry run.
type RuntimeDir struct {
	Path string
	lock *lockfile.Lock // nil: the directory is the init system's
}

// OpenRuntimeDir returns the directory that the init system names in
// $RUNTIME_DIRECTORY. If it names none, or one whose path is too long for
// sockets, OpenRuntimeDir makes one, and removes those of agents that were
// killed.
func OpenRuntimeDir() (RuntimeDir, error) {
	dir, _, _ := strings.Cut(os.Getenv("RUNTIME_DIRECTORY"), ":")
	if dir != "" && len(supervisor.NotifySocket(dir)) <= supervisor.MaxSocketPath {
		return RuntimeDir{Path: dir}, os.MkdirAll(dir, 0o700)
	}

	for _, parent := range []string{"/run", os.TempDir()} {
		removeStaleDirs(parent)
		if dir, err := makeRuntimeDir(parent); err == nil {
			return dir, nil
		}
	}

	return RuntimeDir{}, errors.New("cannot make a directory in /run or for temporary files; set RUNTIME_DIRECTORY")
}

// makeRuntimeDir makes a directory, and keeps its lock until Remove.
func makeRuntimeDir(parent string) (RuntimeDir, error) {
	dir, err := os.MkdirTemp(parent, "evenkeel-")
	if err != nil {
		return RuntimeDir{}, err
	}

	// Locked under another name first, so that removeStaleDirs of another agent
	// never finds it free.
	path := filepath.Join(dir, runtimeDirLock)
	lock, err := lockfile.TryAcquire(path + ".new")
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return RuntimeDir{}, errors.Join(err, os.RemoveAll(dir))
	}

	return RuntimeDir{dir, lock}, nil
}

// Remove removes the directory, unless the init system made it.
func (r RuntimeDir) Remove() {
	if r.lock != nil {
		_ = os.RemoveAll(r.Path) // if that fails, the next agent does it
		_ = r.lock.Release()
	}
}

// removeStaleDirs removes the directories of agents that were killed. A
// directory that cannot be removed does no harm.
func removeStaleDirs(parent string) {
	dirs, _ := filepath.Glob(filepath.Join(parent, "evenkeel-*")) // the pattern is valid
	for _, dir := range dirs {
		path := filepath.Join(dir, runtimeDirLock)
		if !isOwn(dir, fs.ModeDir|0o700) || !isOwn(path, 0o600) { // made by an agent without this lock, or by another program
			continue
		}
		if lock, err := lockfile.TryAcquire(path); err == nil {
			RuntimeDir{dir, lock}.Remove()
		}
	}
}
