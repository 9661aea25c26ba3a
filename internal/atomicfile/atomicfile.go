// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package atomicfile replaces a file atomically and durably: after a crash at
// any moment, a reader finds either the complete old content or the complete
// new content. It also defines the file system interface for durable state, so
// that tests can inject failures and crashes (testkit/crashfs).
//
// It must not know what the files mean.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
)

// TempSuffix is the suffix of Write's temporary files. A crash can leave one
// behind; the owner of the directory may remove it.
const TempSuffix = ".tmp"

const private fs.FileMode = 0o600

// Write replaces the file at path with data, and returns when the change is
// durable. The error names the step that failed. After an error the file has
// its old content, unless the last step failed, which makes the rename durable:
// then readers see the new content, but a power failure may restore the old
// one.
//
// A symbolic link at path is replaced, not followed.
func Write(fsys FS, path string, data []byte, mode fs.FileMode) error {
	// The temporary file is in the same directory, because a rename is atomic
	// only within a file system. Its name is random, so that a leftover does
	// not block the next attempt.
	temp := tempOf(path)
	step, err := fill(fsys, temp, mode, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
	if err == nil {
		step, err = "rename", fsys.Rename(temp, path)
	}

	if err != nil {
		_ = fsys.Remove(temp) // the first error matters; a leftover is harmless
		return fmt.Errorf("replace %s: %s: %w", path, step, WithStableName(err, temp, path+TempSuffix))
	}

	if err := fsys.SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("replace %s: sync its directory: %w", path, err)
	}

	return nil
}

func tempOf(path string) string { return fmt.Sprintf("%s.%08x%s", path, rand.Uint32(), TempSuffix) }

// WriteNew creates the file at path with mode 0600 and with what the function
// write writes. A reader finds the complete file or none. If there is a file,
// it is kept and the error is fs.ErrExist; one that another program creates in
// the instant before the rename is not noticed. After any other error there is
// no file. The file's content is durable when WriteNew returns, its name is
// not: not every system on which people create files can sync a directory.
func WriteNew(fsys FS, path string, write func(io.Writer) error) error {
	if err := absent(fsys, path); err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}

	temp := tempOf(path)
	step, err := fill(fsys, temp, private, write)
	if err == nil {
		step, err = "check again", absent(fsys, path) // it can have appeared meanwhile
	}
	if err == nil {
		step, err = "rename", fsys.Rename(temp, path)
	}

	if err != nil {
		_ = fsys.Remove(temp) // the first error matters; a leftover is harmless
		return fmt.Errorf("create %s: %s: %w", path, step, WithStableName(err, temp, path+TempSuffix))
	}

	return nil
}

// absent returns fs.ErrExist if there is a file.
func absent(fsys FS, path string) error {
	_, err := fsys.Lstat(path)
	switch {
	case err == nil:
		return fs.ErrExist
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}

	return err
}

// MakeDir creates a directory durably, with missing parents. One that exists is
// made durable.
func MakeDir(fsys FS, dir string, mode fs.FileMode) error {
	parent := filepath.Dir(dir)
	if _, err := fsys.Lstat(parent); errors.Is(err, fs.ErrNotExist) {
		if err := MakeDir(fsys, parent, mode); err != nil {
			return err
		}
	}

	made := fsys.Mkdir(dir, mode)
	if made != nil {
		info, err := fsys.Lstat(dir)
		if err != nil || !errors.Is(made, fs.ErrExist) || info.Mode()&(fs.ModeDir|fs.ModeSymlink) == 0 {
			return made
		}
	}

	err := fsys.SyncDir(parent)
	if err != nil && made == nil {
		_ = fsys.Remove(dir) // a MakeDir of a directory in it must not find it: it would not sync its name
	}

	return err
}

// WithStableName returns err with the random name of a temporary file replaced
// by a stable name, so that repeated errors with the same cause are equal.
func WithStableName(err error, temp, stable string) error {
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

// fill creates the temporary file, or names the step that failed.
func fill(fsys FS, temp string, mode fs.FileMode, write func(io.Writer) error) (step string, err error) {
	f, err := fsys.Create(temp, private)
	if err != nil {
		return "create a temporary file", err
	}

	if err = write(f); err != nil {
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

// chmod sets the mode regardless of the umask.
func chmod(fsys FS, name string, mode fs.FileMode) error {
	if mode == private {
		return nil
	}

	return fsys.Chmod(name, mode)
}
