package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// onDiskOfItsOwn puts --dynamic-config-dir on a small file system. Stopping the
// node unmounts it.
func (n *node) onDiskOfItsOwn() {
	n.t.Helper()
	if err := os.Mkdir(n.Dir, 0o700); err != nil {
		n.t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", n.Dir, "tmpfs", 0, "size=1m,mode=0700"); err != nil {
		n.t.Fatal(err)
	}
}

// fill fills the disk, and returns a function that frees it. It deletes the file for the status
// command first: the agent would delete that file itself, which would free space.
func (n *node) fill() (empty func()) {
	n.t.Helper()
	if err := os.Remove(filepath.Join(n.Dir, "running")); err != nil {
		n.t.Fatal(err)
	}
	ballast := filepath.Join(n.Dir, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		n.t.Fatal(err)
	}
	for piece := make([]byte, 4096); err == nil; {
		_, err = f.Write(piece)
	}
	if err := errors.Join(f.Close(), unless(err, unix.ENOSPC)); err != nil {
		n.t.Fatal(err)
	}
	return func() {
		n.t.Helper()
		if err := os.Remove(ballast); err != nil {
			n.t.Fatal(err)
		}
	}
}

func unless(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return fmt.Errorf("expected %w, got %w", expected, err)
}

// notRecorded is ConfigOK while the agent cannot write to the disk.
func notRecorded(active *corev1.ConfigMap) (status, reason, words string) {
	return "Unknown", "SyncFailed", fmt.Sprintf("using current (UID: %s): failed to sync, desired config unclear, cause: cannot ", active.UID)
}

// newNodeOnOwnDisk starts a node whose state is on its own file system, with a last-known-good configuration.
func newNodeOnOwnDisk(t *testing.T, name string) (n *node, good *corev1.ConfigMap) {
	n = newNode(t, name, "--config-trial-duration=1s")
	n.onDiskOfItsOwn()
	n.up()
	good = n.configMap("good", map[string]any{"maxPods": 120})
	n.assign(good)
	n.lastKnownGood(good)
	return n, good
}

// assignUnrecorded assigns a configuration that the node cannot record for this cause.
func (n *node) assignUnrecorded(active *corev1.ConfigMap, cause string) (next *corev1.ConfigMap) {
	n.t.Helper()
	next = n.configMap("next", map[string]any{"maxPods": 121})
	n.assign(next)
	if nc := n.says(notRecorded(active)); !strings.Contains(nc.Status.Error, cause) {
		n.t.Errorf("error is %q, want %q in it", nc.Status.Error, cause)
	}
	return next
}

func TestAFullDiskBlocksChangesAndStopsNothing(t *testing.T) {
	t.Parallel()
	n, good := newNodeOnOwnDisk(t, "full")
	undisturbed := n.steady()
	empty := n.fill()
	next := n.assignUnrecorded(good, "no space left on device")
	undisturbed.end(t)
	n.recorded(string(good.UID), string(good.UID))

	// A crash of the kubelet and a restart of the agent do not change the
	// configuration.
	n.kill(n.kubeletPID())
	n.healthyWith(good)
	n.stop()
	n.start()
	n.healthyWith(good)
	n.says(notRecorded(good))

	empty()
	n.is(allChecksPassed(next))
	n.lastKnownGood(next)
	n.recorded(string(next.UID), string(next.UID))
}

func TestAReadOnlyDiskBlocksChangesAndStopsNothing(t *testing.T) {
	t.Parallel()
	n, good := newNodeOnOwnDisk(t, "readonly")
	// The kubelet holds its lock file open for writing, so that the file system
	// cannot be made read-only as a whole; for the agent it is.
	undisturbed := n.steady()
	if err := unix.Mount(n.Dir, n.Dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", n.Dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	next := n.assignUnrecorded(good, "read-only file system")
	undisturbed.end(t)

	// An agent that cannot lock its directory must not start a second kubelet.
	n.stop()
	n.start()
	n.exitsWith(1)
	n.lastWord("--dynamic-config-dir: lock file: open " + n.Dir + "/agent.lock: read-only file system")

	if err := unix.Unmount(n.Dir, 0); err != nil {
		t.Fatal(err)
	}
	n.start()
	n.is(allChecksPassed(next))
	n.lastKnownGood(next)
}

func TestADirectoryThatCannotBeTrustedOrUsedIsAClearErrorAtTheStart(t *testing.T) {
	t.Parallel()
	n := newNode(t, "nodir")
	for _, c := range []struct {
		name, words string
		make        func(dir string) error
	}{
		{"another owner", "belongs to user 1000, who could change what this node runs: check its content, then chown it to root", func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 1000, 1000))
		}},
		{"a file", "not a directory", func(dir string) error { return os.WriteFile(dir, nil, 0o600) }},
		{"a file in the place of the checkpoints", "is not a directory but a file: move it away, or name another directory", func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "checkpoints"), nil, 0o600))
		}},
		{"a link in the place of the checkpoints", "is not a directory but a symbolic link: move it away, or name another directory", func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.Symlink("/tmp", filepath.Join(dir, "checkpoints")))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := n.in(t)
			a := *n.Agent
			n.Agent = &a
			n.Dir = filepath.Join(t.TempDir(), "evenkeel")
			if err := c.make(n.Dir); err != nil {
				t.Fatal(err)
			}
			n.start()
			n.exitsWith(1)
			n.lastWord(c.words)
		})
	}
	t.Run("open to others, it is tightened", func(t *testing.T) {
		n := n.in(t)
		if err := errors.Join(os.Mkdir(n.Dir, 0o755), os.Chmod(n.Dir, 0o777)); err != nil {
			t.Fatal(err)
		}
		n.start()
		n.is(localInit)
		info, err := os.Stat(n.Dir)
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the directory is %v, %v", info, err)
		}
		n.logged("removed other users' access to a directory")
	})
}

// damages are what can happen to a file. The name says what the node calls it.
var damages = []struct {
	name     string
	setAside bool
	do       func(file string) error
}{
	{"garbage", true, func(file string) error { return os.WriteFile(file, []byte("\x00\xffnot what it was"), 0o600) }},
	{"truncated", true, func(file string) error {
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		return os.Truncate(file, info.Size()/2)
	}},
	{"empty", false, func(file string) error { return os.Truncate(file, 0) }},
	{"future", true, func(file string) error {
		raw, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return os.WriteFile(file, []byte(strings.Replace(string(raw), "v1alpha1", "v7", 1)), 0o600)
	}},
	{"vanished", false, os.Remove},
}

// stateFiles are what a node keeps, relative to its directory.
func stateFiles(cm *corev1.ConfigMap) []string {
	v := underTest.version
	return []string{
		"current", "last-known-good", "revoked", "component-version",
		v + "/bad-configs", v + "/promoted", v + "/startups", v + "/trial",
		"checkpoints/" + string(cm.UID), "rendered/" + string(cm.UID) + "/kubelet",
	}
}

func TestANodeStartsWithDamagedFilesReportsAndRepairsThem(t *testing.T) {
	t.Parallel()
	n := newNode(t, "damaged", "--config-trial-duration=1s", "--crash-loop-threshold=0")
	n.wrap(crashes)
	n.up()
	bad := n.configMap("bad", map[string]any{"maxPods": 123})
	n.assign(bad)
	n.is(rolledBack(bad, "CrashLooped", "(init)", "crash-looped: 1 start in its trial, last: exit status 7"))
	good := n.configMap("good", map[string]any{"maxPods": 120})
	n.assign(good)
	n.lastKnownGood(good)
	heals := func(t *testing.T) {
		t.Helper()
		n := n.in(t)
		n.start()
		n.healthyWith(good)
		n.eventually("the records are whole again", func(ctx context.Context) error {
			for _, file := range stateFiles(good) {
				info, err := os.Stat(filepath.Join(n.Dir, file))
				if err != nil {
					return err
				}
				if info.Size() == 0 {
					return fmt.Errorf("%s is empty", file)
				}
			}
			nc, err := n.Get(ctx)
			if err == nil && (nc.Status.LastKnownGood == nil || nc.Status.LastKnownGood.UID != good.UID) {
				err = fmt.Errorf("last-known-good is %+v", nc.Status.LastKnownGood)
			}
			return err
		})
		n.is(allChecksPassed(good))
		n.recorded(string(good.UID), string(good.UID))
	}
	for _, damage := range damages {
		for _, file := range stateFiles(good) {
			checkpoint, rendered := strings.HasPrefix(file, "checkpoints/"), strings.HasPrefix(file, "rendered/")
			// Every file with two of the damages, the first ones with all.
			if damage.name == "garbage" || damage.name == "future" && !checkpoint && !rendered || damage.name != "future" && (checkpoint || file == "current") {
				t.Run(damage.name+" "+filepath.Dir(file)+" "+filepath.Base(file)[:min(8, len(filepath.Base(file)))], func(t *testing.T) {
					n := n.in(t)
					n.stop()
					path := filepath.Join(n.Dir, file)
					_ = os.Remove(path + ".corrupt")
					before := n.countLog("event=StateProblem")
					if err := damage.do(path); err != nil {
						t.Fatal(err)
					}
					heals(t)
					if rendered {
						return // it is rewritten at each start, and never read
					}
					want := damage.setAside || checkpoint && damage.name == "empty"
					if _, err := os.Stat(path + ".corrupt"); errors.Is(err, fs.ErrNotExist) == want {
						t.Errorf("set aside: %v", err)
					}
					if n.countLog("event=StateProblem") == before {
						t.Error("nothing was said")
					}
				})
			}
		}
	}
	t.Run("all at once", func(t *testing.T) {
		n := n.in(t)
		for _, damage := range damages[:3] {
			n.stop()
			for _, file := range stateFiles(good) {
				if err := damage.do(filepath.Join(n.Dir, file)); err != nil {
					t.Fatal(err)
				}
			}
			heals(t)
		}
		n.event("Warning", "StateProblem", "current: corrupt: ")
	})
	t.Run("all gone while it runs", func(t *testing.T) {
		n := n.in(t)
		entries, err := os.ReadDir(n.Dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if err := os.RemoveAll(filepath.Join(n.Dir, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
		next := n.configMap("next", map[string]any{"maxPods": 121})
		n.assign(next)
		n.is(allChecksPassed(next))
		n.healthyWith(next)
		n.lastKnownGood(next)
		n.recorded(string(next.UID), string(next.UID))
		n.kill(n.kubeletPID())
		n.healthyWith(next)
	})
}
