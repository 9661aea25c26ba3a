package sweep

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// follow starts a process that names a path on its command line.
func follow(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	assert.NoError(t, os.WriteFile(path, nil, 0o600))
	cmd := exec.Command("tail", "-f", path)
	assert.NoError(t, cmd.Start())
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	return cmd
}

func TestOnlyProcessesOfTheDirectoryThatAreNotSparedAreKilled(t *testing.T) {
	root := t.TempDir()
	dir, neighbour := filepath.Join(root, "node"), filepath.Join(root, "node2")
	for _, d := range []string{dir, neighbour} {
		assert.NoError(t, os.Mkdir(d, 0o700))
	}
	doomed, spared, other := follow(t, filepath.Join(dir, "a")), follow(t, filepath.Join(dir, "b")), follow(t, filepath.Join(neighbour, "c"))
	assert.NoError(t, Cluster(dir, []int{spared.Process.Pid}))
	assert.Error(t, doomed.Wait(), "signal: killed", "a process of the directory")
	for name, cmd := range map[string]*exec.Cmd{"a spared one": spared, "one of a directory with a longer name": other} {
		assert.OK(t, cmd.Process.Signal(unix.Signal(0)), name)
	}
}

func TestTheCallerIsAmongItsAncestors(t *testing.T) {
	pids := Ancestors()
	if len(pids) < 2 || pids[0] != os.Getpid() || pids[1] != os.Getppid() || slices.Contains(pids, 0) {
		t.Errorf("ancestors %v, want %d, %d, ... and no 0", pids, os.Getpid(), os.Getppid())
	}
}

func TestADirectoryWithoutRecordsHasNothingToRemove(t *testing.T) {
	assert.OK(t, Node(filepath.Join(t.TempDir(), "none")))
}

func TestARecordThatCannotBeReadIsAnError(t *testing.T) {
	for _, file := range []string{CgroupFile, BridgeFile} {
		dir := t.TempDir()
		assert.NoError(t, os.Mkdir(filepath.Join(dir, file), 0o700))
		assert.Is(t, Node(dir), unix.EISDIR, file)
	}
}

func TestMountsAreReadWithTheirNamesAndTypes(t *testing.T) {
	got := parseMounts(`36 35 98:0 /a /with\040space rw,noatime shared:1 - ext4 /dev/root rw
24 23 0:21 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
nonsense
`)
	want := []Mount{{"/with space", "ext4"}, {"/sys/fs/cgroup/cpu", "cgroup"}}
	assert.That(t, slices.Equal(got, want), "%v, want %v", got, want)
}

func TestABridgeIsMadeOnceAndGone(t *testing.T) {
	const name = "evktest0"
	err := AddBridge(name)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOPKG) {
		t.Skip("bridges cannot be made here:", err)
	}
	assert.NoError(t, err)
	assert.Is(t, AddBridge(name), unix.EEXIST, "the second")
	for range 2 {
		assert.OK(t, RemoveBridge(name), "remove")
	}
	assert.Is(t, assert.Err(os.Stat("/sys/class/net/"+name)), os.ErrNotExist, "it is still")
	assert.That(t, RemoveBridge("a-name-that-is-too-long") != nil, "a name that no interface can have was removed")
}
