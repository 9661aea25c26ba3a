package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/evenkeel/evenkeel/internal/node/trial"
)

// boot gives the agent and its kubelet another boot ID, at their next start:
// they run in a mount namespace with a file of ours in its place.
func (n *node) boot(number int) {
	n.t.Helper()
	id := fmt.Sprintf("00000000-0000-4000-8000-%012d", number)
	file := filepath.Join(n.Node.Dir(), "boot_id")
	if err := os.WriteFile(file, []byte(id+"\n"), 0o644); err != nil {
		n.t.Fatal(err)
	}
	n.Prefix = []string{"unshare", "--mount", "--propagation=slave", "sh", "-c", `mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"`, file}
}

// bootedWith waits until the Node has the boot ID: the kubelet sees it too.
func (n *node) bootedWith(number int) {
	n.t.Helper()
	want := fmt.Sprintf("00000000-0000-4000-8000-%012d", number)
	n.eventually("the kubelet reports the boot ID "+want, func(ctx context.Context) error {
		obj, err := n.Kube.CoreV1().Nodes().Get(ctx, n.Node.Name(), getOptions)
		if err == nil && obj.Status.NodeInfo.BootID != want {
			err = fmt.Errorf("it is %s", obj.Status.NodeInfo.BootID)
		}
		return err
	})
}

// counted requires this number of recorded starts in a running trial.
func (n *node) counted(starts int, clean bool) {
	n.t.Helper()
	s := n.onDisk()
	if s.Trial == nil || len(s.Startups) != starts || s.Trial.Clean != clean || s.Trial.Fallback != trial.NoFallback {
		n.t.Errorf("on disk are %d starts and the trial %+v, want %d starts, clean %v", len(s.Startups), s.Trial, starts, clean)
	}
}

func TestAnUncleanRebootInATrialCountsAndACleanOneDoesNot(t *testing.T) {
	t.Parallel()
	n := newNode(t, "reboot", "--config-trial-duration=5m", "--crash-loop-threshold=1")
	n.boot(1)
	n.up()
	n.bootedWith(1)
	cm := n.configMap("a", map[string]any{"maxPods": 120})
	n.assign(cm)
	n.is(allChecksPassed(cm))
	n.healthyWith(cm)
	n.counted(1, false)

	// The agent dies and is started again: the same boot.
	n.killAgent()
	n.start()
	n.healthyWith(cm)
	n.counted(1, false)

	// A clean reboot.
	n.stop()
	n.counted(1, true)
	n.boot(2)
	n.start()
	n.healthyWith(cm)
	n.bootedWith(2)
	n.counted(1, false)
	if got := n.onDisk().Trial.BootID; got != "00000000-0000-4000-8000-000000000002" {
		t.Errorf("the trial's boot ID is %q", got)
	}

	// The power goes, once.
	n.killAgent()
	n.boot(3)
	n.start()
	n.healthyWith(cm)
	n.counted(2, false)
	n.is(allChecksPassed(cm))
	n.wantSample("evenkeel_trial_restarts", 1)

	// And once more than the threshold lets pass.
	n.killAgent()
	n.boot(4)
	n.start()
	n.healthyWith(nil)
	w := rolledBack(cm, "CrashLooped", "(init)", "crash-looped: 2 starts in its trial, last: the node went down without a clean shutdown")
	n.is(w)
	n.event("Warning", "ConfigRolledBack", w.cause)
	n.verdictIsFinal(cm)
}

func TestRebootsAfterATrialAreNotFailures(t *testing.T) {
	t.Parallel()
	n := newNode(t, "reboots", "--config-trial-duration=1s", "--crash-loop-threshold=0")
	n.boot(1)
	n.up()
	cm := n.configMap("a", map[string]any{"maxPods": 120})
	n.assign(cm)
	n.lastKnownGood(cm)
	for boot := 2; boot < 5; boot++ {
		n.killAgent()
		n.boot(boot)
		n.start()
		n.healthyWith(cm)
		n.bootedWith(boot)
		if s := n.onDisk(); s.Trial != nil || len(s.Startups) != 0 || len(s.Bad) != 0 {
			t.Errorf("boot %d: on disk are %d starts, trial %+v, bad %+v", boot, len(s.Startups), s.Trial, s.Bad)
		}
	}
	n.is(allChecksPassed(cm))
	n.recorded(string(cm.UID), string(cm.UID))
}

func TestWithoutTheAPIANodeBootsWithItsCheckpointBeforeTheSyncTimeout(t *testing.T) {
	t.Parallel()
	n := newCluster(t, "alone", "--config-trial-duration=1s", "--crash-loop-threshold=0", "--sync-timeout=1h")
	n.boot(1)
	n.up()
	n.is(localInit) // the API server is new, and may not know the kind yet
	before := n.configMap("before", map[string]any{"maxPods": 120})
	n.assign(before)
	n.lastKnownGood(before)
	n.stop()
	after := n.configMap("after", map[string]any{"maxPods": 121})
	n.assign(after)
	if err := n.Cluster.StopAPIServer(); err != nil {
		t.Fatal(err)
	}

	n.boot(2)
	n.start()
	n.healthyWith(before)
	z := n.agentSays("Unknown", "SyncFailed", fmt.Sprintf("using current (UID: %s): failed to sync, desired config unclear, cause: NodeConfig alone cannot be read: the API server refuses connections (", before.UID))
	if z.Source.Revision != string(before.UID) {
		t.Errorf("the source is %+v", z.Source)
	}
	n.recorded(string(before.UID), string(before.UID))

	if err := n.Cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.is(allChecksPassed(after))
	n.healthyWith(after)
	n.lastKnownGood(after)
	n.recorded(string(after.UID), string(after.UID))
}
