package crashfs_test

import (
	"errors"
	"io/fs"
	"slices"
	"syscall"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

// write creates a file, and syncs it if sync is set, but not its directory.
func write(t *testing.T, f *crashfs.FS, name, data string, sync bool) {
	t.Helper()
	file, err := f.Create(name, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write([]byte(data)); err != nil {
		t.Fatal(err)
	}
	if sync {
		if err := file.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

// content returns the content of a file, or "-" if it does not exist.
func content(f *crashfs.FS, name string) string {
	data, err := f.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "-"
	}
	return string(data)
}

func TestUnsyncedDataIsLostKeptOrTorn(t *testing.T) {
	f := crashfs.New()
	write(t, f, "/a", "abcdef", false)
	for name, want := range map[string]string{"all lost": "-", "all kept": "abcdef", "names kept": "", "data kept": "-", "data torn": "abc"} {
		if got := content(f.Reboot(crashfs.Choices[name]), "/a"); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestASyncedFileNeedsItsNameSyncedToo(t *testing.T) {
	f := crashfs.New()
	write(t, f, "/a", "data", true)
	if got := content(f.Reboot(crashfs.Choices["all lost"]), "/a"); got != "-" {
		t.Errorf("before SyncDir: %q", got)
	}
	if err := f.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	if got := content(f.Reboot(crashfs.Choices["all lost"]), "/a"); got != "data" {
		t.Errorf("after SyncDir: %q", got)
	}
}

func TestARenameIsAtomic(t *testing.T) {
	f := crashfs.New()
	f.Plant("/a", []byte("old"))
	write(t, f, "/b", "new", true)
	if err := errors.Join(f.SyncDir("/"), f.Rename("/b", "/a")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]string{"all lost": {"old", "new"}, "all kept": {"new", "-"}} {
		up := f.Reboot(crashfs.Choices[name])
		if got := [2]string{content(up, "/a"), content(up, "/b")}; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestARemovedFileComesBackUnlessTheDirectoryWasSynced(t *testing.T) {
	f := crashfs.New()
	f.Plant("/a", []byte("old"))
	if err := f.Remove("/a"); err != nil {
		t.Fatal(err)
	}
	if got := content(f.Reboot(crashfs.Choices["all lost"]), "/a"); got != "old" {
		t.Errorf("%q, want the old content", got)
	}
	if err := f.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	if got := content(f.Reboot(crashfs.Choices["all lost"]), "/a"); got != "-" {
		t.Errorf("%q, want none", got)
	}
}

func TestADirectoryWithoutADurableNameIsLostWithItsContent(t *testing.T) {
	f := crashfs.New()
	if err := f.Mkdir("/d", 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, f, "/d/a", "data", true)
	if err := f.SyncDir("/d"); err != nil {
		t.Fatal(err)
	}
	if got := content(f.Reboot(crashfs.Choices["all lost"]), "/d/a"); got != "-" {
		t.Errorf("%q, want none", got)
	}
	if got := content(f.Reboot(crashfs.Choices["all kept"]), "/d/a"); got != "data" {
		t.Errorf("%q, want the data", got)
	}
}

func TestAFileMovedToASyncedDirectoryDoesNotComeBack(t *testing.T) {
	f := crashfs.New()
	f.PlantDir("/from", 0o700)
	f.PlantDir("/to", 0o700)
	write(t, f, "/from/a", "data", true)
	if err := errors.Join(f.Rename("/from/a", "/to/a"), f.SyncDir("/to")); err != nil {
		t.Fatal(err)
	}
	for name, choice := range crashfs.Choices {
		up := f.Reboot(choice)
		if got := [2]string{content(up, "/from/a"), content(up, "/to/a")}; got != [2]string{"-", "data"} {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestNoOperationHappensAfterACrash(t *testing.T) {
	f := crashfs.New()
	f.CrashAfter(1)
	file, err := f.Create("/a", 0o600)
	if err != nil || f.Crashed() {
		t.Fatalf("the operation before the crash: %v, crashed %v", err, f.Crashed())
	}
	if _, err := file.Write([]byte("data")); !errors.Is(err, crashfs.ErrCrashed) || !f.Crashed() {
		t.Errorf("write: %v, crashed %v", err, f.Crashed())
	}
	for what, err := range map[string]error{"sync": file.Sync(), "close": file.Close(), "remove": f.Remove("/a"), "rename": f.Rename("/a", "/b"),
		"mkdir": f.Mkdir("/d", 0o700), "chmod": f.Chmod("/a", 0), "syncdir": f.SyncDir("/")} {
		if !errors.Is(err, crashfs.ErrCrashed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := f.ReadFile("/a"); !errors.Is(err, crashfs.ErrCrashed) {
		t.Errorf("read: %v", err)
	}
	if got := content(f.Reboot(crashfs.Choices["all kept"]), "/a"); got != "" {
		t.Errorf("%q was written after the crash", got)
	}
}

func TestInjectedErrorsAffectTheChosenOperations(t *testing.T) {
	f := crashfs.New()
	f.FailAt(2, syscall.EIO)
	got := []error{f.Mkdir("/a", 0o700), f.Mkdir("/b", 0o700), f.Mkdir("/c", 0o700)}
	if got[0] != nil || !errors.Is(got[1], syscall.EIO) || got[2] != nil {
		t.Errorf("FailAt(2): %v", got)
	}
	f.FailFrom(2, syscall.ENOSPC, crashfs.NeedSpace...)
	got = []error{f.Mkdir("/d", 0o700), f.Remove("/d"), f.Mkdir("/e", 0o700), f.SyncDir("/")}
	if got[0] != nil || got[1] != nil || !errors.Is(got[2], syscall.ENOSPC) || got[3] != nil {
		t.Errorf("FailFrom on a full disk: %v", got)
	}
	f.Heal()
	if err := f.Mkdir("/e", 0o700); err != nil {
		t.Errorf("after Heal: %v", err)
	}
	if n := f.Operations(); n != 8 || f.Log()[1] != "mkdir /b" {
		t.Errorf("%d operations: %q", n, f.Log())
	}
}

func TestAFailedWriteWritesHalf(t *testing.T) {
	f := crashfs.New()
	file, err := f.Create("/a", 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f.FailAt(1, syscall.ENOSPC)
	if n, err := file.Write([]byte("abcdef")); n != 3 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("wrote %d, %v", n, err)
	}
	if got := content(f, "/a"); got != "abc" {
		t.Errorf("the file holds %q", got)
	}
}

func TestInvalidOperationsFailLikeOnADisk(t *testing.T) {
	f := crashfs.New()
	f.Plant("/d/a", nil)
	f.PlantDir("/empty", 0o755)
	create := func(name string) error { _, err := f.Create(name, 0o600); return err }
	read := func(name string) error { _, err := f.ReadFile(name); return err }
	list := func(name string) error { _, err := f.ReadDir(name); return err }
	lstat := func(name string) error { _, err := f.Lstat(name); return err }
	f.Plant("/bad", nil)
	f.FailRead("/bad", syscall.EIO)
	for _, tt := range []struct {
		what      string
		got, want error
	}{
		{"create over a file", create("/d/a"), syscall.EEXIST},
		{"create in nothing", create("/x/a"), syscall.ENOENT},
		{"create in a file", create("/d/a/b"), syscall.ENOTDIR},
		{"mkdir over a directory", f.Mkdir("/d", 0o700), syscall.EEXIST},
		{"remove a directory in use", f.Remove("/d"), syscall.ENOTEMPTY},
		{"remove nothing", f.Remove("/x"), syscall.ENOENT},
		{"rename nothing", f.Rename("/x", "/y"), syscall.ENOENT},
		{"rename a file over a directory", f.Rename("/d/a", "/empty"), syscall.EISDIR},
		{"rename a directory over a file", f.Rename("/empty", "/d/a"), syscall.ENOTDIR},
		{"rename over a directory in use", f.Rename("/empty", "/d"), syscall.ENOTEMPTY},
		{"sync a file as a directory", f.SyncDir("/d/a"), syscall.ENOTDIR},
		{"chmod nothing", f.Chmod("/x", 0), syscall.ENOENT},
		{"read a directory", read("/d"), syscall.EISDIR},
		{"read a bad sector", read("/bad"), syscall.EIO},
		{"list a file", list("/d/a"), syscall.ENOTDIR},
		{"look at nothing", lstat("/x"), syscall.ENOENT},
	} {
		if !errors.Is(tt.got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.what, tt.got, tt.want)
		}
	}
}

func TestFileInfoHasModeOwnerAndOrderOfChanges(t *testing.T) {
	f := crashfs.New()
	f.PlantDir("/d", 0o755)
	f.Own("/d", 1000)
	if err := f.Chmod("/d", 0o700); err != nil {
		t.Fatal(err)
	}
	info, err := f.Lstat("/d")
	if err != nil || info.Mode() != fs.ModeDir|0o700 || info.Sys().(*syscall.Stat_t).Uid != 1000 || !info.IsDir() {
		t.Errorf("%v, %v", info, err)
	}
	write(t, f, "/d/a", "data", true)
	write(t, f, "/d/b", "", true)
	entries, err := f.ReadDir("/d")
	if err != nil || len(entries) != 2 {
		t.Fatal(entries, err)
	}
	a, _ := entries[0].Info()
	b, _ := entries[1].Info()
	if a.Name() != "a" || a.Size() != 4 || !a.ModTime().Before(b.ModTime()) {
		t.Errorf("%v, then %v", a, b)
	}
	names := []string{entries[0].Name(), entries[1].Name()}
	if !slices.IsSorted(names) {
		t.Errorf("%q", names)
	}
}
