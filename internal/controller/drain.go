// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/evenkeel/evenkeel/internal/controller/drain"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// A drain has no state in the controller: the Node's taint says that the node
// is being drained, by which rollout, and since when. The status of the rollout
// is written before the taint, so no node has the taint without a status that
// says so. The next leader reads the taints and continues.

// passTimeout is for one eviction pass.
const passTimeout = 30 * time.Second

// drain writes the taints that a plan decided, and begins the eviction passes
// that are due. An eviction pass runs beside the loop: its result makes the
// rollout due.
func (c *Controller) drain(ctx context.Context, in *planInput, result *rollout.Result) error {
	err := c.forEachParallel(ctx, len(result.Taints), func(i int) error {
		taint := &result.Taints[i]
		return c.writeTaint(ctx, in.nodes[taint.Node].Name, taint.Drain)
	})
	if err != nil {
		return err
	}

	if result.HandOver != "" && c.election != nil {
		c.log.Info("handing over to another controller: the node of this one is being drained", "node", result.HandOver)
		return c.election.stop(fmt.Errorf("node %s, on which this controller runs, is being drained", result.HandOver))
	}

	options := *in.Spec.Strategy.DrainOptions
	for _, i := range result.Evict {
		name := in.nodes[i].Name
		if !c.fleet.beginPass(name, func(*nodeEntry) bool { return true }) {
			continue
		}

		began := c.fleet.now()
		c.passes.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, passTimeout)
			defer cancel()
			var report rollout.DrainReport
			if err := c.stillLeads(); err != nil {
				report.Waiting = err.Error()
			} else {
				report = drain.Pass(ctx, c.kubernetes, name, options)
			}

			report.Time = began
			c.log.Debug("eviction pass", "node", name, "left", report.Left, "waiting", report.Waiting, "refused", report.Refused)
			c.fleet.endPass(name, func(n *nodeEntry) { n.drainReport = &report })
		})
	}

	return nil
}

// writeTaint writes the record of a drain on a Node, or removes it.
func (c *Controller) writeTaint(ctx context.Context, name string, d rollout.Drain) error {
	if err := c.stillLeads(); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout) // a write that has begun is finished
	defer cancel()
	node, err := drain.Write(ctx, c.kubernetes, name, d)
	if err != nil {
		c.metrics.wrote("node", "error")
		return advise("patch nodes/v1", err)
	}

	c.metrics.wrote("node", "ok")
	if node != nil { // the next plan must know the taint, even if the watch is late
		c.fleet.setNode(node)
	}

	return nil
}

// stillLeads returns an error if this controller does not lead any more.
func (c *Controller) stillLeads() error {
	if c.election == nil {
		return nil
	}

	_, err := c.election.leads()

	return err
}

// releaseOrphans removes the taints of drains whose rollout does not exist any
// more or does not select the node.
func (c *Controller) releaseOrphans(ctx context.Context) error {
	var errs []error
	for _, name := range c.fleet.orphanedDrains() {
		err := c.writeTaint(ctx, name, rollout.Drain{})
		if err == nil {
			c.log.Info("removed the taint of a drain whose rollout does not have the node any more", "node", name)
		}

		errs = append(errs, err)
	}

	return errors.Join(errs...)
}
