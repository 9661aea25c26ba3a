// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/lockfile"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/nodetest"
)

func TestAnUnhealthySelfHostedKubeletReturnsTheNodeForGood(t *testing.T) {
	t.Parallel()
	flags := []string{"--health-timeout=2s", "--config-trial-duration=10m", "--crash-loop-threshold=0"}
	boot := newNode(t, "giveup", flags...)
	boot.contends("--bootstrap")
	self := boot.rival("self-hosted", append(flags, "--give-up-after=5s")...)
	boot.wrap(strict + "\n[ $mode = run ] && [ -e \"$dir/sick\" ] && exec sleep 1000")
	self.Kubelet[0] = boot.Kubelet[0]
	boot.Up()

	// A hand-over neither ends a trial nor counts as a crash in it.
	cm := boot.assignNew("a", map[string]any{"maxPods": 120})
	boot.is(allChecksPassed(cm))
	boot.healthyWith(cm)
	self.start()
	boot.exitsWith(0)
	self.healthyWith(cm)
	s := self.onDisk()
	assert.That(t, s.Trial != nil && len(s.Startups) == 1, "on disk are the starts %+v and the trial %+v", s.Startups, s.Trial)
	self.AssignMap(nil)
	self.is(localInit)
	self.stop()
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

// run starts a program on the node, besides agents.
func (n *node) run(name string, argv ...string) *localcluster.Process {
	n.t.Helper()
	p := assert.Value(localcluster.StartProcess(name, filepath.Join(n.Node.Dir(), name+".log"), exec.Command(argv[0], argv[1:]...)))(n.t)
	n.t.Cleanup(func() { _ = p.Stop(nodetest.Patience) })

	return p
}

// holds waits until a process has the node's lock.
func (n *node) holds(pid int) {
	n.t.Helper()
	n.Eventually("the lock's holder", func(context.Context) error {
		got := lockfile.WhoHolds(n.lockFile())
		return assert.Unless(got == pid, "it is process %d, want %d", got, pid)
	})
}

func TestAStockKubeletAndAnAgentWithTheSameLockFileExcludeEachOther(t *testing.T) {
	t.Parallel()
	n := newNode(t, "stocklock")
	n.contends()
	stock := slices.Concat(n.Kubelet, []string{"--lock-file=" + n.lockFile()})

	// The kubelet has it: the agent waits until it has ended.
	first := n.run("first", stock...)
	n.holds(first.Pid())
	n.Eventually("the stock kubelet is healthy", n.Healthy)
	n.start()
	n.waits(first.Pid(), "kubelet")
	n.stop()
	n.exitsWith(0) // while the lock is still held
	assert.Is(t, assert.Err(os.Stat(n.socket())), os.ErrNotExist, "it left its socket")
	n.start()
	n.waits(first.Pid(), "kubelet")
	assert.OK(t, n.Healthy(t.Context()))
	assert.NoError(t, first.Stop(nodetest.Patience))
	n.takesOver(v1alpha1.RunModeSelfHosted)

	// The agent has it: the kubelet waits. It leaves when another one comes, as
	// its own flag says.
	steady := n.SteadyFromNow()
	second := n.run("second", append(stock, "--exit-on-lock-contention")...)
	n.Eventually("the stock kubelet waits", func(context.Context) error {
		return assert.Unless(lockfile.Waiting(second.Pid()), "it does not")
	})
	steady.End(t)
	n.stop()
	n.holds(second.Pid())
	n.Eventually("the stock kubelet is healthy", n.Healthy)
	n.start()
	n.takesOver(v1alpha1.RunModeSelfHosted)
	n.holds(n.Pid())
	<-second.Done
	assert.Equal(t, second.Cmd.ProcessState.ExitCode(), 0, "the stock kubelet's exit code")
}
