// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
)

// FS is the file system interface for durable state. A change of a name is
// durable only after SyncDir of its directory, and written data only after Sync
// of the file. Except for ReadDir, no method follows a symbolic link in the
// last element of a name.
type FS interface {
	// ReadFile returns the content of a regular file.
	ReadFile(name string) ([]byte, error)
	// ReadDir returns the entries of a directory, sorted by name.
	ReadDir(name string) ([]fs.DirEntry, error)
	Lstat(name string) (fs.FileInfo, error)

	// Create creates a file that must not exist and opens it for writing.
	Create(name string, mode fs.FileMode) (File, error)
	// Mkdir creates a directory in an existing parent.
	Mkdir(name string, mode fs.FileMode) error
	Rename(from, to string) error
	// Remove removes a file or an empty directory.
	Remove(name string) error
	Chmod(name string, mode fs.FileMode) error
	// SyncDir makes changes of the names in a directory durable.
	SyncDir(name string) error
}

// File is a new file, open for writing.
type File interface {
	io.Writer
	Sync() error
	Close() error
}

// OS is the operating system's file system.
type OS struct{}

var _ FS = OS{}

// ReadFile implements FS. It rejects files that are not regular, because
// opening a FIFO, for example, would block.
func (OS) ReadFile(name string) ([]byte, error) { return read(name, noFollow, math.MaxInt64-1) }

// ReadBounded returns the content of a regular file, or of the regular file
// that a link names. It returns an error for any other kind of file, which
// could block its reader, and for a file of more than limit bytes.
func ReadBounded(name string, limit int64) ([]byte, error) { return read(name, 0, limit) }

func read(name string, flags int, limit int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|nonBlock|flags, 0)
	if err != nil {
		return nil, err
	}

	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", name)
	}

	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		return nil, fmt.Errorf("%s is larger than the limit of %d bytes", name, limit)
	}

	return data, err
}

// ReadDir implements FS.
func (OS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }

// Lstat implements FS.
func (OS) Lstat(name string) (fs.FileInfo, error) { return os.Lstat(name) }

// Create implements FS.
func (OS) Create(name string, mode fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|noFollow, mode)
	if err != nil {
		return nil, err // a nil *os.File in the interface would not be nil
	}

	return f, nil
}

// Mkdir implements FS.
func (OS) Mkdir(name string, mode fs.FileMode) error { return os.Mkdir(name, mode) }

// Rename implements FS.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements FS.
func (OS) Remove(name string) error { return os.Remove(name) }

// Chmod implements FS.
func (OS) Chmod(name string, mode fs.FileMode) error {
	// os.Chmod follows symbolic links: whoever could write to a directory so
	// far could redirect a change of its mode.
	f, err := os.OpenFile(name, os.O_RDONLY|noFollow|nonBlock, 0)
	if err != nil {
		return err
	}

	defer f.Close()

	return f.Chmod(mode)
}

// SyncDir implements FS.
func (OS) SyncDir(name string) error {
	d, err := os.OpenFile(name, os.O_RDONLY|directory, 0)
	if err != nil {
		return err
	}

	return errors.Join(d.Sync(), d.Close())
}
