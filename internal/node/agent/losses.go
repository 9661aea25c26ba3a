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

// noteRestart begins to observe what a restart costs that the guard never refuses: a rollback, or a restart after a crash. The
// start of the kubelet does not wait for it.
func (a *Agent) noteRestart(ctx context.Context, cause trial.Cause) {
	if a.p.Nodes == nil || a.kubelet.before != nil || cause == trial.CauseChange || cause == trial.CauseBoot {
		return
	}
	before := make(chan []string, 1)
	a.kubelet.before, a.kubelet.beforeCause = before, cause
	go func() {
		var active []string
		for _, p := range a.p.Nodes.Snapshot(ctx).Pods {
			if isActive(p) {
				active = append(active, string(p.UID))
			}
		}
		before <- active
	}()
}

// reportLosses reports the pods that such a restart has cost, once the kubelet is healthy.
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
		if lost := lostPods(a.p.Nodes.Snapshot(ctx).Pods, active); len(lost) > 0 {
			a.reportEvent(a.o.Log, trial.Event{Warning: true, Reason: "PodsLost", Message: fmt.Sprintf(
				"the restart of the kubelet (%s) ended %d of %d pods: %s", cause, len(lost), len(active), printable.Few(lost))})
		}
	}()
}
