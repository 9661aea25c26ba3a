// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// onDiskOfItsOwn puts --dynamic-config-dir on a small file system. Stopping the
// node unmounts it.
func (n *node) onDiskOfItsOwn() {
	n.t.Helper()
	assert.NoError(n.t, os.Mkdir(n.Dir, 0o700))
	assert.NoError(n.t, unix.Mount("tmpfs", n.Dir, "tmpfs", 0, "size=1m,mode=0700"))
}

// fill fills the disk, and returns a function that frees it. It deletes the
// file for the status command first: the agent would delete that file itself,
// which would free space.
func (n *node) fill() (empty func()) {
	n.t.Helper()
	assert.NoError(n.t, os.Remove(filepath.Join(n.Dir, "running")))
	ballast := filepath.Join(n.Dir, "ballast")
	f, err := os.Create(ballast)
	assert.NoError(n.t, err)
	for piece := make([]byte, 4096); err == nil; {
		_, err = f.Write(piece)
	}

	assert.NoError(n.t, errors.Join(f.Close(), unless(err, unix.ENOSPC)))

	return func() {
		n.t.Helper()
		assert.NoError(n.t, os.Remove(ballast))
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

// assignUnrecorded assigns a configuration that the node cannot record for this
// cause.
func (n *node) assignUnrecorded(active *corev1.ConfigMap, name, cause string) (next *corev1.ConfigMap) {
	n.t.Helper()
	next = n.ConfigMap(name, map[string]any{"maxPods": 121 + len(cause)})
	n.AssignMap(next)
	nc := n.Says(notRecorded(active))
	assert.That(n.t, strings.Contains(nc.Status.Error, cause), "error is %q, want %q in it", nc.Status.Error, cause)

	return next
}

func TestAFullOrReadOnlyDiskBlocksChangesAndStopsNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t, "full", "--config-trial-duration=1s")
	n.onDiskOfItsOwn()
	n.Up()
	good := n.good("good", map[string]any{"maxPods": 120})
	undisturbed := n.Steady()
	empty := n.fill()
	next := n.assignUnrecorded(good, "next", "no space left on device")
	undisturbed.End(t)
	n.recorded(string(good.UID), string(good.UID))

	// A crash of the kubelet and a restart of the agent do not change the
	// configuration.
	n.kill(n.RunningPID())
	n.healthyWith(good)
	n.stop()
	n.start()
	n.healthyWith(good)
	n.Says(notRecorded(good))
	empty()
	n.is(allChecksPassed(next))
	n.LastKnownGood(next)
	n.recorded(string(next.UID), string(next.UID))

	// The kubelet holds its lock file open for writing, so that the file system
	// cannot be made read-only as a whole; for the agent it is.
	undisturbed = n.Steady()
	assert.NoError(t, unix.Mount(n.Dir, n.Dir, "", unix.MS_BIND, ""))
	assert.NoError(t, unix.Mount("", n.Dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	last := n.assignUnrecorded(next, "last", "read-only file system")
	undisturbed.End(t)
	n.stop()
	n.start() // an agent that cannot lock its directory must not start a second kubelet
	n.exitsWith(1)
	n.lastWord("--dynamic-config-dir: lock file: open " + n.Dir + "/agent.lock: read-only file system")
	assert.NoError(t, unix.Unmount(n.Dir, 0))
	n.start()
	n.is(allChecksPassed(last))
	n.LastKnownGood(last)
}
