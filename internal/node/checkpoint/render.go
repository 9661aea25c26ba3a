// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
)

// Render writes the files for a start of the component and returns their
// directory, which is always the same for a revision. Names may contain
// slashes. Existing files are replaced unless they are the same.
//
// The directory appears as a whole or not at all. It is not durable: it is
// written again for each start.
func (s *Store) Render(revision string, files map[string][]byte) (dir string, err error) {
	if err := checkRevision(revision); err != nil {
		return "", err
	}

	for name := range files {
		for element := range strings.SplitSeq(name, "/") {
			if err := checkName("rendered file", element); err != nil {
				return "", err
			}
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	dir = s.path(renderedDir, revision)
	if err := s.render(dir, files); err != nil {
		return "", fmt.Errorf("render %s: %w", revision, err)
	}

	return dir, nil
}

func (s *Store) render(dir string, files map[string][]byte) error {
	if s.hasFiles(dir, files) {
		return nil // a full disk must not prevent this start
	}
	if err := s.ensureDir(filepath.Dir(dir)); err != nil {
		return err
	}

	temp := fmt.Sprintf("%s.%08x%s", dir, rand.Uint32(), atomicfile.TempSuffix)
	err := s.writeFiles(temp, files)
	if err == nil {
		err = s.replaceDir(temp, dir)
	}

	if err != nil {
		_ = s.removeTree(temp, true) // return the first error; Open removes leftovers
		err = atomicfile.WithStableName(err, strings.TrimSuffix(temp, atomicfile.TempSuffix), dir)
	}

	return err
}

// hasFiles reports whether a directory contains exactly these files.
func (s *Store) hasFiles(dir string, files map[string][]byte) bool {
	for name, want := range files {
		got, err := readBounded(s.fsys, filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil || !bytes.Equal(got, want) {
			return false
		}
	}

	n, ok := s.count(dir)

	return ok && n == len(files)
}

// count counts the files in a tree.
func (s *Store) count(dir string) (n int, ok bool) {
	entries, err := s.fsys.ReadDir(dir)
	ok = err == nil
	for _, e := range entries {
		inside, good := 1, true
		if e.IsDir() {
			inside, good = s.count(filepath.Join(dir, e.Name()))
		}

		n, ok = n+inside, ok && good
	}

	return n, ok
}

// replaceDir moves a directory to the place of another one. A rename alone
// cannot replace a directory with files.
func (s *Store) replaceDir(temp, dir string) error {
	info, err := s.fsys.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return s.fsys.Rename(temp, dir)
	}
	if err != nil {
		return err
	}

	old := strings.TrimSuffix(temp, atomicfile.TempSuffix) + "-old" + atomicfile.TempSuffix
	if err := s.fsys.Rename(dir, old); err != nil {
		return err
	}
	if err := s.fsys.Rename(temp, dir); err != nil {
		return errors.Join(err, s.fsys.Rename(old, dir))
	}
	if err := s.removeTree(old, info.IsDir()); err != nil {
		s.log.Warn("cannot remove the previous rendered directory", "directory", old, "err", err)
	}

	return nil
}

func (s *Store) writeFiles(dir string, files map[string][]byte) error {
	if err := s.fsys.Mkdir(dir, dirMode); err != nil {
		return err
	}

	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := dir
		elements := strings.Split(name, "/")
		for _, element := range elements[:len(elements)-1] {
			path = filepath.Join(path, element)
			if err := s.fsys.Mkdir(path, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		}

		f, err := s.fsys.Create(filepath.Join(dir, name), fileMode)
		if err != nil {
			return err
		}

		_, err = f.Write(files[name])
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}

	return nil
}

// Rendered returns the revisions that were rendered, sorted.
func (s *Store) Rendered() []string {
	entries, err := s.fsys.ReadDir(s.path(renderedDir))
	if err != nil {
		return nil // the next Render returns the error
	}

	var revisions []string
	for _, e := range entries {
		if e.IsDir() && checkRevision(e.Name()) == nil {
			revisions = append(revisions, e.Name())
		}
	}

	return revisions
}
