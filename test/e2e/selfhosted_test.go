// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestASelfHostedKubeletFromBootstrapToReboot(t *testing.T) {
	t.Parallel()
	p := newPivot(t, "pivot", "--config-trial-duration=1s")
	t.Cleanup(p.powerOff)
	p.boot()
	neverTwoKubelets := p.watchKubelets()
	step := func(name string, do func(*pivot)) {
		t.Helper()
		if t.Failed() {
			return
		}

		begin := time.Now()
		t.Run(name, func(t *testing.T) {
			q := p.in(t)
			defer func() { p.worker, p.current, p.boots, p.first = q.worker, q.current, q.boots, q.first }()
			do(q)
			if q.boots == 1 {
				q.neverRestarted()
			}
		})
		t.Logf("%s: %s", name, time.Since(begin).Round(100*time.Millisecond))
	}
	step("the bootstrap kubelet runs the node and keeps it for its successor", bootstrapRuns)
	step("the pod takes the node over and bootstrap waits", podTakesOver)
	step("the self-hosted kubelet adopts a configuration", selfHostedTakesUp)
	step("an update of the DaemonSet brings the new one to the lock before the old one goes", updateSurges)
	step("the next kubelet adopts a configuration that was assigned in a hand-over", changeInAHandOver)
	step("after a power cut bootstrap runs what the self-hosted kubelet had, without the API", powerCut)
	neverTwoKubelets()
}

func bootstrapRuns(p *pivot) {
	p.isRun(v1alpha1.RunModeBootstrap, "", nil)
	obj := assert.Value(p.Object(p.t.Context()))(p.t)
	assert.That(p.t, obj.Labels["evenkeel.dev/kubelet"] == "self-hosted", "it has the labels %v", obj.Labels)
	p.startsWork()
}

func podTakesOver(p *pivot) {
	p.apply(versionOne)
	uid := p.podReady(versionOne)
	p.isRun(v1alpha1.RunModeSelfHosted, uid, nil)
	p.bootstrapWaits()
	for _, words := range []string{"another process requested the node", "init: the bootstrap agent ended with 0"} {
		assert.Equal(p.t, p.countLog(words), 1, "the log says", words)
	}

	p.patchNode(`{"spec":{"taints":null}}`) // kubectl taint node NODE component-
	p.Eventually("the workload runs", func(ctx context.Context) (err error) {
		p.worker, err = p.work(ctx)
		return err
	})
	assert.Equal(p.t, p.podReady(versionOne), uid, "the pod is another one")
}

func selfHostedTakesUp(p *pivot) {
	cm := p.good("a", map[string]any{"maxPods": 120})
	p.isRun(v1alpha1.RunModeSelfHosted, p.podReady(versionOne), cm)
	p.isVersion(versionOne)
	p.current = cm
	p.untouched()
}

func updateSurges(p *pivot) {
	// A controller that waits for an old pod's minReadySeconds forgets to come
	// back for those of a new one.
	p.daemonSetAvailable()
	p.apply(versionTwo)
	uid := p.podReady(versionTwo)
	p.podsGo(versionOne)
	p.isRun(v1alpha1.RunModeSelfHosted, uid, p.current)
	p.isVersion(versionTwo)
	p.bootstrapWaits()
	p.untouched()
}

func changeInAHandOver(p *pivot) {
	cm := p.ConfigMap("b", map[string]any{"maxPods": 130})
	ends := p.processesOf("kubelet")
	p.labelled(false)
	p.Eventually("the kubelet is told to stop", func(context.Context) error {
		now := p.processesOf("kubelet")
		return assert.Unless(len(now) != 1 || now[0].PID != ends[0].PID, "it runs")
	})
	p.AssignMap(cm)
	p.LastKnownGood(cm)
	p.isRun(v1alpha1.RunModeBootstrap, "", cm)
	p.podsGo(versionTwo)

	// And the other way.
	p.current = p.ConfigMap("c", map[string]any{"maxPods": 140})
	left := p.countLog("another process requested the node")
	p.labelled(true)
	p.Eventually("bootstrap is asked to leave", func(context.Context) error {
		return assert.Unless(p.countLog("another process requested the node") > left, "it is not")
	})
	p.AssignMap(p.current)
	p.LastKnownGood(p.current)
	p.isRun(v1alpha1.RunModeSelfHosted, p.podReady(versionTwo), p.current)
	p.bootstrapWaits()
	p.untouched()
}

func powerCut(p *pivot) {
	assert.NoError(p.t, p.Cluster.StopAPIServer())
	p.powerOff()
	had := p.countLog("this agent has the node's lock")
	begin := time.Now()
	p.boot()
	p.runBy("", p.current)
	p.t.Logf("bootstrap's kubelet was healthy %s after power came back", time.Since(begin).Round(time.Millisecond))
	got := p.countLog("this agent has the node's lock")
	assert.That(p.t, got == had+1, "bootstrap has had the lock %d times, want 1", got-had)
	words := fmt.Sprintf("using current (UID: %s): failed to sync", p.current.UID)
	p.AgentSays("Unknown", "SyncFailed", words)
	assert.NoError(p.t, p.Cluster.StartAPIServer(p.t.Context()))
	// The API has the node's pods still, and so the node runs them again, the
	// kubelet's among them.
	p.isRun(v1alpha1.RunModeSelfHosted, p.podReady(versionTwo), p.current)
	p.bootstrapWaits()
	p.Eventually("the workload runs again", func(ctx context.Context) error {
		again, err := p.work(ctx)
		return errors.Join(err, assert.Unless(again != p.worker, "the containers of before the power cut are there"))
	})
}
