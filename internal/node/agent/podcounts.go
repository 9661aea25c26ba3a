// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/podguard"
	"github.com/evenkeel/evenkeel/internal/node/source"
)

// podCounts are numbers of active pods for the status.
type podCounts struct {
	workload             int64 // neither static nor of a DaemonSet
	probed, probedStatic int64 // Ready and with a readiness or startup probe: all, and the static ones
}

// probeTime is how long after a start of the kubelet pods can be unready because of it, if their probes have usual periods. Until
// then the number of Ready pods with probes does not decrease.
const probeTime = 2 * time.Minute

func countPodsForStatus(pods []source.Pod) *podCounts {
	c := &podCounts{}
	_, c.workload = countActive(pods)
	for _, p := range pods {
		if p.Probed && p.Ready && !p.Deleting && isActive(p) {
			c.probed++
			if p.Static {
				c.probedStatic++
			}
		}
	}
	return c
}

// unreadyOnRestart returns the number of pods that a start of the kubelet makes unready until their next probe.
func (c *podCounts) unreadyOnRestart(config component.Effective, minor int) int64 {
	if podguard.ResetsReadiness(config, minor) {
		return c.probed
	}
	return c.probedStatic
}

// recountInterval is the time between two counts of pods while nothing else counts them.
const recountInterval = time.Hour

// recountPods counts the pods from time to time where a restart makes more pods unready than the static ones: on an idle node
// the last count may be from the start of the machine, when no pods ran.
func (a *Agent) recountPods(ctx context.Context) {
	if a.p.Nodes == nil || time.Now().Before(a.node.recount) {
		return
	}
	first := a.node.recount.IsZero()
	a.node.recount = time.Now().Add(wait.Jitter(recountInterval, 0.2))
	if first || a.node.watching || a.kubelet.process == nil || !podguard.ResetsReadiness(a.kubelet.verdict.Effective, a.nextMinor(ctx)) {
		return
	}
	begin(ctx, a.quiet, func(ctx context.Context) source.NodeState {
		ctx, cancel := context.WithTimeout(ctx, max(a.o.SyncTimeout, countTimeout))
		defer cancel()
		s := a.p.Nodes.Snapshot(ctx)
		if s.Reachable {
			a.node.view.set(s)
		}
		return s
	})
}
