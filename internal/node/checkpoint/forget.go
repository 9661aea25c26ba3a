package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
)

// RequestForget asks the agent that uses the directory to remove the verdict on a revision. The request is an empty
// file with the revision as its name. It may be called while that agent runs; a repeated request has no effect.
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
	if err := fsys.SyncDir(dir); err != nil { // also if it existed: the process that created it may have been killed before this
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

// ForgetRequests returns the revisions of the requests, sorted.
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

// DropForgetRequest removes a request that was carried out. It ignores a missing one.
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
