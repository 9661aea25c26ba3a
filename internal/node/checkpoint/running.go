// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
)

// runningFile is next to the records but is not one of them.
const runningFile = "running"

// SetRunning saves a description of the running kubelet, for Running. It is valid only while the agent runs, so it
// does not need to survive a power cut. If it cannot be saved, the old description is removed, because it would be
// wrong.
func SetRunning(fsys atomicfile.FS, dir string, about []byte) error {
	err := setRunning(fsys, filepath.Join(dir, runningFile), about)
	if err != nil {
		err = errors.Join(err, ClearRunning(fsys, dir))
	}
	return err
}

// ClearRunning removes the description that an earlier agent saved.
func ClearRunning(fsys atomicfile.FS, dir string) error { return removeFile(fsys, dir, runningFile) }

func removeFile(fsys atomicfile.FS, dir, name string) error {
	err := fsys.Remove(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func setRunning(fsys atomicfile.FS, path string, about []byte) error {
	temp := fmt.Sprintf("%s.%08x%s", path, rand.Uint32(), atomicfile.TempSuffix)
	f, err := fsys.Create(temp, fileMode)
	if err != nil {
		return err
	}
	_, err = f.Write(about)
	if err = errors.Join(err, f.Close()); err == nil {
		err = fsys.Rename(temp, path)
	}
	if err != nil {
		_ = fsys.Remove(temp) // return the first error
	}
	return err
}

// Running returns the description that an agent saved with SetRunning. It is outdated if that agent has ended.
func Running(fsys atomicfile.FS, dir string) ([]byte, error) {
	return readBounded(fsys, filepath.Join(dir, runningFile))
}
