// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/trial"
)

// RequestForget asks the agent that uses the directory to remove the verdict on
// a revision. The request is an empty file with the revision as its name. It
// may be called while that agent runs; a repeated request has no effect.
func RequestForget(fsys atomicfile.FS, dir, revision string) error {
	if err := checkRevision(revision); err != nil {
		return err
	}

	requests := filepath.Join(dir, requestsDir)
	err := fsys.Mkdir(requests, dirMode)
	if err == nil || errors.Is(err, fs.ErrExist) {
		err = fsys.SyncDir(dir) // also if it existed: the process that created it may have been killed before this
	}
	if err == nil {
		err = atomicfile.Write(fsys, filepath.Join(requests, revision), nil, fileMode)
	}
	if err != nil {
		return fmt.Errorf("request to forget %s: %w", revision, err)
	}

	return nil
}

// ForgetRequests returns the revisions of the requests, sorted, after those
// that a person removed from bad-configs.
func (s *Store) ForgetRequests() ([]string, error) {
	revisions := s.removedByHand()
	entries, err := s.fsys.ReadDir(s.path(requestsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return revisions, fmt.Errorf("requests to forget: %w", err)
	}

	for _, e := range entries {
		if e.Type().IsRegular() && checkRevision(e.Name()) == nil && !slices.Contains(revisions, e.Name()) {
			revisions = append(revisions, e.Name())
		}
	}

	return revisions, nil
}

// removedByHand returns the revisions that the file bad-configs lacks although
// they were saved: a person has removed them, which is the proposal's repair of
// a dead end. A missing or invalid file requests nothing: an editor may be
// replacing it.
func (s *Store) removedByHand() (revisions []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	saved, was, is := s.durable[badConfigs.name], trial.State{}, trial.State{}
	data, err := readBounded(s.fsys, s.recordPath(badConfigs))
	if err != nil || bytes.Equal(data, saved) || badConfigs.decodeInto(saved, &was) != nil || badConfigs.decodeInto(data, &is) != nil {
		return nil
	}

	for _, b := range was.Bad {
		if _, still := is.BadEntry(trial.Config{Revision: b.Revision}); !still {
			revisions = append(revisions, b.Revision)
		}
	}

	return revisions
}

// DropForgetRequest removes a request that was carried out. It ignores a
// missing one.
func (s *Store) DropForgetRequest(revision string) error {
	if err := checkRevision(revision); err != nil {
		return err
	}
	if err := removeFile(s.fsys, s.path(requestsDir), revision); err != nil {
		return fmt.Errorf("drop the request to forget %s: %w", revision, err)
	}

	return nil
}
