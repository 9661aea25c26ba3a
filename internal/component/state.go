package component

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
)

// MoveAside renames state files of the kubelet to <name>.evenkeel-<time>, durably, and returns the new names. It never
// deletes or overwrites a file and skips missing files. After an error, the returned files have been moved.
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
