// Package atomicfile replaces one file durably: after a crash at any moment a
// reader finds the old content or the new one, whole.
//
// It must not know what the files mean. It also has the narrow file system on
// which durable state is kept, so that tests can put one that fails and
// crashes in its place.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
)

// TempSuffix ends the name of every temporary file that Write makes. A crash
// can leave one behind; who owns the directory may remove it.
const TempSuffix = ".tmp"

const private fs.FileMode = 0o600

// Write replaces the file at path by one that holds data, and returns when that
// is durable. The error says which step failed. After an error the file has its
// old content, except when the last step failed, the one that makes the rename
// durable: then readers see the new content, and a power cut may bring the old
// one back.
//
// A symbolic link at path is replaced, not followed.
func Write(fsys FS, path string, data []byte, mode fs.FileMode) error {
	// In the same directory, since a rename is atomic only within a file
	// system; under a name nobody else uses, so that a leftover is not in the
	// way of the next attempt.
	temp := fmt.Sprintf("%s.%08x%s", path, rand.Uint32(), TempSuffix)
	step, err := fill(fsys, temp, data, mode)
	if err == nil {
		step, err = "rename", fsys.Rename(temp, path)
	}
	if err != nil {
		_ = fsys.Remove(temp) // the first error is the one to tell; a leftover does no harm
		return fmt.Errorf("replace %s: %s: %w", path, step, Renamed(err, temp, path+TempSuffix))
	}
	if err := fsys.SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("replace %s: sync its directory: %w", path, err)
	}
	return nil
}

// MakeDir makes a directory that is not there, durably, with the parents that it lacks.
func MakeDir(fsys FS, dir string, mode fs.FileMode) error {
	parent := filepath.Dir(dir)
	if _, err := fsys.Lstat(parent); errors.Is(err, fs.ErrNotExist) {
		if err := MakeDir(fsys, parent, mode); err != nil {
			return err
		}
	}
	if err := fsys.Mkdir(dir, mode); err != nil {
		return err
	}
	if err := fsys.SyncDir(parent); err != nil {
		_ = fsys.Remove(dir) // else nobody would sync its name later
		return err
	}
	return nil
}

// Renamed returns err with another name in its words than that of a temporary file, which is a new one at each try: an error
// that is reported must say the same as long as the cause is the same.
func Renamed(err error, temp, stable string) error {
	if words := err.Error(); strings.Contains(words, temp) {
		return renamed{err, strings.ReplaceAll(words, temp, stable)}
	}
	return err
}

type renamed struct {
	error
	words string
}

func (r renamed) Error() string { return r.words }
func (r renamed) Unwrap() error { return r.error }

// fill makes the temporary file, and says which step failed.
func fill(fsys FS, temp string, data []byte, mode fs.FileMode) (step string, err error) {
	f, err := fsys.Create(temp, private)
	if err != nil {
		return "create a temporary file", err
	}
	if _, err = f.Write(data); err != nil {
		step = "write"
	} else if err = chmod(fsys, temp, mode); err != nil {
		step = "set the mode"
	} else if err = f.Sync(); err != nil {
		step = "sync"
	}
	if closeErr := f.Close(); err == nil && closeErr != nil {
		return "close", closeErr
	}
	return step, err
}

// chmod sets a mode that the umask has no say in.
func chmod(fsys FS, name string, mode fs.FileMode) error {
	if mode == private {
		return nil
	}
	return fsys.Chmod(name, mode)
}
