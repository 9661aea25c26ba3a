// Package checkpoint keeps the node's state on disk: the configurations that
// were downloaded, which of them is current and which last-known-good, and what
// is known of their trials. It implements "On-disk", "Finding and checkpointing
// intended configuration" and "How to version tracking files" of the proposal
// "Dynamic Kubelet Configuration" (2017).
//
// It must not know why a state follows another, what a payload means, or that
// there is an API.
//
// Every file is replaced durably. What is corrupt is set aside and reported,
// never taken for empty. One process at a time may hold a Store of a directory;
// ReadOnly and RequestForget may be used beside it.
package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
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

// Store is the state of one node with one version of the component. It is safe
// for concurrent use.
type Store struct {
	fsys    atomicfile.FS
	dir     string
	version string
	log     *slog.Logger

	mu sync.Mutex
	// durable is what each record is known to hold even after a power cut. What
	// can be read is not enough: after a failed sync of the directory the new
	// content is there, and not durable.
	durable map[string][]byte
	// unreadable records are not replaced: they may hold what the state lacks.
	unreadable map[string]error
	// currentLost: `current` was missing, empty or corrupt, and nothing has been
	// adopted since. It stays missing, so that nobody takes it for an explicit
	// local one.
	currentLost bool
	// named are the configurations that the records on disk may name: as loaded
	// or saved last, and, while saving fails, as it was to be saved.
	named  []trial.Record
	loaded bool
	// lacking: some directory could not be made when the Store was opened. What
	// is there can be read; what is to be written makes it first.
	lacking bool
}

// Open opens the state in dir for the given version of the component, a safe
// path element, and makes what is missing of the directories. It tightens the
// mode of a directory that others can enter, and removes what a crash left
// half-written.
//
// It changes no record. A disk that takes nothing now is no error: what is there
// can be read, and a node that boots with a full disk must not lose its kubelet
// to that. An error says what else is wrong with the directory; the caller can
// then still read what is there with ReadOnly.
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
	if err := s.ensureDirs(); takesNothing(err) {
		log.Error("the disk takes nothing; going by what is there", "err", err)
		s.lacking = true
	} else if err != nil {
		return nil, err
	}
	// Who made a directory may have been killed before its name was durable, and nothing below it is without.
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := fsys.SyncDir(d); err != nil && !s.lacking {
			log.Warn("could not make sure that directories outlast a power cut", "directory", d, "err", err)
		}
	}
	for _, d := range s.dirs() {
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

// prepare makes what Open could not, before something is written.
func (s *Store) prepare() error {
	if !s.lacking {
		return nil
	}
	err := s.ensureDirs()
	s.lacking = err != nil
	return err
}

// takesNothing tells whether an error is one of a disk that may be read.
func takesNothing(err error) bool {
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

// ensureDir makes a directory durably, with the parents it lacks, or checks the
// one that is there.
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
		return fmt.Errorf("%s belongs to user %d, who could change what this node runs: look at what it holds, then chown it to root", dir, stat.Uid)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		if err := s.fsys.Chmod(dir, dirMode); err != nil {
			return fmt.Errorf("%s has mode %04o, others can get at it, and it could not be tightened: chmod it to %04o: %w", dir, mode, dirMode, err)
		}
		s.log.Warn("tightened the mode of a directory that others could get at", "directory", dir, "mode", fmt.Sprintf("%04o", mode))
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
	return "something special (" + mode.String() + ")"
}

// removeLeftovers removes what crashes left half-written. They do no harm, so
// that a failure is not one of Open.
func (s *Store) removeLeftovers(dir string) {
	entries, err := s.fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) && s.lacking {
		return
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), atomicfile.TempSuffix) {
			err = errors.Join(err, s.removeTree(filepath.Join(dir, e.Name()), e.IsDir()))
		}
	}
	if err != nil {
		s.log.Warn("could not remove leftovers", "directory", dir, "err", err)
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

// setAside keeps a corrupt file for people to look at, in place of an older one
// of the same name.
func (s *Store) setAside(path string) error {
	if err := s.fsys.Rename(path, path+corruptSuffix); err != nil {
		return err
	}
	return s.fsys.SyncDir(filepath.Dir(path))
}
