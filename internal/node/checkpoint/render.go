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

// Render writes the files that the component is started with, in place of those
// it was started with before unless they are the same, and returns their
// directory, which is the same for a revision each time. A file's name may have directories, with slashes.
//
// The directory appears whole, or not at all. It is not durable: it is written
// anew at each start, and never read back as truth.
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
	if s.holds(dir, files) {
		return nil // on a disk that is full, say, this must be enough
	}
	if err := s.ensureDir(filepath.Dir(dir)); err != nil {
		return err
	}
	temp := fmt.Sprintf("%s.%08x%s", dir, rand.Uint32(), atomicfile.TempSuffix)
	err := s.fill(temp, files)
	if err == nil {
		err = s.swap(temp, dir)
	}
	if err != nil {
		_ = s.removeTree(temp, true) // the first error is the one to tell; Open removes leftovers
		err = atomicfile.WithStableName(err, strings.TrimSuffix(temp, atomicfile.TempSuffix), dir)
	}
	return err
}

// holds tells whether a directory has these files, and nothing else.
func (s *Store) holds(dir string, files map[string][]byte) bool {
	for name, want := range files {
		got, err := readSane(s.fsys, filepath.Join(dir, filepath.FromSlash(name)))
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

// swap puts a directory in the place of another. A rename does not replace one
// that has files.
func (s *Store) swap(temp, dir string) error {
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
		s.log.Warn("could not remove what was rendered before", "directory", old, "err", err)
	}
	return nil
}

func (s *Store) fill(dir string, files map[string][]byte) error {
	if err := s.fsys.Mkdir(dir, dirMode); err != nil {
		return err
	}
	made := []string{dir}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, filepath.FromSlash(name))
		for sub := range parents(name) {
			if sub = filepath.Join(dir, sub); !slices.Contains(made, sub) {
				if err := s.fsys.Mkdir(sub, dirMode); err != nil {
					return err
				}
				made = append(made, sub)
			}
		}
		f, err := s.fsys.Create(path, fileMode)
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

// parents yields a, a/b for a/b/c.
func parents(name string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for i, r := range name {
			if r == '/' && !yield(name[:i]) {
				return
			}
		}
	}
}

// Rendered returns the revisions that were rendered, sorted.
func (s *Store) Rendered() []string {
	entries, err := s.fsys.ReadDir(s.path(renderedDir))
	if err != nil {
		return nil // the next Render says so
	}
	var revisions []string
	for _, e := range entries {
		if e.IsDir() && checkRevision(e.Name()) == nil {
			revisions = append(revisions, e.Name())
		}
	}
	return revisions
}
