package checkpoint_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

func TestDirectoryOfAKilledProcessIsMadeDurable(t *testing.T) {
	fsys := crashfs.New()
	for _, name := range []string{"/var", "/var/lib"} {
		if err := fsys.Mkdir(name, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := fsys.SyncDir(filepath.Dir(name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{dir, dir + "/checkpoints", dir + "/" + version} { // and nobody has synced their names
		if err := fsys.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := open(t, fsys).Save(full()); err != nil {
		t.Fatal(err)
	}
	after := fsys.Reboot(func(crashfs.Unsynced) crashfs.Fate { return crashfs.Lost })
	got, problems := open(t, after).Load()
	if diff := cmp.Diff(full(), got); diff != "" || len(problems) > 0 {
		t.Errorf("%v, -saved +loaded\n%s", problems, diff)
	}
}

func TestForgetRequestSurvivesAPowerCut(t *testing.T) {
	fsys := crashfs.New()
	s := open(t, fsys)
	if err := s.Save(full()); err != nil {
		t.Fatal(err)
	}
	if err := fsys.Mkdir(dir+"/forget-requests", 0o700); err != nil { // by a command that was killed then
		t.Fatal(err)
	}
	if err := checkpoint.RequestForget(fsys, dir, "uid-c"); err != nil {
		t.Fatal(err)
	}
	after := fsys.Reboot(func(crashfs.Unsynced) crashfs.Fate { return crashfs.Lost })
	if requests, err := open(t, after).ForgetRequests(); err != nil || len(requests) != 1 {
		t.Errorf("%q, %v", requests, err)
	}
}
