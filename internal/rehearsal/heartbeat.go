package rehearsal

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

// watchedLeasePeriod is how often a Lease is renewed while the agent waits for that, as kubelets do at all times.
const watchedLeasePeriod = 10 * time.Second

// heartbeat is what the API server sees of a kubelet: the Node's condition Ready, and the Lease. It writes what changes, in the
// background, again and again until it is written. It goes on while the agent is silent: a kubelet does.
type heartbeat struct {
	fleet  *Fleet
	name   string
	period time.Duration // of the Lease; 0: it is renewed at each start, and while it is watched
	skew   time.Duration // of the clock

	mu           sync.Mutex
	ended        bool
	kubeletReady bool // it would say that it is Ready
	held         bool // it is kept from being Ready
	started      bool // a kubelet has been healthy
	ready        bool // as it was written last
	readyKnown   bool // what was written last
	leaseDue     bool // the Lease
	busy         bool
	watched      bool
	timer        *time.Timer
}

// kubeletHealthy says that the kubelet is healthy, anew if it was not, and whether the Node is Ready with it.
func (h *heartbeat) kubeletHealthy(anew, ready bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kubeletReady, h.started = ready, true
	h.leaseDue = h.leaseDue || anew
	h.scheduleRenewal()
	h.write()
}

// holdNotReady keeps the Node from being Ready, or does so no more.
func (h *heartbeat) holdNotReady(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = on
	h.write()
}

// watchLease says whether somebody waits for the Lease to be renewed.
func (h *heartbeat) watchLease(closely bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watched = closely
	h.scheduleRenewal()
}

// stop ends it.
func (h *heartbeat) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	if h.timer != nil {
		h.timer.Stop()
	}
}

// scheduleRenewal has the Lease renewed when its time comes. The caller holds mu.
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

// write writes what is to be written, unless that is being done. The caller holds mu.
func (h *heartbeat) write() {
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

// writeOnce writes what is to be written, and returns whether there is more.
func (h *heartbeat) writeOnce(ctx context.Context) bool {
	h.mu.Lock()
	due, ready, post := h.leaseDue, h.desiredReady(), !h.readyKnown || h.ready != h.desiredReady()
	h.leaseDue = false
	h.mu.Unlock()
	var err error
	if post {
		err = h.fleet.api.setReady(ctx, h.name, ready, time.Now().Add(h.skew))
	}
	if err == nil && due {
		err = h.fleet.api.renewLease(ctx, h.name)
	}
	if err != nil && ctx.Err() == nil {
		h.fleet.o.Log.Debug("a simulated kubelet cannot write; trying again", "node", h.name, "err", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		h.readyKnown, h.ready = true, ready
	} else {
		h.leaseDue = h.leaseDue || due
	}
	h.busy = !h.ended && ctx.Err() == nil && !apierrors.IsNotFound(err) && (err != nil || h.pending())
	return h.busy
}

// setReady writes the Node's condition Ready, as of a time.
func (a *api) setReady(ctx context.Context, node string, ready bool, at time.Time) error {
	release, err := a.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	status, reason := corev1.ConditionTrue, "KubeletReady"
	if !ready {
		status, reason = corev1.ConditionFalse, "KubeletNotReady"
	}
	now := at.UTC().Format(time.RFC3339)
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q,"reason":%q,"message":"simulated by evenkeel-hollow","lastHeartbeatTime":%q,"lastTransitionTime":%q}]}}`, status, reason, now, now)
	_, err = a.core.Nodes().Patch(ctx, node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	return err
}

// renewLease does what a kubelet does every ten seconds.
func (a *api) renewLease(ctx context.Context, node string) error {
	release, err := a.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	patch := fmt.Sprintf(`{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
	_, err = a.leases.Leases(corev1.NamespaceNodeLease).Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}
