package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// boot gives the agent and its kubelet another boot ID, at their next start:
// they run in a mount namespace with a file of ours in its place.
func (n *node) boot(number int) {
	n.t.Helper()
	id := fmt.Sprintf("00000000-0000-4000-8000-%012d", number)
	file := filepath.Join(n.Node.Dir(), "boot_id")
	assert.NoError(n.t, os.WriteFile(file, []byte(id+"\n"), 0o644))
	n.Prefix = []string{"unshare", "--mount", "--propagation=slave", "sh", "-c", `mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"`, file}
}

// bootedWith waits until the Node has the boot ID: the kubelet sees it too.
func (n *node) bootedWith(number int) {
	n.t.Helper()
	want := fmt.Sprintf("00000000-0000-4000-8000-%012d", number)
	n.Eventually("the kubelet reports the boot ID "+want, func(ctx context.Context) error {
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
	assert.That(n.t, s.Trial != nil && len(s.Startups) == starts && s.Trial.Clean == clean && s.Trial.Fallback == trial.NoFallback,
		"on disk are %d starts and the trial %+v, want %d starts, clean %v", len(s.Startups), s.Trial, starts, clean)
}

func TestAnUncleanRebootInATrialCountsAndACleanOneDoesNot(t *testing.T) {
	t.Parallel()
	n := newNode(t, "reboot", "--config-trial-duration=5m", "--crash-loop-threshold=1")
	n.boot(1)
	n.Up()
	n.bootedWith(1)
	cm := n.assignNew("a", map[string]any{"maxPods": 120})
	n.is(allChecksPassed(cm))
	n.healthyWith(cm)
	n.counted(1, false)

	// The agent dies and is started again: the same boot.
	n.killAgent()
	n.start()
	n.healthyWith(cm)
	n.counted(1, false)

	// A clean reboot.
	kubelet := n.watchProcess(n.RunningPID())
	n.stop()
	n.exitsWith(0)
	kubelet.gone(0)
	n.logged(`msg="kubelet stopped"`, `exit="exit status 0"`)
	n.counted(1, true)
	n.boot(2)
	n.start()
	n.healthyWith(cm)
	n.bootedWith(2)
	n.counted(1, false)
	assert.Equal(t, n.onDisk().Trial.BootID, "00000000-0000-4000-8000-000000000002", "the trial's boot ID")

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
	n.Event("Warning", "ConfigRolledBack", w.cause)
	n.verdictIsFinal(cm)
}
