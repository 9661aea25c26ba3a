// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
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
