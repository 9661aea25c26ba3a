package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
)

// RequestForget asks the agent that holds the directory to forget that a
// revision is bad. The request is an empty file whose name says all. It may be
// called beside that agent; asking again does nothing.
func RequestForget(fsys atomicfile.FS, dir, revision string) error {
	if err := checkRevision(revision); err != nil {
		return err
	}
	if err := requestForget(fsys, dir, revision); err != nil {
		return fmt.Errorf("request to forget %s: %w", revision, err)
	}
	return nil
}

func requestForget(fsys atomicfile.FS, dir, revision string) error {
	requests := filepath.Join(dir, requestsDir)
	if err := fsys.Mkdir(requests, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := fsys.SyncDir(dir); err != nil { // also if it was there: who made it may have been killed before this
		return err
	}
	f, err := fsys.Create(filepath.Join(requests, revision), fileMode)
	if err == nil {
		err = f.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return fsys.SyncDir(requests)
}

// ForgetRequests returns the revisions that an operator wants forgotten, sorted.
func (s *Store) ForgetRequests() ([]string, error) {
	entries, err := s.fsys.ReadDir(s.path(requestsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("requests to forget: %w", err)
	}
	var revisions []string
	for _, e := range entries {
		if e.Type().IsRegular() && checkRevision(e.Name()) == nil {
			revisions = append(revisions, e.Name())
		}
	}
	return revisions, nil
}

// DropForgetRequest removes a request that was carried out. Dropping one that is
// not there does nothing.
func (s *Store) DropForgetRequest(revision string) error {
	if err := checkRevision(revision); err != nil {
		return err
	}
	err := s.fsys.Remove(s.path(requestsDir, revision))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("drop the request to forget %s: %w", revision, err)
	}
	return nil
}
