// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"crypto/sha256"
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
	// ErrNotFound is the error for a configuration without a checkpoint.
	ErrNotFound = errors.New("no checkpoint")
	// ErrCorrupt is the error for a checkpoint whose content has changed.
	ErrCorrupt = errors.New("the checkpoint is corrupt")
)

const (
	keptVersions = 5 // besides the one in use
	keptCorrupt  = 5 // checkpoints that were set aside
)

func sha256hex(data []byte) string {
	return fmt.Sprintf("%x", sha256.Sum256(data))
}

// Put saves a serialized ConfigMap durably and returns the sha256 of the file.
// An existing file stays if it has the same bytes, or if a record in use
// contains its digest: the object's metadata may have changed, and the record
// must match the file. The caller must check that the payload is the same. Any
// other existing file is replaced.
func (s *Store) Put(revision string, configMap []byte) (sha256hexOfFile string, err error) {
	if err := checkRevision(revision); err != nil {
		return "", err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	dir := s.path(checkpointsDir)
	path := filepath.Join(dir, revision)
	old, err := readBounded(s.fsys, path)
	named, matches := s.digestOf(revision, sha256hex(old))
	switch {
	case err == nil && (bytes.Equal(old, configMap) || matches):
		// The process that wrote it may have failed to do so.
		if err := s.fsys.SyncDir(dir); err != nil {
			return "", fmt.Errorf("checkpoint %s: %w", revision, err)
		}

		return sha256hex(old), nil
	case errors.Is(err, fs.ErrNotExist):
		err = s.ensureDir(dir) // the directory may have been removed too
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

// digestOf reports whether a record in use contains a digest for that revision,
// and whether one of them is this digest.
func (s *Store) digestOf(revision, digest string) (named, matches bool) {
	for _, r := range s.referenced {
		if r.Revision == revision && r.Checkpoint != "" {
			named = true
			matches = matches || r.Checkpoint == digest
		}
	}

	return named, matches
}

// Get returns the checkpoint of c. If c has the file's digest, the file must
// match it; otherwise it must at least be JSON. A corrupt checkpoint is set
// aside, so that it can be downloaded again. The error is ErrNotFound,
// ErrCorrupt, ErrName, or a read error, after which the checkpoint may still be
// good.
func (s *Store) Get(c trial.Config) ([]byte, error) {
	if err := checkRevision(c.Revision); err != nil {
		return nil, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	path := s.path(checkpointsDir, c.Revision)
	data, err := readBounded(s.fsys, path)
	var what string
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("configuration %s: %w", c.Revision, ErrNotFound)
	case errors.Is(err, errCorrupt):
		what = err.Error()
	case err != nil:
		return nil, fmt.Errorf("configuration %s: %w", c.Revision, err)
	case c.Checkpoint != "" && sha256hex(data) != c.Checkpoint:
		what = fmt.Sprintf("its sha256 is %s, not the recorded %s", sha256hex(data), c.Checkpoint)
	case !json.Valid(data):
		what = "it is not JSON"
	default:
		return data, nil
	}

	if err := s.setAside(path); err != nil {
		return nil, fmt.Errorf("configuration %s: %w: %s; cannot set it aside: %w", c.Revision, ErrCorrupt, what, err)
	}

	return nil, fmt.Errorf("configuration %s: %w: %s; set aside as %s", c.Revision, ErrCorrupt, what, path+corruptSuffix)
}

// Collect removes the checkpoints and rendered configurations except those of
// keep, current and last-known-good, all but the newest few files that were set
// aside, and the records of all but the newest few other versions of the
// component. It continues after an error. It removes nothing before Load, or
// while a record is unreadable, because the names in the records are not known
// then.
func (s *Store) Collect(keep ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range []string{"current", "last-known-good"} {
		if err := s.unreadable[name]; err != nil {
			return fmt.Errorf("collect: %s cannot be read, so the files in use are not known: %w", name, err)
		}
	}

	if !s.loaded {
		return errors.New("collect: the state has not been loaded")
	}

	keep = slices.Clone(keep)
	for _, r := range s.referenced {
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

		slices.SortStableFunc(corrupt, newestFirst)
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

// removeVersion removes the records of a version. A directory that contains
// other files is not removed.
func (s *Store) removeVersion(dir string) error {
	entries, err := s.fsys.ReadDir(dir)
	if err != nil {
		return err
	}

	for _, e := range entries {
		name := strings.TrimSuffix(strings.TrimSuffix(e.Name(), corruptSuffix), editedSuffix)
		if !isVersioned(name) && !strings.HasSuffix(name, atomicfile.TempSuffix) {
			return nil
		}
	}

	return s.removeTree(dir, true)
}
