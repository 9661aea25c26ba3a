// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/internal/node/lockfile"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/procs"
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

// kill kills one process with SIGKILL.
func (n *node) kill(pid int) {
	n.t.Helper()
	assert.NoError(n.t, unix.Kill(pid, unix.SIGKILL))
}

// killAgent kills the agent with SIGKILL, and requires that nothing of it is
// left: no kubelet, no dry run.
func (n *node) killAgent() {
	n.t.Helper()
	n.Kill()
	n.Eventually("nothing of the agent is left", func(context.Context) error {
		left := n.kubelets()
		return assert.Unless(len(left) == 0, "processes %v", left)
	})
}

// kubelets are all processes of this node that are a kubelet, or a dry run.
func (n *node) kubelets() []procs.Process {
	return slices.DeleteFunc(procs.All("/proc"), func(p procs.Process) bool {
		return !slices.Contains(p.Argv, "--hostname-override="+n.Node.Name()) || strings.Contains(p.Argv[0], "evenkeel-agent")
	})
}

// witness crashes with 123 pods, and records each start of the kubelet with
// a configuration that is on record as bad at that moment.
const witness = `if [ $mode = run ]; then
	revision=$(basename "$(dirname "$config")")
	[ "$config" != "${config#*/rendered/}" ] && grep -q "\"$revision\"" "$dir"/../evenkeel/v*/bad-configs && echo "$revision" >>"$dir/forbidden"
	has 'maxPods: 123' && exit 7
fi`

func TestAnAgentThatIsKilledAtAnyMomentLeavesAHealthyKubelet(t *testing.T) {
	t.Parallel()
	const kills = 52
	seed := uint64(time.Now().UnixNano())
	if given := os.Getenv("EVENKEEL_SEED"); given != "" {
		seed = assert.Value(strconv.ParseUint(given, 10, 64))(t)
	}

	t.Logf("EVENKEEL_SEED=%d", seed) // decides what is assigned and when; the machine's timing varies as well
	r := rand.New(rand.NewPCG(seed, 0))
	upTo := func(most time.Duration) *time.Timer { return time.NewTimer(time.Duration(r.Int64N(int64(most)))) }

	n := newNode(t, "killed", "--config-trial-duration=2s", "--crash-loop-threshold=1")
	n.wrap(witness)
	n.Up()
	n.RunPods("1")
	containers := n.Containers()
	begin := time.Now()
	allowed, crashing, refused := []types.UID{""}, []types.UID{}, []types.UID{}
	assign := func(i int) {
		var cm *corev1.ConfigMap
		switch r.IntN(6) {
		case 0:
			cm = n.ConfigMap(fmt.Sprintf("crashing-%d", i), map[string]any{"maxPods": 123, "registryBurst": 100 + i})
			crashing = append(crashing, cm.UID)
		case 1:
			cm = n.ConfigMap(fmt.Sprintf("rejected-%d", i), map[string]any{"maxPods": -i - 1})
			refused = append(refused, cm.UID)
		case 2:
			n.AssignMap(nil)
			return
		default:
			cm = n.ConfigMap(fmt.Sprintf("good-%d", i), map[string]any{"maxPods": 130 + r.IntN(3), "registryBurst": 100 + r.IntN(10)})
			allowed = append(allowed, cm.UID)
		}

		n.AssignMap(cm)
	}
	for i := range kills {
		// Some are assigned before the agent starts, some to one that may not
		// have come far, most to one that runs.
		if i%4 > 0 {
			n.Eventually("a kubelet is healthy with a configuration that may run", func(ctx context.Context) error {
				revision, _, err := n.Running()
				mayRun := slices.Contains(allowed, types.UID(revision))

				return errors.Join(err, assert.Unless(mayRun, "%s runs, which is not a good configuration", revision), n.Healthy(ctx))
			})
			<-upTo(300 * time.Millisecond).C
		}

		assign(i)
		<-upTo(1500 * time.Millisecond).C
		n.killAgent()

		s := n.onDisk()
		for _, b := range s.Bad {
			assert.That(t, slices.Contains(crashing, types.UID(b.Revision)) || slices.Contains(refused, types.UID(b.Revision)),
				"kill %d: a good configuration is held to be bad: %+v", i, b)
		}

		lkg := types.UID(s.LastKnownGood.Revision)
		assert.That(t, slices.Contains(allowed, lkg), "kill %d: last-known-good is %s, which is not a good configuration", i, lkg)
		if corrupt, err := filepath.Glob(filepath.Join(n.Dir, "*", "*.corrupt")); err != nil || len(corrupt) > 0 {
			t.Errorf("kill %d: set aside were %v, %v", i, corrupt, err)
		}
		if t.Failed() {
			t.FailNow()
		}

		<-upTo(200 * time.Millisecond).C
		n.start()
	}

	last := n.good("last", map[string]any{"maxPods": 111})
	n.healthyWith(last)
	n.SameContainers(containers)
	if raw, err := os.ReadFile(n.beside("forbidden")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("started while on record as bad, %v:\n%s", err, raw)
	}

	raw := assert.Value(os.ReadFile(n.beside("starts")))(t)
	for _, uid := range refused {
		assert.That(t, !bytes.Contains(raw, []byte(uid)), "%s was started, though its dry run rejected it", uid)
	}

	t.Logf("%d kills in %s", kills, time.Since(begin).Round(time.Second))
	t.Logf("%d good, %d crashing and %d rejected configurations, %d starts of the kubelet",
		len(allowed)-1, len(crashing), len(refused), bytes.Count(raw, []byte("\n")))
	assert.That(t, len(allowed) >= 10 && len(crashing) >= 2 && len(refused) >= 2, "that is hardly a mix")
}
