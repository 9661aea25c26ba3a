// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

const (
	// orphanAge is the age at which a NodeConfig without a Node is deleted:
	// agents may create it before the Node exists.
	orphanAge = time.Hour
	// maxNote is the maximum length of an Event's note, in characters.
	maxNote = 1024
)

// report sends an Event of a rollout, and logs it.
func (c *Controller) report(o *v1alpha1.NodeConfigRollout, e rollout.Event) {
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}

	c.recorder.Eventf(o, nil, kind, e.Reason, "Rollout", "%s", printable.Cut(e.Message, maxNote))
	c.log.Info(e.Message, "rollout", o.Name, "event", e.Reason)
}

// reportDeleted reports what the nodes of deleted rollouts run. It reports
// whether a rollout was deleted.
func (c *Controller) reportDeleted() bool {
	deleted, run := c.fleet.takeDeleted()
	for i, o := range deleted {
		c.metrics.forget(o.Name)
		c.notifier.Forget(o.Name)
		c.measurements.forget(o.UID)
		c.writeErrors.set(o.Name, nil)
		message := "the rollout was deleted; no node has a revision of it"
		if run[i] != "" {
			message = "the rollout was deleted; its nodes stay as they are: " + run[i]
		}

		c.report(o, rollout.Event{Reason: "RolloutDeleted", Message: message})
	}

	return len(deleted) > 0
}

// cleanUp deletes unused revisions, orphaned NodeConfigs and old start probes,
// and ends drains without a rollout.
func (c *Controller) cleanUp(ctx context.Context, now time.Time) {
	if !c.watches.complete() {
		return
	}

	err := errors.Join(c.deleteUnusedRevisions(ctx), c.deleteOrphans(ctx, now), c.releaseOrphans(ctx), c.removeOldProbes(ctx, now))
	if err != nil && ctx.Err() == nil {
		c.log.Warn("cannot clean up; retrying", "err", err)
	}
}

// deleteOrphans deletes NodeConfigs without a Node, unless a person wrote their
// source.
func (c *Controller) deleteOrphans(ctx context.Context, now time.Time) error {
	var errs []error
	for _, nc := range c.fleet.orphans(now) {
		if err := c.client.Get(ctx, types.NamespacedName{Name: nc.Name}, &corev1.Node{}); !apierrors.IsNotFound(err) {
			if err != nil {
				errs = append(errs, fmt.Errorf("read Node %s: %w", nc.Name, err))
			}

			continue
		}

		err := c.client.Delete(ctx, &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: nc.Name}},
			client.Preconditions{UID: &nc.UID, ResourceVersion: &nc.ResourceVersion})
		switch {
		case err == nil:
			c.metrics.wrote("nodeconfig", "ok")
			c.log.Info("NodeConfig deleted: it has no Node", "node", nc.Name)
			c.fleet.deleteConfig(nc.Name, nc.UID)
		case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
			c.metrics.wrote("nodeconfig", "error")
			errs = append(errs, advise("delete nodeconfigs.evenkeel.dev/v1alpha1", err))
		}
	}

	return errors.Join(errs...)
}
