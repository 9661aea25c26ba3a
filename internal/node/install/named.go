package install

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Named returns what tells of a program's path whether a unit file names it, or the record of a change, which may have to be
// taken back: it is to be there when that unit starts next, whether or not it runs now. The directories are those of unit
// files, and that of the records; they need not be there.
func Named(unitDirs []string, stateDir string) (func(path string) bool, error) {
	patterns := []string{filepath.Join(stateDir, "*.json")}
	for _, dir := range unitDirs {
		patterns = append(patterns, filepath.Join(dir, "*.service"), filepath.Join(dir, "*.d", "*.conf"))
	}
	var texts [][]byte
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if errors.Is(err, fs.ErrNotExist) { // a link to nothing
				continue
			}
			if err != nil {
				return nil, err
			}
			texts = append(texts, text)
		}
	}
	return func(path string) bool {
		for _, text := range texts {
			if bytes.Contains(text, []byte(path)) {
				return true
			}
		}
		return false
	}, nil
}
