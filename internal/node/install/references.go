// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"
)

// ReferencedPrograms returns a function that reports whether a unit file, or a recorded change that may be taken back,
// names a program: it must then exist at the next start of that unit, even if it does not run now. The directories of
// unit files and records may be missing.
func ReferencedPrograms(unitDirs []string, stateDir string) (func(path string) bool, error) {
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
			text, err := readUnitFile(file)
			if errors.Is(err, fs.ErrNotExist) { // a dangling link
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
