// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
)

// givenUpFile is next to the records but is not one of them: it is about an
// agent, not about a configuration.
const givenUpFile = "given-up"

// GivenUp records that an agent left the node to another agent because its
// kubelet was never healthy. The zero value means that none did.
type GivenUp struct {
	By    string    `json:"by"` // identifies that agent
	At    time.Time `json:"at"`
	Times int       `json:"times"` // in a row
}

// LastGivenUp returns the last time an agent gave the node up. A file that
// cannot be parsed counts as none, with an error.
func LastGivenUp(fsys atomicfile.FS, dir string) (GivenUp, error) {
	path := filepath.Join(dir, givenUpFile)
	raw, err := readBounded(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		return GivenUp{}, nil
	}

	var g GivenUp
	if err == nil {
		err = json.Unmarshal(raw, &g)
	}
	if err != nil {
		return GivenUp{}, fmt.Errorf("%s: %w", path, err)
	}

	return g, nil
}

// SetGivenUp records that an agent gave the node up. Only the holder of the
// node's lock may call it.
func SetGivenUp(fsys atomicfile.FS, dir string, g GivenUp) error {
	raw, err := json.Marshal(g)
	if err != nil {
		return err
	}

	return atomicfile.Write(fsys, filepath.Join(dir, givenUpFile), raw, fileMode)
}

// ClearGivenUp removes the record of SetGivenUp.
func ClearGivenUp(fsys atomicfile.FS, dir string) error { return removeFile(fsys, dir, givenUpFile) }

// runningFile is next to the records but is not one of them.
const runningFile = "running"

// SetRunning saves a description of the running kubelet, for Running. It is
// valid only while the agent runs. If it cannot be saved, the old description
// is removed, because it would be wrong.
func SetRunning(fsys atomicfile.FS, dir string, about []byte) error {
	err := atomicfile.Write(fsys, filepath.Join(dir, runningFile), about, fileMode)
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

// Running returns the description that an agent saved with SetRunning. It is
// outdated if that agent has ended.
func Running(fsys atomicfile.FS, dir string) ([]byte, error) {
	return readBounded(fsys, filepath.Join(dir, runningFile))
}
