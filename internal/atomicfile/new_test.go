// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package atomicfile_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func writes(content string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, content)
		return err
	}
}

// names returns what is in a directory.
func names(t *testing.T, dir string) string {
	t.Helper()
	entries := assert.Value(os.ReadDir(dir))(t)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}

	return strings.Join(out, " ")
}

func TestWriteNewCreatesAPrivateFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "bundle")
	assert.NoError(t, atomicfile.WriteNew(atomicfile.OS{}, path, writes("content")))
	info, err := os.Lstat(path)
	assert.That(t, err == nil && info.Mode() == 0o600, "mode %v, %v, want 0600", info.Mode(), err)
	got, _ := os.ReadFile(path)
	assert.That(t, string(got) == "content" && names(t, dir) == "bundle", "content %q in a directory with %s", got, names(t, dir))
}

func TestWriteNewReplacesNothing(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "bundle"), filepath.Join(dir, "link")
	assert.NoError(t, errors.Join(os.WriteFile(path, []byte("mine"), 0o644), os.Symlink("nowhere", link)))
	for _, taken := range []string{path, link} {
		err := atomicfile.WriteNew(atomicfile.OS{}, taken, func(io.Writer) error { t.Error("it began to write"); return nil })
		assert.That(t, errors.Is(err, fs.ErrExist) && strings.Contains(err.Error(), taken), "of %s: %v", taken, err)
	}

	// A file that appears while the new one is written.
	late := filepath.Join(dir, "late")
	err := atomicfile.WriteNew(atomicfile.OS{}, late, func(io.Writer) error { return os.WriteFile(late, []byte("mine"), 0o600) })
	got, _ := os.ReadFile(late)
	assert.That(t, errors.Is(err, fs.ErrExist) && string(got) == "mine", "of a file that has appeared: %v; it has %q", err, got)
	assert.That(t, names(t, dir) == "bundle late link", "the directory has %s", names(t, dir))
}

func TestWriteNewLeavesNothingBehindWhenItFails(t *testing.T) {
	dir, failed := t.TempDir(), errors.New("the source has failed")
	err := atomicfile.WriteNew(atomicfile.OS{}, filepath.Join(dir, "bundle"), func(w io.Writer) error { return errors.Join(writes("half")(w), failed) })
	assert.That(t, errors.Is(err, failed) && names(t, dir) == "", "%v; the directory has %q", err, names(t, dir))

	err = atomicfile.WriteNew(atomicfile.OS{}, filepath.Join(dir, "missing", "bundle"), writes("x"))
	assert.That(t, errors.Is(err, fs.ErrNotExist) && strings.Contains(err.Error(), "create a temporary file"),
		"in a directory that does not exist: %v", err)
}
