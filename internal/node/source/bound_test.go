// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestBoundReadsTheNodeAndAllItsPodsWhole(t *testing.T) {
	node := newName("node")
	p := newProxy(t, node)
	w := NewNodeWatch(newClient(t, p.Kubeconfig), node)
	n, pods, err := w.Bound(t.Context())
	assert.That(t, n == nil && len(pods) == 0 && err == nil, "without a Node: %v, %d pods, %v", n, len(pods), err)
	createNode(t, node)
	asAdmin(t, request{verb: "PATCH", gv: coreV1, resource: "nodes", name: node, contentType: string(types.MergePatchType), body: map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"zone": "a"}}, "spec": map[string]any{"unschedulable": true}}})
	const many = 2*podsPerPage - 1
	for range many {
		createPod(t, node, newName("pod"))
	}

	asAdmin(t, request{verb: "POST", gv: coreV1, namespace: "default", resource: "pods", body: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": newName("pod"), "annotations": map[string]any{
			corev1.MirrorPodAnnotationKey: "static-uid", "example.com/large": strings.Repeat("x", 1000)}},
		"spec": map[string]any{"nodeName": node, "automountServiceAccountToken": false, "nodeSelector": map[string]any{"zone": "a"},
			"containers": []any{map[string]any{"name": "a", "image": "b", "resources": map[string]any{"requests": map[string]any{"cpu": "100m"}}}}},
	}})
	n, pods, err = w.Bound(t.Context())
	assert.NoError(t, err)
	assert.That(t, n.Labels["zone"] == "a" && n.Spec.Unschedulable && len(pods) == many+1, "node %+v with %d pods", n, len(pods))
	mirrors := 0
	for _, p := range pods {
		assert.Must(t, p.ManagedFields == nil && p.UID != "", "pod %+v", p)
		if p.Annotations == nil {
			continue
		}

		mirrors++
		if len(p.Annotations) != 1 || p.Annotations[corev1.MirrorPodAnnotationKey] != "static-uid" || p.Spec.NodeSelector["zone"] != "a" ||
			p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() != 100 {
			t.Errorf("mirror pod %+v", p)
		}
	}

	assert.That(t, mirrors == 1, "%d mirror pods", mirrors)
}

func TestBoundSaysWhyThePodsCannotBeRead(t *testing.T) {
	node := newName("node")
	p := newProxy(t, node)
	w := NewNodeWatch(newClient(t, p.Kubeconfig), node)
	stranger := NewNodeWatch(w.client, "another-node")
	if _, _, err := stranger.Bound(t.Context()); err == nil || !strings.Contains(err.Error(), "the pods of node another-node") || !strings.Contains(err.Error(), "check the authorizers") {
		t.Errorf("of another node: %v", err)
	}

	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	_, _, err := w.Bound(ctx)
	assert.That(t, err != nil, "no error after the deadline")
}
