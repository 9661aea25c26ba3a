package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestABootstrapKubeletHandsOverAndComesBackWithTheUpdatedConfigurationWithoutTheAPI(t *testing.T) {
	t.Parallel()
	flags := []string{"--config-trial-duration=1s", "--crash-loop-threshold=0", "--sync-timeout=1m"}
	boot, self := handover(t, newCluster(t, "handover"), flags...)
	boot.wrap(strict)
	self.Kubelet[0] = boot.Kubelet[0]
	boot.Up()
	boot.takesOver(v1alpha1.RunModeBootstrap)

	// The self-hosted one asks the bootstrap one to leave.
	gap := boot.gap()
	self.start()
	boot.exitsWith(0)
	self.takesOver(v1alpha1.RunModeSelfHosted)
	t.Logf("bootstrap to self-hosted: the health endpoint was away for %s", gap().Round(time.Millisecond))
	boot.logged("another process requested the node")
	if stopped, started := boot.logTime(`msg="kubelet stopped"`), self.logTime(`msg="kubelet started"`); !stopped.Before(started) {
		t.Errorf("one kubelet stopped at %s, the next was started at %s", stopped, started)
	}
	self.status("Run mode: SelfHosted", "Agent: runs")

	// The init system starts bootstrap again, which waits and touches nothing.
	steady, before := self.Steady(), self.records()
	boot.start()
	boot.waits(self.Pid(), "evenkeel-agent")
	cm := self.ConfigMap("a", map[string]any{"maxPods": 120})
	assert.NoDiff(t, cmp.Diff(before, self.records()), "the records have changed")
	steady.End(t)
	self.AssignMap(cm)
	self.LastKnownGood(cm)

	// The pod is gone, and so is the API.
	assert.NoError(t, boot.Cluster.StopAPIServer())
	gap = boot.gap()
	self.stop()
	boot.healthyWith(cm)
	t.Logf("self-hosted to bootstrap: the health endpoint was away for %s", gap().Round(time.Millisecond))
	boot.AgentSays("Unknown", "SyncFailed", fmt.Sprintf("using current (UID: %s): failed to sync, desired config unclear", cm.UID))
	assert.NoError(t, boot.Cluster.StartAPIServer(t.Context()))
	boot.takesOver(v1alpha1.RunModeBootstrap)
	boot.is(allChecksPassed(cm))
	boot.neverTwo()
}

func TestATrialContinuesAfterAHandOver(t *testing.T) {
	t.Parallel()
	boot, self := handover(t, newNode(t, "handtrial"), "--config-trial-duration=5m", "--crash-loop-threshold=0")
	boot.wrap(strict)
	self.Kubelet[0] = boot.Kubelet[0]
	boot.Up()
	cm := boot.assignNew("a", map[string]any{"maxPods": 120})
	boot.is(allChecksPassed(cm))
	boot.healthyWith(cm)
	boot.counted(1, false)

	self.start()
	boot.exitsWith(0)
	self.healthyWith(cm)
	self.counted(1, false)
	self.is(allChecksPassed(cm))

	// And back, as when the pod is deleted; and once more, as when it is killed.
	boot.start()
	boot.waits(self.Pid(), "evenkeel-agent")
	self.stop()
	boot.healthyWith(cm)
	boot.counted(1, false)
	self.start()
	boot.exitsWith(0)
	self.healthyWith(cm)
	boot.start()
	boot.waits(self.Pid(), "evenkeel-agent")
	assert.NoError(t, self.Kill())
	boot.healthyWith(cm)
	boot.counted(1, false)
	boot.is(allChecksPassed(cm))
	boot.neverTwo()
}

func TestAnUnhealthySelfHostedKubeletReturnsTheNodeForGood(t *testing.T) {
	t.Parallel()
	boot, self := handover(t, newNode(t, "giveup"), "--health-timeout=2s")
	boot.wrap(strict + "\n[ $mode = run ] && [ -e \"$dir/sick\" ] && exec sleep 1000")
	self.Kubelet[0] = boot.Kubelet[0]
	self.Flags = append(self.Flags, "--give-up-after=5s")
	boot.Up()
	assert.NoError(t, os.WriteFile(boot.beside("sick"), nil, 0o600))

	// No other agent waits, so this one keeps the node.
	self.start()
	boot.exitsWith(0)
	self.holds(self.Pid())
	self.throughout(8*time.Second, "it keeps the node", func(context.Context) error {
		select {
		case <-self.Done():
			return errors.New("it has ended")
		default:
			return nil
		}
	})
	// The init system starts bootstrap, whose kubelet is healthy.
	boot.start()
	boot.waits(self.Pid(), "evenkeel-agent")
	assert.NoError(t, os.Remove(boot.beside("sick")))
	self.exitsWith(9)
	self.logged("no kubelet was healthy for 5s")
	boot.takesOver(v1alpha1.RunModeBootstrap)

	// The healthy kubelet would restart the container of the self-hosted agent.
	steady := boot.Steady()
	self.start()
	self.exitsWith(9)
	self.logged("this kubelet was never healthy and released the node at ")
	steady.End(t)
	// Another attempt is free to.
	self.Flags = append(self.Flags, "-v=1")
	self.start()
	boot.exitsWith(0)
	self.takesOver(v1alpha1.RunModeSelfHosted)
	boot.neverTwo()
}
