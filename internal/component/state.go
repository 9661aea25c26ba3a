// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
		if err != nil {
			return moved, fmt.Errorf("could not move the state file %s aside: %w", file, err)
		}
	}
	return moved, nil
}

// removeOldest removes all but the newest files that were moved aside. Their names contain the time of that, by a clock that may
// have been set back.
func removeOldest(file, moved string) error {
	older, err := filepath.Glob(file + ".evenkeel-*") // sorted
	older = slices.DeleteFunc(older, func(name string) bool { return name == moved })
	for _, name := range older[:max(0, len(older)+1-keptAside)] {
		err = errors.Join(err, os.Remove(name))
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
		return name, errors.Join(atomicfile.OS{}.SyncDir(filepath.Dir(from)), removeOldest(from, name))
	}
	return "", fmt.Errorf("%s to %s-%d exist already", to, to, most-1)
}
