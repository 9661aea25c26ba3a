package sweep

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// follow starts a process that names a path on its command line.
func follow(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("tail", "-f", path)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	return cmd
}

func TestOnlyProcessesOfTheDirectoryThatAreNotSparedAreKilled(t *testing.T) {
	root := t.TempDir()
	dir, neighbour := filepath.Join(root, "node"), filepath.Join(root, "node2")
	for _, d := range []string{dir, neighbour} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	doomed, spared, other := follow(t, filepath.Join(dir, "a")), follow(t, filepath.Join(dir, "b")), follow(t, filepath.Join(neighbour, "c"))
	if err := Cluster(dir, []int{spared.Process.Pid}); err != nil {
		t.Fatal(err)
	}
	if err := doomed.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("a process of the directory: %v, want it killed", err)
	}
	for name, cmd := range map[string]*exec.Cmd{"a spared one": spared, "one of a directory with a longer name": other} {
		if err := cmd.Process.Signal(unix.Signal(0)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheCallerIsAmongItsAncestors(t *testing.T) {
	pids := Ancestors()
	if len(pids) < 2 || pids[0] != os.Getpid() || pids[1] != os.Getppid() || slices.Contains(pids, 0) {
		t.Errorf("ancestors %v, want %d, %d, ... and no 0", pids, os.Getpid(), os.Getppid())
	}
}

func TestADirectoryWithoutRecordsHasNothingToRemove(t *testing.T) {
	if err := Node(filepath.Join(t.TempDir(), "none")); err != nil {
		t.Error(err)
	}
}

func TestARecordThatCannotBeReadIsAnError(t *testing.T) {
	for _, file := range []string{CgroupFile, BridgeFile} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := Node(dir); !errors.Is(err, unix.EISDIR) {
			t.Errorf("%s: %v, want EISDIR", file, err)
		}
	}
}

func TestMountsAreReadWithTheirNamesAndTypes(t *testing.T) {
	got := parseMounts(`36 35 98:0 /a /with\040space rw,noatime shared:1 - ext4 /dev/root rw
24 23 0:21 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
nonsense
`)
	want := []Mount{{"/with space", "ext4"}, {"/sys/fs/cgroup/cpu", "cgroup"}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestABridgeIsMadeOnceAndGone(t *testing.T) {
	const name = "evktest0"
	err := AddBridge(name)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOPKG) {
		t.Skip("bridges cannot be made here:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := AddBridge(name); !errors.Is(err, unix.EEXIST) {
		t.Errorf("the second: %v, want EEXIST", err)
	}
	for range 2 {
		if err := RemoveBridge(name); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
	if _, err := os.Stat("/sys/class/net/" + name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	if err := RemoveBridge("a-name-that-is-too-long"); err == nil {
		t.Error("a name that no interface can have was removed")
	}
}
