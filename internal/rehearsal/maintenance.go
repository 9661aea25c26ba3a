package rehearsal

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// noticeTime is how long before a reboot the node is cordoned.
const noticeTime = time.Second

// Cordon sets spec.unschedulable of a Node, or removes it.
func (f *Fleet) Cordon(ctx context.Context, name string, on bool) error {
	return f.patchNode(ctx, name, fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, on))
}

// Maintain sets the Node's condition MaintenanceInProgress to True or False, as an administrator's tool does.
func (f *Fleet) Maintain(ctx context.Context, name string, on bool) error {
	status := corev1.ConditionFalse
	if on {
		status = corev1.ConditionTrue
	}
	now := time.Now().UTC().Format(time.RFC3339)
	return f.patchNode(ctx, name, fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q,"reason":"Rehearsal","message":"simulated by evenkeel-hollow","lastTransitionTime":%q}]}}`,
		corev1.NodeMaintenanceInProgress, status, now), "status")
}

func (f *Fleet) patchNode(ctx context.Context, name, patch string, subresources ...string) error {
	if _, err := f.node(name); err != nil {
		return err
	}
	if _, err := f.api.core.Nodes().Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...); err != nil {
		return fmt.Errorf("patch Node %s: %w", name, err)
	}
	return nil
}

// Reboot stops a node's kubelet and agent, makes the Node NotReady for a time, and starts them again. An announced reboot begins with a
// cordon, which it removes at the end. Reboot returns when the node is back.
func (f *Fleet) Reboot(ctx context.Context, name string, announced bool, down time.Duration) error {
	n, err := f.node(name)
	if err != nil {
		return err
	}
	if announced {
		if err := f.Cordon(ctx, name, true); err != nil {
			return err
		}
		if err := sleep(ctx, noticeTime); err != nil {
			return err
		}
	}
	n.heartbeat.holdNotReady(true)
	n.silence()
	if err := sleep(ctx, down); err != nil {
		return err
	}
	n.mu.Lock()
	n.boots++
	n.mu.Unlock()
	if err := n.startAndWait(ctx); err != nil {
		return err
	}
	n.heartbeat.holdNotReady(false)
	if announced {
		return f.Cordon(ctx, name, false)
	}
	return nil
}

// sleep waits for a time, unless ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
