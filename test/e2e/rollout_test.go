// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// The Deployment of testdata/web.yaml has this many pods, and its
// PodDisruptionBudget allows the disruption of one at a time.
const webPods, webBudget = 3, 2

// TestARolloutDrainsNodesWithinThePodDisruptionBudget has a scheduler and a
// controller manager of its own: pods that are evicted from one node run on the
// other.
func TestARolloutDrainsNodesWithinThePodDisruptionBudget(t *testing.T) {
	t.Parallel()
	a := newCluster(t, "drain-a", "--config-trial-duration=2s")
	b := nodeOn(t, a.Cluster, "drain-b", "--config-trial-duration=2s")
	assert.NoError(t, a.Cluster.StartControllers(t.Context()))
	for _, n := range []*node{a, b} {
		n.Kubelet = append(n.Kubelet, "--node-labels=pool=pair")
		n.Up()
	}

	a.Controlled()
	assert.NoError(t, a.ApplyConfig(t.Context(), "drain"))
	a.runWeb("drain-a", "drain-b")
	pods := a.watchPods()
	a.Push("pair", map[string]any{"maxPods": 105}, "--selector=pool=pair", "--steps=1,100%", "--max-unavailable=1")
	a.RolloutEnds("pair", 0, "2 of 2 nodes updated")

	// The state of the CPU and memory managers needs an empty node. All memory
	// that is reserved is the memory manager's, the eviction threshold included.
	a.patchStrategy("pair", `{"drain":"WhenBlocked"}`)
	a.Push("pair", map[string]any{
		"cpuManagerPolicy": "static", "memoryManagerPolicy": "Static",
		"systemReserved": map[string]string{"cpu": "200m", "memory": "100Mi"},
		"reservedMemory": []map[string]any{{"numaNode": 0, "limits": map[string]string{"memory": "150Mi"}}},
	})
	a.RolloutEnds("pair", 0, "2 of 2 nodes updated")
	for _, n := range []*node{a, b} {
		for file, policy := range map[string]string{"cpu_manager_state": "static", "memory_manager_state": "Static"} {
			n.policyOf(file, policy)
			n.Event("Warning", "StateMovedAside", "and was moved to "+filepath.Join(n.Node.Dir(), "kubelet", file)+".evenkeel-")
		}
	}

	if fewest, evicted := pods(); fewest < webBudget || evicted < webPods {
		t.Errorf("%d pods were evicted, and at times only %d of them were ready; want at least %d and %d", evicted, fewest, webPods, webBudget)
	}
}

// policyOf waits until a state file of the kubelet says that this policy wrote
// it.
func (n *node) policyOf(file, policy string) {
	n.t.Helper()
	n.Eventually(file+" is of policy "+policy, func(context.Context) error {
		raw := must.Get(os.ReadFile(filepath.Join(n.Node.Dir(), "kubelet", file)))
		return assert.Unless(strings.Contains(string(raw), fmt.Sprintf(`"policyName":%q`, policy)), "%s", raw)
	})
}

// runWeb starts a Deployment and its PodDisruptionBudget, with pods on each of
// the nodes.
func (n *node) runWeb(nodes ...string) {
	n.t.Helper()
	n.kubectl("create", "--filename=testdata/web.yaml")
	n.Eventually("the pods are ready on all nodes", func(ctx context.Context) error {
		ready, on := 0, map[string]bool{}
		for _, pod := range must.Get(n.Kube.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})).Items {
			if isReady(&pod) {
				ready++
				on[pod.Spec.NodeName] = true
			}
		}

		return assert.Unless(ready == webPods && on[nodes[0]] && on[nodes[1]], "%s on %v", printable.Count(ready, "ready pod"), on)
	})
}

func isReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && podutils.IsPodReady(pod)
}

// watchPods watches the pods of the Deployment, all of which are ready now. The
// function that it returns ends the watch, and returns the smallest number of
// pods that were ready at any time, and how many were deleted.
func (n *node) watchPods() func() (fewest, evicted int) {
	n.t.Helper()
	ctx, cancel := context.WithCancel(n.t.Context())
	n.t.Cleanup(cancel)
	kube := n.Kube.CoreV1().Pods(metav1.NamespaceDefault)
	list := assert.Value(kube.List(ctx, metav1.ListOptions{}))(n.t)
	ready := map[string]bool{}
	for _, pod := range list.Items {
		if isReady(&pod) {
			ready[pod.Name] = true
		}
	}

	events := assert.Value(kube.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion, TimeoutSeconds: new(int64(3600))}))(n.t)
	fewest, evicted, done := webPods, 0, make(chan struct{})
	go func() {
		defer close(done)
		for e := range events.ResultChan() {
			pod, ok := e.Object.(*corev1.Pod)
			switch {
			case !ok && ctx.Err() == nil:
				n.t.Errorf("the watch failed: %+v", e.Object)
			case !ok:
			case e.Type == watch.Deleted:
				delete(ready, pod.Name)
				evicted++
			case isReady(pod):
				ready[pod.Name] = true
			default:
				delete(ready, pod.Name)
			}

			fewest = min(fewest, len(ready))
		}

		assert.That(n.t, ctx.Err() != nil, "the watch ended")
	}()

	return func() (int, int) { cancel(); <-done; return fewest, evicted }
}

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
