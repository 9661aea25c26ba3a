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

// givenUpFile is next to the records but is not one of them: it is about an agent, not about a configuration.
const givenUpFile = "given-up"

// GivenUp records that an agent left the node to another agent because its kubelet was never healthy. The zero value
// means that none did.
type GivenUp struct {
	By    string    `json:"by"` // identifies that agent
	At    time.Time `json:"at"`
	Times int       `json:"times"` // in a row
}

// LastGivenUp returns the last time an agent gave the node up. A file that cannot be parsed counts as none, with an
// error.
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

// SetGivenUp records that an agent gave the node up. Only the holder of the node's lock may call it.
func SetGivenUp(fsys atomicfile.FS, dir string, g GivenUp) error {
	raw, err := json.Marshal(g)
	if err != nil {
		return err
	}
	return atomicfile.Write(fsys, filepath.Join(dir, givenUpFile), raw, fileMode)
}

// ClearGivenUp removes the record of SetGivenUp.
func ClearGivenUp(fsys atomicfile.FS, dir string) error { return removeFile(fsys, dir, givenUpFile) }
