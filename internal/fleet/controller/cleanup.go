package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/fleet/rollout"
)

const (
	// orphanAge is how old a NodeConfig without a Node must be to be deleted: agents may create it before the Node.
	orphanAge = time.Hour
	// maxNote is how many characters an Event can hold.
	maxNote = 1024
)

// tell makes Events of a rollout.
func (c *Controller) tell(o *v1alpha1.NodeConfigRollout, events []rollout.Event) {
	for _, e := range events {
		kind := corev1.EventTypeNormal
		if e.Warning {
			kind = corev1.EventTypeWarning
		}
		c.recorder.Eventf(o, nil, kind, e.Reason, "Rollout", "%s", policy.Cut(e.Message, maxNote))
		c.log.Info(e.Message, "rollout", o.Name, "event", e.Reason)
	}
}

// bury says of deleted rollouts what becomes of their nodes: nothing.
func (c *Controller) bury() {
	c.fleet.mu.Lock()
	deleted := c.fleet.deleted
	c.fleet.deleted = nil
	left := map[string]map[int64]int{}
	for _, o := range deleted {
		left[o.Name] = map[int64]int{}
	}
	if len(deleted) > 0 {
		for _, m := range c.fleet.nodes {
			if m.config == nil || m.config.Spec.ConfigSource == nil || m.config.Spec.ConfigSource.RolloutRef == nil {
				continue
			}
			if r := m.config.Spec.ConfigSource.RolloutRef; left[r.Name] != nil {
				left[r.Name][r.Revision]++
			}
		}
	}
	c.fleet.mu.Unlock()
	for _, o := range deleted {
		c.metrics.forget(o.Name)
		c.failing.note(o.Name, nil)
		message := "the rollout was deleted; no node has a revision of it"
		if counts := left[o.Name]; len(counts) > 0 {
			var parts []string
			for _, revision := range slices.Sorted(maps.Keys(counts)) {
				keep := "nodes keep"
				if counts[revision] == 1 {
					keep = "node keeps"
				}
				parts = append(parts, fmt.Sprintf("%d %s revision %d", counts[revision], keep, revision))
			}
			message = "the rollout was deleted; its nodes stay as they are: " + strings.Join(parts, ", ")
		}
		c.tell(o, []rollout.Event{{Reason: "RolloutDeleted", Message: message}})
	}
}

// sweep collects what nobody needs any more.
func (c *Controller) sweep(ctx context.Context, now time.Time) {
	if !c.sight.whole() {
		return
	}
	if err := errors.Join(c.collect(ctx), c.orphans(ctx, now)); err != nil && ctx.Err() == nil {
		c.log.Warn("cannot clean up; it is tried again", "err", err)
	}
}

// orphans deletes NodeConfigs that have no Node and no source that a person wrote.
func (c *Controller) orphans(ctx context.Context, now time.Time) error {
	var all []*v1alpha1.NodeConfig
	c.fleet.mu.Lock()
	for _, m := range c.fleet.nodes {
		if m.node == nil && orphaned(m.config, now) {
			all = append(all, m.config)
		}
	}
	c.fleet.mu.Unlock()
	var errs []error
	for _, nc := range all {
		if err := c.client.Get(ctx, types.NamespacedName{Name: nc.Name}, &corev1.Node{}); !apierrors.IsNotFound(err) {
			if err != nil {
				errs = append(errs, fmt.Errorf("see whether Node %s is gone: %w", nc.Name, err))
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

func orphaned(nc *v1alpha1.NodeConfig, now time.Time) bool {
	s := nc.Spec.ConfigSource
	return now.Sub(nc.CreationTimestamp.Time) > orphanAge && (s == nil || s.RolloutRef != nil)
}
