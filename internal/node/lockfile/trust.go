package lockfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrUnsafe says that users who need not be trusted could take a lock, and keep it.
var ErrUnsafe = errors.New("others could take it")

// trust looks who, besides us and root, could take the lock on the file at path. It is ErrUnsafe if the file, or its
// directory, belongs to another user, or if everybody may write to it. Lesser doubts are for the user to know. What is not
// there, or no file, is for open to tell; where a directory above lets nobody in, what is beneath it does not matter.
//
// It is looked at before the file is opened: an open makes another process give way, and in a sticky directory the kernel
// refuses another user's file with fewer words.
func trust(path string) (doubts []error, unsafe error) {
	dir, _ := filepath.EvalSymlinks(filepath.Dir(path))
	for above := dir; ; above = filepath.Dir(above) {
		if stat := lookAt(above); ours(stat) && stat.Mode&0o011 == 0 {
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
	parent := lookAt(dir)
	switch sticky := parent.Mode&unix.S_ISVTX != 0; { // in such a directory, who does not own a file cannot replace it
	case !ours(parent):
		return nil, refuse("its directory %s belongs to user %d, who can replace the file: chown %d %[1]s, or choose another directory",
			dir, parent.Uid, os.Geteuid())
	case parent.Mode&0o002 != 0 && !sticky:
		return nil, refuse("everybody may write to its directory %s, and replace the file: chmod o-w %[1]s, or choose another directory", dir)
	case parent.Mode&0o002 != 0:
		doubt("everybody may write to its directory %s, and make the file before it is made here; such a file is refused: choose another directory", dir)
	case parent.Mode&0o020 != 0 && !sticky && parent.Gid != 0:
		doubt("group %d may write to its directory %s, and replace the file: chmod g-w %[2]s, or choose another directory", parent.Gid, dir)
	}
	switch file := lookAt(path); {
	case file.Mode&unix.S_IFMT != unix.S_IFREG:
	case !ours(file):
		return nil, refuse("it belongs to user %d: end what has it open and remove it, or choose another directory", file.Uid)
	case file.Mode&0o002 != 0:
		return nil, refuse("everybody may write to it: chmod 600 %s", path)
	case file.Mode&0o004 != 0:
		doubt("everybody may open it, and so take the lock, or make one who gives way leave: chmod 600 %s", path)
	case file.Mode&0o060 != 0 && file.Gid != 0:
		doubt("group %d may open it, and so take the lock, or make one who gives way leave: chmod 600 %s", file.Gid, path)
	}
	return doubts, nil
}

// lookAt is what stat(2) says of a file or a directory. What is not there is root's, and lets nobody in.
func lookAt(path string) (stat unix.Stat_t) {
	if err := unix.Lstat(path, &stat); err != nil {
		return unix.Stat_t{}
	}
	return stat
}

// ours tells whether something belongs to this process's user, or to root, who can do all anyway.
func ours(stat unix.Stat_t) bool { return stat.Uid == 0 || int(stat.Uid) == os.Geteuid() }
