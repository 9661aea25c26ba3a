// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/internal/node/lockfile"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// undisturbed checks that the kubelet keeps running, and that there is no
// promotion and no verdict.
func (n *node) undisturbed(pid int, cm *corev1.ConfigMap) func(context.Context) error {
	return func(ctx context.Context) error {
		if now, err := n.KubeletPID(); err != nil || now != pid {
			return fmt.Errorf("the kubelet is process %d, was %d, %v", now, pid, err)
		}

		s := n.onDisk()
		if s.Current.Revision != string(cm.UID) || !s.LastKnownGood.IsLocal() || len(s.Bad) > 0 || s.Trial == nil || len(s.Startups) != 1 {
			return fmt.Errorf("on disk: current %q, last-known-good %q, bad %+v, trial %+v, %d starts", s.Current.Revision, s.LastKnownGood.Revision, s.Bad, s.Trial, len(s.Startups))
		}

		return n.Healthy(ctx)
	}
}

// TestAnAPIOutagePausesATrial has a cluster of its own.
func TestAnAPIOutagePausesATrial(t *testing.T) {
	t.Parallel()
	n := newCluster(t, "outage", "--config-trial-duration=12s", "--ready-timeout=10s", "--health-timeout=10s", "--crash-loop-threshold=0", "--sync-timeout=1h")
	n.Up()
	n.is(localInit) // the API server is new, and may not know the kind yet
	cm := n.assignNew("a", map[string]any{"maxPods": 120})
	n.is(allChecksPassed(cm))
	n.healthyWith(cm)
	pid := n.RunningPID()
	n.Eventually("the clock of the trial runs", func(context.Context) error {
		return assert.Unless(n.sample("evenkeel_trial_healthy_seconds") > 0, "it does not")
	})
	assert.NoError(t, n.Cluster.StopAPIServer())
	n.AgentSays("Unknown", "SyncFailed",
		fmt.Sprintf("using current (UID: %s): failed to sync, desired config unclear, cause: NodeConfig outage cannot be read: the API server refuses connections (", cm.UID))
	n.throughout(13*time.Second, "during the outage", n.undisturbed(pid, cm))
	assert.Equal(t, n.sample("evenkeel_node_config_error"), 1, "evenkeel_node_config_error")

	assert.NoError(t, n.Cluster.StartAPIServer(t.Context()))
	n.AgentSays("True", "AllChecksPassed", "all checks passed") // by itself
	n.LastKnownGood(cm)
	n.is(allChecksPassed(cm))
	assert.Equal(t, n.RunningPID(), pid, "the kubelet was restarted: process")
}

func TestAnOutageOfContainerdGivesNoVerdict(t *testing.T) {
	t.Parallel()
	n := newNode(t, "noruntime", "--config-trial-duration=10s", "--ready-timeout=8s", "--health-timeout=5s", "--crash-loop-threshold=0")
	n.Up()
	cm := n.assignNew("a", map[string]any{"maxPods": 120})
	n.is(allChecksPassed(cm))
	n.healthyWith(cm)

	// One that hangs still takes connections. A kubelet that starts waits for
	// its answer, and is not healthy meanwhile.
	assert.NoError(t, unix.Kill(n.Node.RuntimePID(), unix.SIGSTOP))
	n.kill(n.RunningPID())
	onTrial := func(context.Context) error {
		s := n.onDisk()
		return assert.Unless(len(s.Bad) == 0 && len(s.Startups) == 1 && s.Trial != nil,
			"on disk bad are %+v, %d starts, trial %+v", s.Bad, len(s.Startups), s.Trial)
	}
	n.throughout(6*time.Second, "while containerd hangs", onTrial)
	assert.NoError(t, unix.Kill(n.Node.RuntimePID(), unix.SIGCONT))
	n.healthyWith(cm)

	pid := n.RunningPID()
	n.Node.StopRuntime()
	n.throughout(10*time.Second, "without containerd", n.undisturbed(pid, cm))

	// Without it a kubelet that starts ends at once: no crash of the
	// configuration's doing, though the threshold tolerates none.
	n.kill(pid)
	n.Eventually("the kubelet was tried again", func(context.Context) error {
		count := n.countLog("the kubelet exited unexpectedly")
		return assert.Unless(count >= 3, "it exited %d times", count)
	})
	assert.OK(t, onTrial(t.Context()))
	assert.NoError(t, n.Node.StartRuntime(t.Context()))
	n.healthyWith(cm)
	n.LastKnownGood(cm)
	nc := n.is(allChecksPassed(cm))
	assert.That(t, len(nc.Status.BadConfigs) == 0, "bad are %+v", nc.Status.BadConfigs)

	// A kubelet that waits for its lock does nothing, and no runtime is to
	// blame.
	lock := assert.Value(os.Open(n.Dir + "/kubelet.lock"))(t)
	defer lock.Close()
	locked := make(chan error)
	go func() { locked <- unix.Flock(int(lock.Fd()), unix.LOCK_EX) }()
	n.Eventually("this process is next in the lock's queue", func(context.Context) error {
		return assert.Unless(lockfile.Waiting(os.Getpid()), "it does not wait")
	})
	next := n.assignNew("b", map[string]any{"maxPods": 121})
	assert.NoError(t, <-locked)
	const waits = "the kubelet is waiting for its lock file, which another process holds"
	n.is(want{"Unknown", "WaitingForLock", fmt.Sprintf("using current (UID: %s)", next.UID), waits, waits})
	assert.NoError(t, lock.Close())
	n.healthyWith(next)
	n.is(allChecksPassed(next))
}

// countLog counts the lines of the agent's log that hold words.
func (n *node) countLog(words string) int {
	n.t.Helper()
	return strings.Count(string(assert.Value(os.ReadFile(n.Log))(n.t)), words)
}
