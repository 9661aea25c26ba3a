// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/internal/controller/drain"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// The controller removes the startup taint and never sets it. It keeps no
// record: the taint, the creation time of the Node and the plans of rollouts
// say everything, so the next leader continues.

// StartupTaint configures the removal of the startup taint. Zero: the
// controller ignores all taints.
type StartupTaint struct {
	Key   string // with the effect NoSchedule; empty: there is none
	Times rollout.StartupTimes
}

// startupRights is what the controller knows about its permission to remove
// taints. Only the loop uses it.
type startupRights struct {
	permission
	retry time.Time // no attempt before this time
	said  string    // the last problem that was logged
}

// startupDue is a node whose startup taint is to be removed.
type startupDue struct {
	name  string
	uid   types.UID
	why   rollout.StartupRelease
	holds string // the rollout that has the node; empty: none
}

// setStartup keeps what a rollout's plan has for nodes with the startup taint.
func (f *cache) setStartup(name string, nodes []rollout.Node, states map[int]rollout.StartupState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, state := range states {
		if n := f.startup[nodes[i].Name]; n != nil {
			n.startup, n.startupOf = state, name
		}
	}
}

// trackStartup keeps the set of nodes with the startup taint. The caller holds
// mu.
func (f *cache) trackStartup(n *nodeEntry, observed *rollout.Node) {
	observed.Startup = fleet.HasStartupTaint(n.node, f.startupKey)
	switch {
	case !observed.Startup:
		delete(f.startup, n.node.Name)
	case f.startup[n.node.Name] == nil:
		f.startup[n.node.Name], n.startup, n.startupOf = n, rollout.StartupWaits, ""
		signal(f.changed)
	}
}

// dueStartup returns the nodes whose startup taint is to be removed, by name,
// and when to ask again if nothing changes; zero: not needed. Unless everything
// is known, only the deadline counts.
func (f *cache) dueStartup(times rollout.StartupTimes, complete bool) (due []startupDue, next time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	for name, n := range f.startup {
		s := rollout.StartupNode{Created: n.node.CreationTimestamp.Time, Selected: len(n.claims) > 0 || !complete}
		if complete && n.startupOf == n.holder {
			s.State = n.startup
		}

		why, again := s.Release(now, times)
		// Nodes could not report in an outage: the deadline is not over before
		// agents have come back.
		if back := f.outages.End(s.Created.Add(times.Deadline), 1, f.agent).Add(-1); complete && why == rollout.ReleasedAtDeadline &&
			now.Before(back) {
			why, again = rollout.StartupKeep, back
		}

		if why == rollout.StartupKeep {
			next = earliest(next, again)
			continue
		}

		due = append(due, startupDue{name, n.node.UID, why, n.holder})
	}

	slices.SortFunc(due, func(a, b startupDue) int { return cmp.Compare(a.name, b.name) })

	return due, next
}

// countStartup counts the nodes with the startup taint, and those that have it
// for longer than a time.
func (f *cache) countStartup(deadline time.Duration) (all, overdue int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.startup {
		if n.node.CreationTimestamp.Add(deadline).Before(f.now()) {
			overdue++
		}
	}

	return len(f.startup), overdue
}

// releaseStartup removes the startup taint from nodes that are to lose it, and
// returns when to call it again if nothing changes; zero: not needed. It
// reports a problem once, and tries again later.
func (c *Controller) releaseStartup(ctx context.Context, complete bool) time.Time {
	due, next := c.fleet.dueStartup(c.startupTaint.Times, complete)
	now, r := c.fleet.now(), &c.startupRights
	if len(due) == 0 || now.Before(r.retry) {
		if len(due) > 0 {
			next = earliest(next, r.retry)
		}

		return next
	}

	may, err := r.check(now, func() (bool, error) {
		return drain.May(ctx, c.kubernetes, authorizationv1.ResourceAttributes{Verb: "patch", Resource: "nodes"})
	})
	if err == nil && !may {
		err = errNoStartupPermission
	} else if err == nil {
		err = c.forEachParallel(ctx, len(due), func(i int) error { return c.removeStartupTaint(ctx, due[i]) })
	}

	switch {
	case ctx.Err() != nil:
		return next
	case err == nil:
		r.said = ""
		return next
	case apierrors.IsForbidden(err), errors.Is(err, errNoStartupPermission):
		r.retry = now.Add(permissionInterval)
	default:
		r.retry = now.Add(longestRetry)
	}

	if text := err.Error(); text != r.said {
		r.said = text
		c.log.Warn("cannot remove the startup taint; retrying", "taint", c.startupTaint.Key, "nodes", len(due), "err", err)
	}

	return earliest(next, r.retry)
}

var errNoStartupPermission = errors.New("the controller may not patch Nodes: grant it with kubectl apply -k config/startup-taint (or " +
	"helm upgrade with --set startupTaint.enabled=true), or start nodes without the taint")

// removeStartupTaint removes the startup taint from a Node, unless the Node was
// created again, and reports it.
func (c *Controller) removeStartupTaint(ctx context.Context, d startupDue) error {
	if err := c.stillLeads(); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout) // a write that has begun is finished
	defer cancel()
	removed := false
	stored, err := drain.PatchNode(ctx, c.kubernetes, d.name, func(node *corev1.Node) any {
		i := slices.IndexFunc(node.Spec.Taints, func(t corev1.Taint) bool { return fleet.IsStartupTaint(&t, c.startupTaint.Key) })
		if removed = i >= 0 && node.UID == d.uid; !removed {
			return nil
		}

		path := fmt.Sprintf("/spec/taints/%d", i)

		return []operation{{"test", "/metadata/uid", node.UID}, {"test", path, node.Spec.Taints[i]}, {Op: "remove", Path: path}}
	})
	switch {
	case err != nil:
		c.metrics.wrote("node", "error")
		return fmt.Errorf("remove the taint %s of Node %s: %w", c.startupTaint.Key, d.name, err)
	case stored == nil || stored.UID != d.uid: // deleted, or created again: the watch tells
		return nil
	case removed:
		c.metrics.wrote("node", "ok")
		c.metrics.released.WithLabelValues(string(d.why)).Inc()
		c.reportStartup(stored.DeepCopy(), d)
	}

	c.fleet.setNode(stored) // the next decision must know, even if the watch is late

	return nil
}

// reportStartup reports on the Node, and in the log, that and why the startup
// taint was removed.
func (c *Controller) reportStartup(node *corev1.Node, d startupDue) {
	kind, reason, message := corev1.EventTypeNormal, "StartupTaintRemoved", ""
	switch key := c.startupTaint.Key; d.why {
	case rollout.ReleasedConfigured:
		message = fmt.Sprintf("removed the taint %s: the node runs the configuration of rollout %s", key, d.holds)
	case rollout.ReleasedNothing:
		message = fmt.Sprintf("removed the taint %s: rollout %s has no configuration for the node now", key, d.holds)
	case rollout.ReleasedNotSelected:
		message = fmt.Sprintf("removed the taint %s: no rollout has selected the node within %s", key, c.startupTaint.Times.Grace)
	default:
		kind, reason = corev1.EventTypeWarning, "StartupDeadlineExceeded"
		message = fmt.Sprintf("removed the taint %s after %s, although the node has not run the configuration of its rollout: run kubectl "+
			"evenkeel node %s", key, c.startupTaint.Times.Deadline, d.name)
	}

	c.recorder.Eventf(node, nil, kind, reason, "StartupTaint", "%s", message)
	c.log.Info(message, "node", d.name, "event", reason)
}
