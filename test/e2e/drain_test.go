// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/nodetest"
)

// The Deployment of the test has this many pods, and its PodDisruptionBudget
// allows the disruption of one at a time.
const webPods, webBudget = 3, 2

var webLabels = map[string]string{"app": "web"}

// pair is two nodes, and a rollout for them that a person steers with `kubectl
// evenkeel`.
type pair struct {
	t     *testing.T
	nodes [2]*node
}

func (p *pair) push(fields map[string]any, flags ...string) {
	p.t.Helper()
	p.nodes[0].Push("pair", fields, flags...)
	p.nodes[0].RolloutEnds("pair", 0, "2 of 2 nodes updated")
}

// TestARolloutDrainsNodesWithinThePodDisruptionBudget has a scheduler and a
// controller manager of its own: pods that are evicted from one node run on the
// other.
func TestARolloutDrainsNodesWithinThePodDisruptionBudget(t *testing.T) {
	t.Parallel()
	a := newCluster(t, "drain-a", "--config-trial-duration=2s")
	p := &pair{t: t, nodes: [2]*node{a, nodeOn(t, a.Cluster, "drain-b", "--config-trial-duration=2s")}}
	assert.NoError(t, a.Cluster.StartControllers(t.Context()))
	for _, n := range p.nodes {
		n.Kubelet = append(n.Kubelet, "--node-labels=pool=pair")
		n.Up()
	}

	a.Controlled()
	assert.NoError(t, a.ApplyConfig(t.Context(), "drain"))
	p.runWeb()
	pods, nodes := p.watchPods(), p.watchNodes()

	p.push(map[string]any{"maxPods": 105}, "--selector=pool=pair", "--steps=1,100%", "--max-unavailable=1")
	if drained := nodes(); len(drained) > 0 {
		t.Errorf("nodes were drained without a reason: %q", drained)
	}

	// The CPU manager's state needs an empty node.
	nodes = p.watchNodes()
	p.drains(v1alpha1.DrainWhenBlocked)
	p.push(map[string]any{"cpuManagerPolicy": "static", "systemReserved": map[string]string{"cpu": "200m"}})
	p.drained(nodes)
	for _, n := range p.nodes {
		n.policyOf("cpu_manager_state", "static")
	}

	// Nothing refuses this change.
	nodes = p.watchNodes()
	p.drains(v1alpha1.DrainAlways)
	p.push(map[string]any{"maxPods": 106, "cpuManagerPolicy": "static", "systemReserved": map[string]string{"cpu": "200m"}})
	p.drained(nodes)
	if fewest, evicted := pods(); fewest < webBudget || evicted < 2*webPods {
		t.Errorf("%d pods were evicted, and at times only %d of them were ready; want at least %d and %d", evicted, fewest, 2*webPods, webBudget)
	}
}

// runWeb starts a Deployment and its PodDisruptionBudget, with pods on both
// nodes.
func (p *pair) runWeb() {
	p.t.Helper()
	ctx, kube := p.t.Context(), p.nodes[0].Kube
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "web"}
	selector := &metav1.LabelSelector{MatchLabels: webLabels}
	deployment := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(webPods)), Selector: selector,
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: webLabels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "sleep", Image: localcluster.SleepImage,
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(nodetest.PodCPU, resource.DecimalSI)}},
		}}}},
	}}
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: meta, Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector, MinAvailable: new(intstr.FromInt32(webBudget))}}
	assert.NoError(p.t, assert.Err(kube.AppsV1().Deployments(meta.Namespace).Create(ctx, deployment, metav1.CreateOptions{})))
	assert.NoError(p.t, assert.Err(kube.PolicyV1().PodDisruptionBudgets(meta.Namespace).Create(ctx, budget, metav1.CreateOptions{})))
	p.nodes[0].Eventually("the pods are ready on both nodes", func(ctx context.Context) error {
		list, err := kube.CoreV1().Pods(meta.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}

		on := map[string]int{}
		for i := range list.Items {
			if isReady(&list.Items[i]) {
				on[list.Items[i].Spec.NodeName]++
			}
		}

		if len(on) != len(p.nodes) || on[p.nodes[0].Node.Name()]+on[p.nodes[1].Node.Name()] != webPods {
			return fmt.Errorf("of %s ready are %v", printable.Count(len(list.Items), "pod"), on)
		}

		return nil
	})
}

// drains sets whether and when the rollout drains nodes, and waits until the
// controller knows.
func (p *pair) drains(mode v1alpha1.DrainMode) {
	p.t.Helper()
	const path = "/apis/evenkeel.dev/v1alpha1/nodeconfigrollouts/pair"
	api := p.nodes[0].Kube.CoreV1().RESTClient()
	patch := fmt.Appendf(nil, `{"spec":{"strategy":{"drain":%q}}}`, mode)
	assert.NoError(p.t, api.Patch(types.MergePatchType).AbsPath(path).Body(patch).Do(p.t.Context()).Error())
	p.nodes[0].Eventually("the controller has observed the change", func(ctx context.Context) error {
		raw, err := api.Get().AbsPath(path).Do(ctx).Raw()
		if err != nil {
			return err
		}

		var r v1alpha1.NodeConfigRollout
		if err := json.Unmarshal(raw, &r); err != nil {
			return err
		}
		if r.Status.ObservedGeneration != r.Generation || r.Status.Phase != v1alpha1.RolloutComplete {
			return fmt.Errorf("generation %d of %d, %s: %s", r.Status.ObservedGeneration, r.Generation, r.Status.Phase, r.Status.Message)
		}

		return nil
	})
}

// isReady reports whether a pod counts for its PodDisruptionBudget.
func isReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// watchPods watches the pods of the Deployment, all of which are ready now. The
// function that it returns ends the watch, and returns the smallest number of
// ready pods at a time, and how many pods were evicted.
func (p *pair) watchPods() func() (fewest, evicted int) {
	p.t.Helper()
	kube := p.nodes[0].Kube.CoreV1().Pods(metav1.NamespaceDefault)
	list := assert.Value(kube.List(p.t.Context(), metav1.ListOptions{}))(p.t)
	ready := map[string]bool{}
	for i := range list.Items {
		ready[list.Items[i].Name] = isReady(&list.Items[i])
	}

	fewest, evicted := webPods, 0
	end := p.follow(kube.Watch, list.ResourceVersion, func(e watch.Event) {
		pod, ok := e.Object.(*corev1.Pod)
		if !ok {
			return
		}

		if e.Type == watch.Deleted {
			delete(ready, pod.Name)
			evicted++
		} else {
			ready[pod.Name] = isReady(pod)
		}

		now := 0
		for _, is := range ready {
			if is {
				now++
			}
		}

		fewest = min(fewest, now)
	})

	return func() (int, int) { end(); return fewest, evicted }
}

// watchNodes watches the nodes, none of which may be cordoned. The function
// that it returns ends the watch, and returns which nodes were drained.
func (p *pair) watchNodes() func() []string {
	p.t.Helper()
	kube := p.nodes[0].Kube.CoreV1().Nodes()
	list := assert.Value(kube.List(p.t.Context(), metav1.ListOptions{}))(p.t)
	var drained []string
	end := p.follow(kube.Watch, list.ResourceVersion, func(e watch.Event) {
		node, ok := e.Object.(*corev1.Node)
		if !ok {
			return
		}

		assert.That(p.t, !node.Spec.Unschedulable, "node %s was cordoned", node.Name)
		if isDraining(node) && !slices.Contains(drained, node.Name) {
			drained = append(drained, node.Name)
		}
	})

	return func() []string { end(); slices.Sort(drained); return drained }
}

func isDraining(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintDraining })
}

// follow calls on with each event of a watch. The function that it returns ends
// the watch, and requires that no event was missed.
func (p *pair) follow(begin func(context.Context, metav1.ListOptions) (watch.Interface, error), version string, on func(watch.Event)) (end func()) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	p.t.Cleanup(cancel)
	events := assert.Value(begin(ctx, metav1.ListOptions{ResourceVersion: version, TimeoutSeconds: new(int64(3600))}))(p.t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range events.ResultChan() {
			if e.Type != watch.Error {
				on(e)
			} else if ctx.Err() == nil {
				p.t.Errorf("the watch failed: %+v", e.Object)
			}
		}

		assert.That(p.t, ctx.Err() != nil, "the watch ended")
	}()

	return func() { cancel(); <-done }
}

// drained requires that both nodes were drained, and are open to new pods now.
func (p *pair) drained(nodes func() []string) {
	p.t.Helper()
	for _, n := range p.nodes {
		n.Eventually("the taint of the drain is gone", func(ctx context.Context) error {
			node, err := n.Kube.CoreV1().Nodes().Get(ctx, n.Node.Name(), getOptions)
			if err == nil && isDraining(node) {
				err = errors.New("it is not")
			}

			return err
		})
	}

	if got, want := nodes(), []string{"drain-a", "drain-b"}; !slices.Equal(got, want) {
		p.t.Errorf("the drained nodes are %q, want %q", got, want)
	}
}
