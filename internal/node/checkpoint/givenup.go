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

// givenUpFile is beside the records, but none of them: it is of an agent, whatever it runs.
const givenUpFile = "given-up"

// GivenUp is that an agent left the node to another one, because its kubelet was never healthy. The zero value is that
// none did.
type GivenUp struct {
	By    string    `json:"by"` // what that agent was, so that another one is told from it
	At    time.Time `json:"at"`
	Times int       `json:"times"` // in a row
}

// LastGivenUp returns the last time an agent gave the node up. A file that is not understood counts as none, with an error.
func LastGivenUp(fsys atomicfile.FS, dir string) (GivenUp, error) {
	path := filepath.Join(dir, givenUpFile)
	raw, err := readSane(fsys, path)
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

// SetGivenUp keeps that an agent gave the node up. Only who has the node's lock may.
func SetGivenUp(fsys atomicfile.FS, dir string, g GivenUp) error {
	raw, err := json.Marshal(g)
	if err != nil {
		return err
	}
	return atomicfile.Write(fsys, filepath.Join(dir, givenUpFile), raw, fileMode)
}

// ClearGivenUp forgets it.
func ClearGivenUp(fsys atomicfile.FS, dir string) error {
	err := fsys.Remove(filepath.Join(dir, givenUpFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
