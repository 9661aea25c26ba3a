// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// watchedLeasePeriod is how often a Lease is renewed while the agent waits for
// a renewal. Real kubelets always use 10 s.
const watchedLeasePeriod = 10 * time.Second

// heartbeat writes the Node's condition Ready and the Lease, as a kubelet does.
// It writes changes in the background and retries until they are written. It
// continues while the agent is silent, because a kubelet does.
type heartbeat struct {
	fleet  *Fleet
	name   string
	period time.Duration // of the Lease; 0 means at each start, and while it is watched

	mu           sync.Mutex
	ended        bool
	kubeletReady bool // the kubelet reports that it is Ready
	held         bool // a reboot forces the Node to be not Ready
	started      bool // a kubelet was healthy once
	ready        bool // the value written last
	readyKnown   bool // ready is known
	leaseDue     bool // to renew the Lease
	busy         bool
	watched      bool
	timer        *time.Timer
	shown
}

// kubeletHealthy is called when the kubelet is healthy. anew says that it was
// not healthy before, ready what it reports.
func (h *heartbeat) kubeletHealthy(anew, ready bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kubeletReady, h.started = ready, true
	if !h.up {
		h.up = true
		h.kubelets++
	}

	h.leaseDue = h.leaseDue || anew
	h.scheduleRenewal()
	h.write()
}

// kubeletEnded is called when the kubelet has ended.
func (h *heartbeat) kubeletEnded() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watched, h.up, h.renewed, h.based = false, false, false, false
}

// holdNotReady forces the Node to be not Ready, or ends that.
func (h *heartbeat) holdNotReady(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = on
	h.write()
}

// watchLease says whether the agent waits for a renewal of the Lease.
func (h *heartbeat) watchLease(closely bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watched = closely
	h.scheduleRenewal()
}

// stop ends all writes.
func (h *heartbeat) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	if h.timer != nil {
		h.timer.Stop()
	}
}

// scheduleRenewal starts the timer for the next renewal of the Lease. The
// caller holds mu.
func (h *heartbeat) scheduleRenewal() {
	period := h.period
	if period == 0 && h.watched {
		period = watchedLeasePeriod
	}
	if h.ended || !h.started || period == 0 || h.timer != nil {
		return
	}

	h.timer = time.AfterFunc(period, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.timer = nil
		if h.period > 0 || h.watched {
			h.leaseDue = true
			h.write()
			h.scheduleRenewal()
		}
	})
}

// write starts writing pending changes, unless that is in progress. The caller
// holds mu.
func (h *heartbeat) write() {
	h.unseen = h.unseen || !h.readyKnown || h.ready != h.desiredReady()
	if h.ended || h.busy || !h.pending() {
		return
	}

	h.busy = true
	h.fleet.background(func(ctx context.Context) {
		for wait := 250 * time.Millisecond; h.writeOnce(ctx); wait = min(2*wait, 10*time.Second) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
		}
	})
}

func (h *heartbeat) pending() bool {
	return h.leaseDue || (h.started || h.held) && (!h.readyKnown || h.ready != h.desiredReady())
}

func (h *heartbeat) desiredReady() bool { return h.kubeletReady && !h.held }

// writeOnce writes the pending changes, and reports whether more are pending.
func (h *heartbeat) writeOnce(ctx context.Context) bool {
	h.mu.Lock()
	due, ready, post := h.leaseDue, h.desiredReady(), !h.readyKnown || h.ready != h.desiredReady()
	up, kubelet := h.up, h.kubelets
	h.leaseDue = false
	h.mu.Unlock()
	err := h.send(ctx, post, ready, due)
	if err != nil && ctx.Err() == nil {
		h.fleet.o.Log.Debug("cannot write a simulated heartbeat; retrying", "node", h.name, "err", err)
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		h.readyKnown, h.ready = true, ready
		h.renewed = h.renewed || due && up && h.up && kubelet == h.kubelets
	} else {
		h.leaseDue = h.leaseDue || due
	}

	h.busy = !h.ended && ctx.Err() == nil && !apierrors.IsNotFound(err) && (err != nil || h.pending())

	return h.busy
}

// send writes the condition Ready if post is set, and renews the Lease if due
// is set.
func (h *heartbeat) send(ctx context.Context, post, ready, due bool) error {
	api := h.fleet.api
	select {
	case api.slots <- struct{}{}:
		defer func() { <-api.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}

	if post {
		if err := api.setReady(ctx, h.name, ready); err != nil {
			return err
		}
	}

	if due {
		return api.renewLease(ctx, h.name)
	}

	return nil
}

// setReady writes the Node's condition Ready.
func (a *api) setReady(ctx context.Context, node string, ready bool) error {
	status, reason := corev1.ConditionTrue, "KubeletReady"
	if !ready {
		status, reason = corev1.ConditionFalse, "KubeletNotReady"
	}

	now := time.Now().UTC().Format(time.RFC3339)
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q,"reason":%q,`+
		`"message":"simulated by evenkeel-hollow","lastHeartbeatTime":%q,"lastTransitionTime":%q}]}}`, status, reason, now, now)
	_, err := a.core.Nodes().Patch(ctx, node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")

	return err
}

// renewLease sets the renewTime of a Node's Lease.
func (a *api) renewLease(ctx context.Context, node string) error {
	patch := fmt.Sprintf(`{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
	_, err := a.leases.Leases(corev1.NamespaceNodeLease).Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}
