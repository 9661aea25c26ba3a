// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
)

// keptAside is how many files of each name stay: enough to compare the last few
// incidents on a node that meets one at every change.
const keptAside = 5

// MoveAside renames state files of the kubelet to <name>.evenkeel-<time>,
// durably, and returns the new names. It never overwrites a file, skips missing
// files, and deletes all but the newest few that it moved. After an error, the
// returned files have been moved.
func MoveAside(files []string, now time.Time) ([]string, error) {
	var moved []string
	for _, file := range files {
		to := file + ".evenkeel-" + now.UTC().Format("20060102T150405.000000000Z")
		err := renameNew(file, to)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}

		if err == nil {
			moved = append(moved, to)
			err = errors.Join(atomicfile.OS{}.SyncDir(filepath.Dir(file)), removeOldest(file, to))
		}

		if err != nil {
			return moved, fmt.Errorf("could not move the state file %s aside: %w", file, err)
		}
	}

	return moved, nil
}

// removeOldest removes all but the newest files that were moved aside. Their
// names contain the time of that, by a clock that may have been set back.
func removeOldest(file, moved string) error {
	older, err := filepath.Glob(file + ".evenkeel-*") // sorted
	older = slices.DeleteFunc(older, func(name string) bool { return name == moved })
	for _, name := range older[:max(0, len(older)+1-keptAside)] {
		err = errors.Join(err, os.Remove(name))
	}

	return err
}
