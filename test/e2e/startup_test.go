// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// TestANewNodeIsConfiguredBeforeItsFirstPod has a scheduler of its own: a pod
// waits for a node, and needs what only a node with the rollout's configuration
// gives.
func TestANewNodeIsConfiguredBeforeItsFirstPod(t *testing.T) {
	t.Parallel()
	n := newCluster(t, "joins", "--config-trial-duration=2s")
	ctx := t.Context()
	assert.NoError(t, n.Cluster.StartControllers(ctx))
	n.Controlled()
	assert.NoError(t, n.ApplyConfig(ctx, "startup-taint"))
	n.kubectl("create", "--filename=testdata/new-nodes.yaml")
	whole := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("16Mi")}
	waiting := localcluster.SleepingPod("waiting")
	waiting.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: whole, Limits: whole}
	waiting = assert.Value(n.Kube.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, waiting, metav1.CreateOptions{}))(t)

	n.Kubelet = append(n.Kubelet, "--node-labels=pool=new", "--register-with-taints="+v1alpha1.TaintUnconfigured+":NoSchedule")
	n.Up()
	n.PodRuns(waiting.Name)
	raw := assert.Value(os.ReadFile(filepath.Join(n.Node.Dir(), "kubelet", "cpu_manager_state")))(t)
	var state struct {
		PolicyName string
		Entries    map[string]map[string]string
	}
	assert.NoError(t, json.Unmarshal(raw, &state))
	assert.That(t, state.PolicyName == "static" && state.Entries[string(waiting.UID)]["sleep"] != "",
		"the first pod has no CPUs of its own: %s", raw)

	node := assert.Value(n.Object(ctx))(t)
	if slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintUnconfigured }) {
		t.Errorf("a pod was bound to a node with the startup taint: %+v", node.Spec.Taints)
	}

	n.Eventually("there is an Event about the taint", func(ctx context.Context) error {
		events, err := n.Events(ctx, "StartupTaintRemoved")
		const removed = "removed the taint evenkeel.dev/unconfigured: the node runs the configuration of rollout joins"

		return errors.Join(err, assert.Unless(len(events) == 1 && events[0].Message == removed, "the Events are %+v", events))
	})
}
