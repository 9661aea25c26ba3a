// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package lockfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// untrusted is a user, and a group, that the tests do not trust.
const untrusted = 54321

// sharedDir is a directory that every user of this machine can enter, with this
// mode.
func sharedDir(t *testing.T, mode os.FileMode) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can give files to other users")
	}

	dir := assert.Value(os.MkdirTemp("/tmp", "lockfile-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	assert.NoError(t, os.Chmod(dir, mode))

	return dir
}

func TestUnsafeLockIsRefusedOrDoubted(t *testing.T) {
	type node struct {
		mode     os.FileMode
		uid, gid int
	}
	const refuse, doubt = "refuse", "doubt"
	for _, c := range []struct {
		name      string
		dir       node
		file      node // no mode: no file
		what      string
		wantWords string // D is the directory, F the file
	}{
		{"only this user", node{0o755, 0, 0}, node{0o600, 0, 0}, "", ""},
		{"only this user, no file", node{0o755, 0, 0}, node{}, "", ""},
		{"root's own group", node{0o775, 0, 0}, node{0o660, 0, 0}, "", ""},
		{"a closed directory", node{0o700, 0, 0}, node{0o666, untrusted, untrusted}, "", ""},
		{"a sticky directory of a group", node{os.ModeSticky | 0o775, 0, untrusted}, node{0o600, 0, 0}, "", ""},

		{"another's directory", node{0o755, untrusted, 0}, node{0o600, 0, 0}, refuse, "its directory D belongs to user 54321, who can replace the file: chown 0 D, or choose another directory"},
		{"another's closed directory", node{0o700, untrusted, 0}, node{}, refuse, "its directory D belongs to user 54321"},
		{"a directory writable for everyone", node{0o777, 0, 0}, node{0o600, 0, 0}, refuse, "everyone can write to its directory D, and replace the file: chmod o-w D, or choose another directory"},
		{"another's file", node{0o755, 0, 0}, node{0o600, untrusted, 0}, refuse, "it belongs to user 54321: stop the processes that have it open and remove it, or choose another directory"},
		{"another's file in a sticky directory", node{os.ModeSticky | 0o777, 0, 0}, node{0o666, untrusted, 0}, refuse, "it belongs to user 54321"},
		{"a file writable for everyone", node{0o755, 0, 0}, node{0o622, 0, 0}, refuse, "everyone can write to it: chmod 600 F"},

		{"a sticky directory", node{os.ModeSticky | 0o777, 0, 0}, node{0o600, 0, 0}, doubt, "everyone can write to its directory D, and create the file first; such a file is refused: choose another directory"},
		{"a group's directory", node{0o775, 0, untrusted}, node{}, doubt, "group 54321 can write to its directory D, and replace the file: chmod g-w D, or choose another directory"},
		{"a file for everybody to read", node{0o755, 0, 0}, node{0o644, 0, 0}, doubt, "everyone can open it, and so take the lock, or make its holder release it: chmod 600 F"},
		{"a file for a group to read", node{0o755, 0, 0}, node{0o640, 0, untrusted}, doubt, "group 54321 can open it, and so take the lock, or make its holder release it: chmod 600 F"},
		{"a file for a group to write", node{0o755, 0, 0}, node{0o620, 0, untrusted}, doubt, "group 54321 can open it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := sharedDir(t, c.dir.mode)
			path := filepath.Join(dir, "lock")
			if c.file.mode != 0 {
				assert.NoError(t, errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, c.file.uid, c.file.gid), os.Chmod(path, c.file.mode)))
			}

			assert.NoError(t, errors.Join(os.Chown(dir, c.dir.uid, c.dir.gid), os.Chmod(dir, c.dir.mode)))
			var noticed []string
			claim, err := Contender{Path: path, Notice: func(err error) { noticed = append(noticed, err.Error()) }}.Acquire(t.Context(), nil)
			if err == nil {
				assert.NoError(t, claim.Release())
			}

			words := strings.NewReplacer("D", dir, "F", path).Replace(c.wantWords)
			switch c.what {
			case refuse:
				wantError(t, err, ErrUnsafe, "lock file "+path+": other users could take it: "+words)
			case doubt:
				assert.That(t, err == nil && len(noticed) == 1 && strings.HasPrefix(noticed[0], "lock file "+path+": "+words), "error %v, notices %q, want the doubt %q", err, noticed, words)
			default:
				assert.That(t, err == nil && noticed == nil, "error %v, noticed %q, want none", err, noticed)
			}
		})
	}
}

func TestClosedDirectoryMakesItsContentSafe(t *testing.T) {
	outer := sharedDir(t, 0o755)
	dir := filepath.Join(outer, "a", "b")
	assert.NoError(t, errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o777), os.Symlink("a/b", filepath.Join(outer, "link"))))
	path := filepath.Join(outer, "link", "lock")
	_, err := Contender{Path: path}.Acquire(t.Context(), nil)
	wantError(t, err, ErrUnsafe, "everyone can write to its directory "+dir)
	assert.Is(t, assert.Err(os.Stat(path)), os.ErrNotExist, "the refused file was created")
	assert.NoError(t, os.Chmod(outer, 0o700))
	claimed(t, Contender{Path: path, Notice: func(err error) { t.Errorf("notice %v", err) }})
}

func TestRefusedContenderDoesNotOpenTheFile(t *testing.T) {
	t.Parallel()
	dir := sharedDir(t, 0o755)
	path := filepath.Join(dir, "lock")
	claim := claimed(t, Contender{Path: path, Yield: true})
	assert.NoError(t, os.Chmod(dir, 0o777))
	_, err := Contender{Path: path}.Acquire(t.Context(), nil)
	wantError(t, err, ErrUnsafe)
	notContended(t, claim)
}

func TestWaiterIsToldWhyItCannotLockTheFile(t *testing.T) {
	for _, tt := range []struct {
		change func(path string) error
		words  []string
	}{
		{func(path string) error { return os.Chmod(filepath.Dir(path), 0o777) }, []string{ErrUnsafe.Error(), "everyone can write to its directory "}},
		{func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) }, []string{"is a directory"}},
	} {
		path := filepath.Join(sharedDir(t, 0o755), "lock")
		_, kill := startHolder(t, path)
		waiter := startWaiting(t, Contender{Path: path})
		assert.NoError(t, tt.change(path))
		kill()
		waiter.hears("failed", append(tt.words, path)...)
		waiter.saidNothingOf("held")
	}
}
