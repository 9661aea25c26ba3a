// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package checkpoint keeps the node's state in files: the downloaded
// configurations, which of them is current and which last-known-good, the bad
// ones, and the progress of a trial. Formats of files below the dynamic
// configuration directory belong here. It implements "On-disk", "Finding and
// checkpointing intended configuration" and "How to version tracking files" of
// the proposal "Dynamic Kubelet Configuration" (2017).
//
// It must not know why the state changes, what a payload means, or the
// Kubernetes API.
//
// Every file is replaced durably. A corrupt file is set aside and reported, and
// never counts as empty. Only one process at a time may have a Store of a
// directory open; ReadOnly and RequestForget may be used at the same time.
package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/trial"
)

const (
	dirMode  fs.FileMode = 0o700
	fileMode fs.FileMode = 0o600
)

const (
	checkpointsDir = "checkpoints"
	renderedDir    = "rendered"
	requestsDir    = "forget-requests"

	corruptSuffix = ".corrupt"
	editedSuffix  = ".edited" // a copy of a record that a person changed while the agent ran
)

// AgentLock is the lock file that the agent of a directory holds while it runs.
func AgentLock(dir string) string { return filepath.Join(dir, "agent.lock") }

// ErrName is the error for a revision or version that is not safe as a part of
// a path.
var ErrName = errors.New("not a safe name")

var safeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// checkName accepts one path element that does not look like an internal file
// name.
func checkName(what, name string) error {
	if !safeName.MatchString(name) || strings.HasSuffix(name, corruptSuffix) || strings.HasSuffix(name, atomicfile.TempSuffix) {
		return fmt.Errorf("%s %q: %w", what, name, ErrName)
	}

	return nil
}

func checkRevision(revision string) error { return checkName("revision", revision) }

func checkVersion(version string) error {
	reserved := slices.Contains([]string{checkpointsDir, renderedDir, requestsDir, runningFile, givenUpFile, versionRecord.name}, version) ||
		strings.HasSuffix(version, ".lock") ||
		slices.ContainsFunc(records, func(r record) bool { return r.name == version })
	if reserved {
		return fmt.Errorf("component version %q: %w: it is taken", version, ErrName)
	}

	return checkName("component version", version)
}

// Store is the state of one node with one version of the component. It is safe
// for concurrent use.
type Store struct {
	fsys    atomicfile.FS
	dir     string
	version string
	log     *slog.Logger

	mu sync.Mutex
	// durable is the content of each record that is known to survive a power
	// cut. A successful read does not prove that: after a failed sync of the
	// directory the new content is readable but not durable.
	durable map[string][]byte
	// unreadable records are not replaced: they may contain what the state
	// lacks.
	unreadable map[string]error
	// currentLost: `current` was missing, empty or corrupt, and nothing has
	// been adopted since. The file stays missing, so that it does not count as
	// an explicit assignment of local.
	currentLost bool
	// referenced are the configurations that the records on disk may name:
	// those of the last Load or Save and, while saving fails, those that were
	// to be saved.
	referenced []trial.AdoptedConfig
	loaded     bool
	// unsynced: Load could not sync all directories, and the next Save tries it
	// again.
	unsynced bool
}

// Open opens the state in dir for a version of the component, which must be a
// safe path element. It creates missing directories, tightens the mode of a
// directory that other users can enter, and removes files that a crash left
// half-written.
//
// Open changes no record. A disk that rejects writes is not an error: the files
// can be read, and a node that boots with a full disk must not lose its
// kubelet. After an error the caller can still use ReadOnly.
func Open(fsys atomicfile.FS, dir, version string, log *slog.Logger) (*Store, error) {
	if err := checkVersion(version); err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}

	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("dynamic config directory: %w", err)
	}

	s := &Store{fsys: fsys, dir: dir, version: version, log: log, durable: map[string][]byte{}, unreadable: map[string]error{}}
	if err := s.ensureDirs(); isStorageError(err) {
		log.Error("cannot write to the disk; using the existing files", "err", err)
	} else if err != nil {
		return nil, err
	}

	for _, d := range append(s.dirs(), s.path(requestsDir)) {
		s.removeLeftovers(d)
	}

	return s, nil
}

func (s *Store) dirs() []string {
	return []string{s.dir, s.path(checkpointsDir), s.path(renderedDir), s.path(s.version)}
}

func (s *Store) ensureDirs() error {
	for _, d := range s.dirs() {
		if err := s.ensureDir(d); err != nil {
			return fmt.Errorf("dynamic config directory: %w", err)
		}
	}

	return nil
}

// isStorageError reports whether err means that the disk rejects writes but may
// be readable.
func isStorageError(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EIO)
}

func (s *Store) path(elements ...string) string {
	return filepath.Join(append([]string{s.dir}, elements...)...)
}

func (s *Store) recordPath(r record) string { return recordPath(s.dir, s.version, r) }

func recordPath(dir, version string, r record) string {
	if r.versioned {
		return filepath.Join(dir, version, r.name)
	}

	return filepath.Join(dir, r.name)
}

// ensureDir creates a directory and its missing parents durably, or checks an
// existing one.
func (s *Store) ensureDir(dir string) error {
	info, err := s.fsys.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return atomicfile.MakeDir(s.fsys, dir, dirMode)
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory but %s: move it away, or name another directory", dir, kindOf(info.Mode()))
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d, who could change what this node runs: check its content, then chown it to root", dir, stat.Uid)
	}

	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		if err := s.fsys.Chmod(dir, dirMode); err != nil {
			return fmt.Errorf("%s has mode %04o, which gives other users access, and it cannot be changed: chmod it to %04o: %w", dir, mode, dirMode,
				err)
		}

		s.log.Warn("removed other users' access to a directory", "directory", dir, "mode", fmt.Sprintf("%04o", mode))
	}

	return nil
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode.IsDir():
		return "a directory"
	case mode.IsRegular():
		return "a file"
	}

	return "a special file (" + mode.String() + ")"
}

// removeLeftovers removes half-written files. They are harmless, so a failure
// is only logged.
func (s *Store) removeLeftovers(dir string) {
	entries, err := s.fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) { // Open could not create it
		return
	}

	for _, e := range entries {
		if strings.HasSuffix(e.Name(), atomicfile.TempSuffix) {
			err = errors.Join(err, s.removeTree(filepath.Join(dir, e.Name()), e.IsDir()))
		}
	}

	if err != nil {
		s.log.Warn("cannot remove half-written files", "directory", dir, "err", err)
	}
}

func (s *Store) removeTree(path string, isDir bool) error {
	if isDir {
		entries, err := s.fsys.ReadDir(path)
		for _, e := range entries {
			err = errors.Join(err, s.removeTree(filepath.Join(path, e.Name()), e.IsDir()))
		}
		if err != nil {
			return err
		}
	}

	return s.fsys.Remove(path)
}

// setAside renames a corrupt file so that people can inspect it. An older file
// of that name is replaced.
func (s *Store) setAside(path string) error {
	if err := s.fsys.Rename(path, path+corruptSuffix); err != nil {
		return err
	}

	return s.fsys.SyncDir(filepath.Dir(path))
}
