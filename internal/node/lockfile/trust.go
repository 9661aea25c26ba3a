// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package lockfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrUnsafe means that untrusted users could take the lock.
var ErrUnsafe = errors.New("other users could take it")

// checkAccess checks which users, besides this one and root, could take the lock on the file at path. It returns
// ErrUnsafe if the file or its directory belongs to another user, or is writable for everyone, and doubts for lesser
// risks. It ignores a missing file, and whatever is below a directory that no one else can enter.
//
// It runs before the file is opened: an open makes another process release the lock, and in a sticky directory the
// kernel refuses the file of another user with a less clear error.
func checkAccess(path string) (doubts []error, unsafe error) {
	dir, _ := filepath.EvalSymlinks(filepath.Dir(path))
	for above := dir; ; above = filepath.Dir(above) {
		if stat := lstat(above); trusted(stat) && stat.Mode&0o011 == 0 {
			return nil, nil
		}
		if above == filepath.Dir(above) {
			break
		}
	}
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("lock file %s: %w: %s", path, ErrUnsafe, fmt.Sprintf(format, args...))
	}
	doubt := func(format string, args ...any) {
		doubts = append(doubts, fmt.Errorf("lock file %s: %s", path, fmt.Sprintf(format, args...)))
	}
	parent := lstat(dir)
	switch sticky := parent.Mode&unix.S_ISVTX != 0; { // only the owner of a file can replace it
	case !trusted(parent):
		return nil, refuse("its directory %s belongs to user %d, who can replace the file: chown %d %[1]s, or choose another directory",
			dir, parent.Uid, os.Geteuid())
	case parent.Mode&0o002 != 0 && !sticky:
		return nil, refuse("everyone can write to its directory %s, and replace the file: chmod o-w %[1]s, or choose another directory", dir)
	case parent.Mode&0o002 != 0:
		doubt("everyone can write to its directory %s, and create the file first; such a file is refused: choose another directory", dir)
	case parent.Mode&0o020 != 0 && !sticky && parent.Gid != 0:
		doubt("group %d can write to its directory %s, and replace the file: chmod g-w %[2]s, or choose another directory", parent.Gid, dir)
	}
	switch file := lstat(path); {
	case file.Mode&unix.S_IFMT != unix.S_IFREG:
	case !trusted(file):
		return nil, refuse("it belongs to user %d: stop the processes that have it open and remove it, or choose another directory", file.Uid)
	case file.Mode&0o002 != 0:
		return nil, refuse("everyone can write to it: chmod 600 %s", path)
	case file.Mode&0o004 != 0:
		doubt("everyone can open it, and so take the lock, or make its holder release it: chmod 600 %s", path)
	case file.Mode&0o060 != 0 && file.Gid != 0:
		doubt("group %d can open it, and so take the lock, or make its holder release it: chmod 600 %s", file.Gid, path)
	}
	return doubts, nil
}

// lstat returns zero for a missing file: owned by root, and closed to other users.
func lstat(path string) (stat unix.Stat_t) {
	if err := unix.Lstat(path, &stat); err != nil {
		return unix.Stat_t{}
	}
	return stat
}

// trusted reports whether the owner is the user of this process, or root, who can do anything.
func trusted(stat unix.Stat_t) bool { return stat.Uid == 0 || int(stat.Uid) == os.Geteuid() }
