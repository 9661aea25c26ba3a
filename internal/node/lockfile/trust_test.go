package lockfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// stranger is a user, and a group, that nobody need trust.
const stranger = 54321

// sharedDir is a directory that every user of this machine can enter, and that they may do this to.
func sharedDir(t *testing.T, mode os.FileMode) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs to give files to other users")
	}
	dir, err := os.MkdirTemp("/tmp", "lockfile-")
	do(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	do(t, os.Chmod(dir, mode))
	return dir
}

func TestALockThatOthersCouldTakeIsRefusedOrDoubted(t *testing.T) {
	type node struct {
		mode     os.FileMode
		uid, gid int
	}
	const refuse, doubt = "refuse", "doubt"
	for _, c := range []struct {
		name      string
		dir       node
		file      node // no mode: there is none
		what      string
		wantWords string // D is the directory, F the file
	}{
		{"nobody else", node{0o755, 0, 0}, node{0o600, 0, 0}, "", ""},
		{"nobody else yet", node{0o755, 0, 0}, node{}, "", ""},
		{"root's own group", node{0o775, 0, 0}, node{0o660, 0, 0}, "", ""},
		{"nobody may enter", node{0o700, 0, 0}, node{0o666, stranger, stranger}, "", ""},
		{"a sticky directory of a group", node{os.ModeSticky | 0o775, 0, stranger}, node{0o600, 0, 0}, "", ""},

		{"another's directory", node{0o755, stranger, 0}, node{0o600, 0, 0}, refuse, "its directory D belongs to user 54321, who can replace the file: chown 0 D, or choose another directory"},
		{"another's directory that only that one may enter", node{0o700, stranger, 0}, node{}, refuse, "its directory D belongs to user 54321"},
		{"everybody's directory", node{0o777, 0, 0}, node{0o600, 0, 0}, refuse, "everybody may write to its directory D, and replace the file: chmod o-w D, or choose another directory"},
		{"another's file", node{0o755, 0, 0}, node{0o600, stranger, 0}, refuse, "it belongs to user 54321: end what has it open and remove it, or choose another directory"},
		{"another was first in a sticky directory", node{os.ModeSticky | 0o777, 0, 0}, node{0o666, stranger, 0}, refuse, "it belongs to user 54321"},
		{"everybody's file", node{0o755, 0, 0}, node{0o622, 0, 0}, refuse, "everybody may write to it: chmod 600 F"},

		{"a sticky directory", node{os.ModeSticky | 0o777, 0, 0}, node{0o600, 0, 0}, doubt, "everybody may write to its directory D, and make the file before it is made here; such a file is refused: choose another directory"},
		{"a group's directory", node{0o775, 0, stranger}, node{}, doubt, "group 54321 may write to its directory D, and replace the file: chmod g-w D, or choose another directory"},
		{"a file for everybody to read", node{0o755, 0, 0}, node{0o644, 0, 0}, doubt, "everybody may open it, and so take the lock, or make one who gives way leave: chmod 600 F"},
		{"a file for a group to read", node{0o755, 0, 0}, node{0o640, 0, stranger}, doubt, "group 54321 may open it, and so take the lock, or make one who gives way leave: chmod 600 F"},
		{"a file for a group to write", node{0o755, 0, 0}, node{0o620, 0, stranger}, doubt, "group 54321 may open it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := sharedDir(t, c.dir.mode)
			path := filepath.Join(dir, "lock")
			if c.file.mode != 0 {
				do(t, errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, c.file.uid, c.file.gid), os.Chmod(path, c.file.mode)))
			}
			do(t, errors.Join(os.Chown(dir, c.dir.uid, c.dir.gid), os.Chmod(dir, c.dir.mode)))
			var noticed []string
			claim, err := Contender{Path: path, Notice: func(err error) { noticed = append(noticed, err.Error()) }}.Acquire(t.Context(), nil)
			if err == nil {
				do(t, claim.Release())
			}
			words := strings.NewReplacer("D", dir, "F", path).Replace(c.wantWords)
			switch c.what {
			case refuse:
				wantError(t, err, ErrUnsafe, "lock file "+path+": others could take it: "+words)
			case doubt:
				if err != nil || len(noticed) != 1 || !strings.HasPrefix(noticed[0], "lock file "+path+": "+words) {
					t.Errorf("error %v, noticed %q, want that it is doubted with %q", err, noticed, words)
				}
			default:
				if err != nil || noticed != nil {
					t.Errorf("error %v, noticed %q, want none", err, noticed)
				}
			}
		})
	}
}

func TestWhatMayBeDoneBeneathAClosedDirectoryDoesNotMatter(t *testing.T) {
	outer := sharedDir(t, 0o755)
	dir := filepath.Join(outer, "a", "b")
	do(t, errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o777), os.Symlink("a/b", filepath.Join(outer, "link"))))
	path := filepath.Join(outer, "link", "lock")
	_, err := Contender{Path: path}.Acquire(t.Context(), nil)
	wantError(t, err, ErrUnsafe, "everybody may write to its directory "+dir)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what is refused was made all the same: %v", err)
	}
	do(t, os.Chmod(outer, 0o700))
	claimed(t, Contender{Path: path, Notice: func(err error) { t.Errorf("notice %v", err) }})
}

func TestWhoIsRefusedMakesNobodyGiveWay(t *testing.T) {
	t.Parallel()
	dir := sharedDir(t, 0o755)
	path := filepath.Join(dir, "lock")
	claim := claimed(t, Contender{Path: path, Yield: true})
	do(t, os.Chmod(dir, 0o777))
	_, err := Contender{Path: path}.Acquire(t.Context(), nil)
	wantError(t, err, ErrUnsafe)
	notWanted(t, claim)
}

func TestAWaiterDoesNotTakeWhatOthersCouldTakeMeanwhile(t *testing.T) {
	dir := sharedDir(t, 0o755)
	path := filepath.Join(dir, "lock")
	_, kill := startHolder(t, path)
	waiter := startPeer(t, Contender{Path: path})
	queued(t, waiter.pid())
	do(t, os.Chmod(dir, 0o777))
	kill()
	waiter.hears("failed", ErrUnsafe.Error(), "everybody may write to its directory "+dir)
	waiter.saidNothingOf("held")
	acquire(t, path)
}

func TestAHolderDoesNotLeaveForAFileThatOthersCouldTake(t *testing.T) {
	path := filepath.Join(sharedDir(t, 0o755), "lock")
	holder := startPeer(t, Contender{Path: path})
	holder.hears("held")
	startHolder(t, path+".new")
	do(t, errors.Join(os.Chown(path+".new", stranger, 0), os.Rename(path+".new", path)))
	holder.hears("notice", path, ErrUnsafe.Error(), "it belongs to user 54321", "its lock is kept, and this tried again")
	holder.saidNothingOf("wanted")
	do(t, os.Remove(path))
	holder.hears("notice", "taken on the new one too")
	if pid := WhoHolds(path); pid != holder.pid() {
		t.Errorf("process %d has the lock, want %d", pid, holder.pid())
	}
}
