// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/internal/startprobe"
)

// A start probe has no state in the controller that matters: the pod is in the API, and its result in the node's observation. A leader that
// does not know whether a pod that is gone was Ready creates it again.

// removalTime is how long pods are still looked for after the last rollout that needed start probes.
const removalTime = 20 * time.Minute

// probePermission is what the controller needs for start probes, as it was found last. Only the goroutine that runs loop uses it.
type probePermission struct {
	may, agents bool      // it may create pods; a pod of the agent runs
	asked       time.Time // zero: never
}

// mayProbe reports whether the controller can make start probes for a rollout; nil: the rollout needs none. It asks from time to time
// until the rollout is complete, and keeps the last answer then, so that a complete rollout's status is not written again.
func (c *Controller) mayProbe(ctx context.Context, o *v1alpha1.NodeConfigRollout) *bool {
	s, st := &o.Spec.Strategy, &o.Status
	if s.StartProbe == v1alpha1.StartProbeNever {
		return nil
	}
	done := st.CurrentRevision != nil && st.CurrentRevision.Number == st.Target() && st.ObservedGeneration == o.Generation
	if done && st.Controller != nil {
		return st.Controller.StartProbe
	}
	c.askForProbes(ctx)
	return new(c.startProbes.may && (c.startProbes.agents || s.StartProbeImage != ""))
}

// askForProbes finds out from time to time whether the controller can make start probes. An error keeps the answer before: no rollout and
// no rollback depends on it.
func (c *Controller) askForProbes(ctx context.Context) {
	now, was := c.fleet.now(), c.startProbes
	if !was.asked.IsZero() && now.Before(was.asked.Add(permissionInterval)) {
		return
	}
	c.startProbes.asked = now
	may, err := c.may(ctx, authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods", Namespace: c.settings.Namespace})
	image := ""
	if err == nil && may {
		image, err = startprobe.AgentImage(ctx, c.client, "")
	}
	if err != nil {
		c.log.Warn("cannot find out whether start probes are possible", "err", err)
		return
	}
	if !may && (was.may || was.asked.IsZero()) {
		c.log.Info("no start probes: the controller may not create pods", "namespace", c.settings.Namespace)
	}
	c.startProbes.may, c.startProbes.agents = may, image != ""
}

// passProbes begins the passes over start probes that are due. They run beside the loop: their results make the rollout due.
func (c *Controller) passProbes(ctx context.Context, in *planInput, result *rollout.Result) {
	for _, i := range result.Probe {
		n := &in.nodes[i]
		config, before, due := c.fleet.beginProbe(n.Name, in.ProbeKey(n))
		if !due {
			continue
		}
		probe := startprobe.Probe{Namespace: c.settings.Namespace, Node: n.Name, Config: config, For: in.Name, Key: in.ProbeKey(n),
			Image: in.Spec.Strategy.StartProbeImage}
		c.passes.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, passTimeout)
			defer cancel()
			report := before
			if err := c.stillLeads(); err == nil {
				report = startprobe.Pass(ctx, c.client, probe, before, c.fleet.now())
			}
			c.log.Debug("start probe", "node", probe.Node, "result", report.Result, "message", report.Message)
			c.fleet.endPass(probe.Node, func(n *nodeEntry) { n.probe, n.probed = &report, c.fleet.now() })
		})
	}
}

// removeOldProbes deletes the pods of start probes that were left behind: once for those of an earlier leader, and while rollouts need
// start probes.
func (c *Controller) removeOldProbes(ctx context.Context, now time.Time) error {
	if c.startProbes.asked.IsZero() {
		c.askForProbes(ctx)
	}
	if !c.startProbes.may || now.Sub(c.startProbes.asked) > removalTime {
		return nil
	}
	return startprobe.RemoveOld(ctx, c.client, c.settings.Namespace, now)
}
