package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/trial"
)

var (
	// ErrNotFound says that there is no checkpoint of a configuration.
	ErrNotFound = errors.New("no checkpoint")
	// ErrCorrupt says that a checkpoint does not hold what was put there.
	ErrCorrupt = errors.New("the checkpoint is corrupt")
)

const (
	keptVersions = 5 // besides the one in use
	keptCorrupt  = 5 // checkpoints that were set aside
)

func sha256hex(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Put checkpoints a serialized ConfigMap durably and returns the sha256 of the
// file. A file that is there already stays if it holds the same bytes, or if it
// is what a record in use vouches for: the object's metadata may have changed
// since, and the record must not be left with another file. Whether the payload
// is still the same is for the caller to tell. What else is there is replaced.
func (s *Store) Put(revision string, configMap []byte) (sha256hexOfFile string, err error) {
	if err := checkRevision(revision); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	dir := s.path(checkpointsDir)
	path := filepath.Join(dir, revision)
	old, err := readSane(s.fsys, path)
	named, vouched := s.onRecord(revision, sha256hex(old))
	switch {
	case err == nil && (bytes.Equal(old, configMap) || vouched):
		// Who wrote it may have failed at just that.
		if err := s.fsys.SyncDir(dir); err != nil {
			return "", fmt.Errorf("checkpoint %s: %w", revision, err)
		}
		return sha256hex(old), nil
	case errors.Is(err, fs.ErrNotExist):
		err = s.ensureDir(dir) // it may have gone too
	case err != nil, named:
		err = s.setAside(path)
	}
	if err != nil {
		return "", fmt.Errorf("checkpoint %s: %w", revision, err)
	}
	if err := atomicfile.Write(s.fsys, path, configMap, fileMode); err != nil {
		return "", fmt.Errorf("checkpoint %s: %w", revision, err)
	}
	return sha256hex(configMap), nil
}

// onRecord tells whether a record in use has a digest for that revision, and
// whether one has this digest.
func (s *Store) onRecord(revision, digest string) (named, vouched bool) {
	for _, r := range s.named {
		if r.Revision == revision && r.Checkpoint != "" {
			named = true
			vouched = vouched || r.Checkpoint == digest
		}
	}
	return named, vouched
}

// Get returns the checkpoint of c as it was put there. Where c has the file's
// digest the file must match it; else it must be JSON at least. One that is
// corrupt is set aside, so that it can be downloaded anew. The error is
// ErrNotFound, ErrCorrupt, ErrName, or one of reading, after which the
// checkpoint may be good.
func (s *Store) Get(c trial.Config) ([]byte, error) {
	if err := checkRevision(c.Revision); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	path := s.path(checkpointsDir, c.Revision)
	data, err := readSane(s.fsys, path)
	var what string
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("configuration %s: %w", c.Revision, ErrNotFound)
	case errors.Is(err, errCorrupt):
		what = err.Error()
	case err != nil:
		return nil, fmt.Errorf("configuration %s: %w", c.Revision, err)
	case c.Checkpoint != "" && sha256hex(data) != c.Checkpoint:
		what = fmt.Sprintf("its sha256 is %s, on record is %s", sha256hex(data), c.Checkpoint)
	case !json.Valid(data):
		what = "it is not JSON"
	default:
		return data, nil
	}
	if err := s.setAside(path); err != nil {
		return nil, fmt.Errorf("configuration %s: %w: %s; it could not be set aside: %w", c.Revision, ErrCorrupt, what, err)
	}
	return nil, fmt.Errorf("configuration %s: %w: %s; set aside as %s", c.Revision, ErrCorrupt, what, path+corruptSuffix)
}

// Collect removes the checkpoints and rendered configurations that neither keep
// nor current nor last-known-good name, all but the newest few that were set
// aside, and the records of all but the newest few other versions of the
// component. It goes on after an error. While it is not known what the records
// name, before Load or when one could not be read, nothing is removed.
func (s *Store) Collect(keep ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range []string{"current", "last-known-good"} {
		if err := s.unreadable[name]; err != nil {
			return fmt.Errorf("collect: it is not known what %s names: %w", name, err)
		}
	}
	if !s.loaded {
		return errors.New("collect: the state has not been loaded")
	}
	keep = slices.Clone(keep)
	for _, r := range s.named {
		keep = append(keep, r.Revision)
	}
	var errs error
	for _, dir := range []string{s.path(checkpointsDir), s.path(renderedDir)} {
		entries, err := s.fsys.ReadDir(dir)
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		var corrupt []fs.FileInfo
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), corruptSuffix) {
				if info, err := e.Info(); err == nil {
					corrupt = append(corrupt, info)
				}
			} else if !slices.Contains(keep, e.Name()) {
				errs = errors.Join(errs, s.removeTree(filepath.Join(dir, e.Name()), e.IsDir()))
			}
		}
		slices.SortStableFunc(corrupt, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
		for _, info := range corrupt[min(len(corrupt), keptCorrupt):] {
			errs = errors.Join(errs, s.removeTree(filepath.Join(dir, info.Name()), info.IsDir()))
		}
	}
	if err := errors.Join(errs, s.collectVersions()); err != nil {
		return fmt.Errorf("collect: %w", err)
	}
	return nil
}

func (s *Store) collectVersions() error {
	versions, err := versionDirs(s.fsys, s.dir)
	if err != nil {
		return err
	}
	versions = slices.DeleteFunc(versions, func(v string) bool { return v == s.version })
	for _, v := range versions[min(len(versions), keptVersions):] {
		err = errors.Join(err, s.removeVersion(s.path(v)))
	}
	return err
}

// removeVersion removes the records of a version. A directory with anything
// else in it is not ours alone, and stays.
func (s *Store) removeVersion(dir string) error {
	entries, err := s.fsys.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), corruptSuffix)
		known := slices.ContainsFunc(records, func(r record) bool { return r.versioned && r.name == name })
		if !known && !strings.HasSuffix(name, atomicfile.TempSuffix) {
			return nil
		}
	}
	return s.removeTree(dir, true)
}
