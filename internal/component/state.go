package component

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
)

// keptAside is how many files of each name stay: enough to compare the last few incidents on a node that meets one at every change.
const keptAside = 5

// MoveAside renames state files of the kubelet to <name>.evenkeel-<time>, durably, and returns the new names. It never overwrites a
// file, skips missing files, and deletes all but the newest few that it moved. After an error, the returned files have been moved.
func MoveAside(files []string, now time.Time) ([]string, error) {
	var moved []string
	for _, file := range files {
		to, err := moveAside(file, file+".evenkeel-"+now.UTC().Format("20060102T150405Z"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if to != "" {
			moved = append(moved, to)
		}
		if err == nil {
			err = removeOldest(file, to)
		}
		if err != nil {
			return moved, fmt.Errorf("could not move the state file %s aside: %w", file, err)
		}
	}
	return moved, nil
}

// removeOldest removes all but the newest files that were moved aside. Their names contain the time of that, by a clock that may
// have been set back.
func removeOldest(file, moved string) error {
	entries, err := os.ReadDir(filepath.Dir(file)) // sorted
	older := keptAside - 1
	for _, e := range slices.Backward(entries) {
		if name := e.Name(); !strings.HasPrefix(name, filepath.Base(file)+".evenkeel-") || name == filepath.Base(moved) {
			continue
		}
		if older--; older < 0 {
			err = errors.Join(err, os.Remove(filepath.Join(filepath.Dir(file), e.Name())))
		}
	}
	return err
}

func moveAside(from, to string) (string, error) {
	const most = 100 // within one second; more means that something else is wrong
	for n := 0; n < most; n++ {
		name := to
		if n > 0 {
			name = fmt.Sprintf("%s-%d", to, n)
		}
		err := renameNew(from, name)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		return name, atomicfile.OS{}.SyncDir(filepath.Dir(from))
	}
	return "", fmt.Errorf("%s to %s-%d exist already", to, to, most-1)
}
