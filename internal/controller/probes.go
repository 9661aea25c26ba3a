// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/internal/startprobe"
)

// A start probe has no state in the controller that matters: the pod is in the
// API, and its result in the node's observation. A leader that does not know
// whether a pod that is gone was Ready creates it again.

// probePermission is what the controller needs for start probes, as it was
// found last. Only the goroutine that runs loop uses it.
type probePermission struct {
	may, agents bool      // it may create pods; a pod of the agent runs
	asked       time.Time // zero: never
}

// mayProbe reports whether the controller can make start probes for a rollout;
// nil: the rollout needs none. It asks from time to time until the rollout is
// complete, and keeps the last answer then, so that a complete rollout's status
// is not written again.
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

// askForProbes finds out from time to time whether the controller can make
// start probes. An error keeps the answer before: no rollout and no rollback
// depends on it.
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

// passProbes begins the passes over start probes that are due, and deletes the
// pods of those that end without a result. Both run beside the loop: the
// results make the rollout due.
func (c *Controller) passProbes(ctx context.Context, in *planInput, result *rollout.Result) {
	for at, i := range slices.Concat(result.Probe, result.DropProbe) {
		n, drop := &in.nodes[i], at >= len(result.Probe)
		probe := startprobe.Probe{Namespace: c.settings.Namespace, Node: n.Name, For: in.Name, Key: in.ProbeKey(n),
			Image: in.Spec.Strategy.StartProbeImage}
		if drop {
			probe.Key = n.ProbeReport.Key
		}

		before, now := rollout.ProbeReport{}, c.fleet.now()
		if !c.fleet.beginPass(n.Name, func(n *nodeEntry) bool {
			if n.probe != nil && n.probe.Key == probe.Key {
				before = *n.probe
			}

			probe.Config = n.config

			return n.config != nil && !now.Before(n.probed.Add(startprobe.Interval(before, now)))
		}) {
			continue
		}

		c.passes.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, passTimeout)
			defer cancel()
			report := &before
			switch err := c.stillLeads(); {
			case err != nil:
			case drop:
				report, err = nil, startprobe.Remove(ctx, c.client, probe)
				c.log.Debug("start probe ends", "node", probe.Node, "err", err) // its age removes a pod that is left
			default:
				report = new(startprobe.Pass(ctx, c.client, probe, before, c.fleet.now()))
				c.log.Debug("start probe", "node", probe.Node, "result", report.Result, "message", report.Message)
			}

			c.fleet.endPass(probe.Node, func(n *nodeEntry) { n.probe, n.probed = report, c.fleet.now() })
		})
	}
}

// removeOldProbes deletes the pods of start probes that were left behind: by an
// earlier leader, or a command.
func (c *Controller) removeOldProbes(ctx context.Context, now time.Time) error {
	if c.startProbes.asked.IsZero() {
		c.askForProbes(ctx)
	}
	if !c.startProbes.may {
		return nil
	}

	err := startprobe.RemoveOld(ctx, c.client, c.settings.Namespace, now)
	c.startProbes.may = !apierrors.IsForbidden(err)
	if !c.startProbes.may {
		return nil
	}

	return err
}
