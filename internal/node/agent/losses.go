package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// lossDelay is how long a healthy kubelet may take until its rejections of pods are in the API: a rejected pod is Failed there only
// after its containers have ended.
const lossDelay = 30 * time.Second

// observeStart requests the state of the node while the kubelet starts, which does not wait for it: in a trial as the base of the
// Lease, and at a restart to report what it costs. The guard never refuses a rollback or a restart after a crash, and does not see
// pods that are bound after its last look.
func (a *Agent) observeStart(ctx context.Context, cause trial.Cause) {
	if a.p.Nodes == nil || cause == trial.CauseBoot && a.state.Trial == nil {
		return
	}
	lease, before := a.kubelet.lease, make(chan []string, 1)
	if cause != trial.CauseBoot {
		a.kubelet.beforeCause = cause
		if a.kubelet.before == nil { // otherwise the kubelet was not healthy since, and both restarts have one report
			a.kubelet.before = before
		}
	}
	go func() {
		var active []string
		for _, p := range lease.readBase(ctx, a.p.Nodes).Pods {
			if isActive(p) {
				active = append(active, string(p.UID))
			}
		}
		before <- active
	}()
}

// reportLosses reports the pods that the restart has cost, once the kubelet is healthy.
func (a *Agent) reportLosses(ctx context.Context) {
	before, cause := a.kubelet.before, a.kubelet.beforeCause
	if before == nil {
		return
	}
	a.kubelet.before = nil
	go func() {
		active := <-before
		select {
		case <-ctx.Done():
			return
		case <-time.After(lossDelay):
		}
		s := a.p.Nodes.Current() // a trial watches the pods
		if !s.Complete {
			s = a.p.Nodes.Snapshot(ctx)
		}
		if lost := lostPods(s.Pods, active); len(lost) > 0 {
			a.reportEvent(a.o.Log, trial.Event{Warning: true, Reason: "PodsLost", Message: fmt.Sprintf(
				"the restart of the kubelet (%s) ended %d of %s: %s", cause, len(lost), printable.Count(len(active), "pod"), printable.Few(lost))})
		}
	}()
}
