// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// noticeTime is how long before an announced reboot the node is cordoned.
const noticeTime = 2 * time.Second

// Reboot stops the kubelets and agents of nodes, makes their Nodes NotReady for
// a time, and starts them again. If the reboot is announced, each Node is
// cordoned before, and until its kubelet runs again. Reboot returns when all
// agents have reported.
func (f *Fleet) Reboot(ctx context.Context, announced bool, down time.Duration, names ...string) error {
	return forEachParallel(ctx, names, func(ctx context.Context, _ int, name string) {
		n := must.Get(f.node(name))
		if !announced {
			n.reboot(ctx, down)
			return
		}

		must.OK(f.api.cordon(ctx, name, true))
		must.OK(sleep(ctx, noticeTime))
		n.reboot(ctx, down)
		must.OK(f.api.cordon(ctx, name, false))
	})
}

func (n *node) reboot(ctx context.Context, down time.Duration) {
	n.mu.Lock()
	silent := n.silent // and stays so
	n.mu.Unlock()
	n.heartbeat.holdNotReady(true)
	n.silence()
	must.OK(sleep(ctx, down))
	n.mu.Lock()
	n.boots++
	n.mu.Unlock()
	if silent { // its kubelet starts without the agent
		n.heartbeat.kubeletHealthy(true, true)
	} else {
		must.OK(n.startAndWait(ctx))
	}

	n.heartbeat.holdNotReady(false)
}

// cordon sets spec.unschedulable of a Node.
func (a *api) cordon(ctx context.Context, node string, is bool) error {
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, is)
	_, err := a.core.Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
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
