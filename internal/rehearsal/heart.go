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

// closeBeat is how often a Lease is renewed while the agent waits for that, as kubelets do at all times.
const closeBeat = 10 * time.Second

// heart is what the API server sees of a kubelet: the Node's condition Ready, and the Lease. It writes what changes, in the
// background, again and again until it is written. It goes on while the agent is silent: a kubelet does.
type heart struct {
	fleet  *Fleet
	name   string
	period time.Duration // of the Lease; 0: it is renewed at each start, and while it is watched
	skew   time.Duration // of the clock

	mu      sync.Mutex
	ended   bool
	kubelet bool // it would say that it is Ready
	held    bool // it is kept from being Ready
	began   bool // a kubelet has been healthy
	ready   bool // as it was written last
	known   bool // what was written last
	due     bool // the Lease
	busy    bool
	close   bool
	timer   *time.Timer
}

// beats says that the kubelet is healthy, anew if it was not, and whether the Node is Ready with it.
func (h *heart) beats(anew, ready bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kubelet, h.began = ready, true
	h.due = h.due || anew
	h.arm()
	h.write()
}

// hold keeps the Node from being Ready, or does so no more.
func (h *heart) hold(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = on
	h.write()
}

// watch says whether somebody waits for the Lease to be renewed.
func (h *heart) watch(closely bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.close = closely
	h.arm()
}

// stop ends it.
func (h *heart) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	if h.timer != nil {
		h.timer.Stop()
	}
}

// arm has the Lease renewed when its time comes. The caller holds mu.
func (h *heart) arm() {
	period := h.period
	if period == 0 && h.close {
		period = closeBeat
	}
	if h.ended || !h.began || period == 0 || h.timer != nil {
		return
	}
	h.timer = time.AfterFunc(period, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.timer = nil
		if h.period > 0 || h.close {
			h.due = true
			h.write()
			h.arm()
		}
	})
}

// write writes what is to be written, unless that is being done. The caller holds mu.
func (h *heart) write() {
	if h.ended || h.busy || !h.pending() {
		return
	}
	h.busy = true
	h.fleet.background(func(ctx context.Context) {
		for wait := 250 * time.Millisecond; h.once(ctx); wait = min(2*wait, 10*time.Second) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
		}
	})
}

func (h *heart) pending() bool {
	return h.due || (h.began || h.held) && (!h.known || h.ready != h.wanted())
}

func (h *heart) wanted() bool { return h.kubelet && !h.held }

// once writes what is to be written, and returns whether there is more.
func (h *heart) once(ctx context.Context) bool {
	h.mu.Lock()
	due, ready, post := h.due, h.wanted(), !h.known || h.ready != h.wanted()
	h.due = false
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
		h.known, h.ready = true, ready
	} else {
		h.due = h.due || due
	}
	h.busy = !h.ended && ctx.Err() == nil && !apierrors.IsNotFound(err) && (err != nil || h.pending())
	return h.busy
}

// setReady writes the Node's condition Ready, as of a time.
func (a *api) setReady(ctx context.Context, node string, ready bool, at time.Time) error {
	release, err := a.turn(ctx)
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
	release, err := a.turn(ctx)
	if err != nil {
		return err
	}
	defer release()
	patch := fmt.Sprintf(`{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
	_, err = a.leases.Leases(corev1.NamespaceNodeLease).Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}
