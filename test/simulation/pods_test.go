// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/testkit/simapi"
)

// The pods of a node are in a namespace with its name. Some of these namespaces
// have a PodDisruptionBudget.

const budgetName = "web"

var podLabels = map[string]string{"app": "web"}

// pods changes the number of pods on a node.
func (x *act) pods() {
	m := x.machine()
	if !x.has("nodes", "", m.name) {
		return
	}

	have := x.server.Names("pods", m.name)
	want := x.r.IntN(8)
	for i := len(have); i < want; i++ {
		x.createPod(m, fmt.Sprintf("pod-%d-%d", x.index, i))
	}

	for i := want; i < len(have); i++ {
		x.server.Delete("pods", m.name, have[i])
	}

	if chance(x.r, 0.4) && !x.server.Delete("poddisruptionbudgets", m.name, budgetName) {
		least := intstr.FromInt(x.r.IntN(want + 1))
		x.direct(x.server.Create("poddisruptionbudgets", m.name, &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: budgetName},
			Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &least, Selector: &metav1.LabelSelector{MatchLabels: podLabels}},
		}))
		x.countDisruptions(m.name)
	}
}

// createPod creates a pod on a node, if the node has none with this name: pods
// come again with the names of earlier ones, and so do their successors.
func (w *world) createPod(m *machine, name string) {
	if w.has("pods", m.name, name) {
		return
	}

	w.direct(w.server.Create("pods", m.name, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: podLabels, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web", Controller: new(true),
		}}},
		Spec:   corev1.PodSpec{NodeName: m.name, RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "web", Image: "web"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}))
}

// countDisruptions does what the disruption controller of
// kube-controller-manager does.
func (w *world) countDisruptions(namespace string) {
	budget, is := get[policyv1.PodDisruptionBudget](w, "poddisruptionbudgets", namespace, budgetName)
	if !is {
		return
	}

	healthy := 0
	for _, name := range w.server.Names("pods", namespace) {
		if pod, _ := get[corev1.Pod](w, "pods", namespace, name); pod.Status.Phase == corev1.PodRunning {
			healthy++
		}
	}

	w.direct(w.server.Patch("poddisruptionbudgets", namespace, budgetName, types.MergePatchType, map[string]any{
		"status": map[string]any{"disruptionsAllowed": max(0, healthy-budget.Spec.MinAvailable.IntValue()), "observedGeneration": budget.Generation},
	}))
}

// podChanged does what other controllers do when a pod has changed: the budgets
// are computed, and an evicted pod gets a successor.
func (w *world) podChanged(c simapi.Change) {
	time.AfterFunc(between(dice(w.plan.seed, "disruptions", c.Namespace, c.Name), 100*time.Millisecond, 2*time.Second), func() { w.countDisruptions(c.Namespace) })
	if c.Is != nil || c.By == "" {
		return
	}

	w.checkEviction(c)
	name := c.Name + "x"
	time.AfterFunc(between(dice(w.plan.seed, "successor", c.Namespace, c.Name), time.Second, 20*time.Second), func() {
		if w.calm() || len(name) > 40 {
			return
		}

		for _, m := range w.machines {
			if node, is := get[corev1.Node](w, "nodes", "", m.name); is && drainTaint(&node) == "" && len(w.server.Names("pods", m.name)) < 8 {
				w.createPod(m, name)
				return
			}
		}
	})
}

// drainTaint returns the value of the taint of a drain, empty if the Node has
// none.
func drainTaint(node *corev1.Node) string {
	for _, t := range node.Spec.Taints {
		if t.Key == v1alpha1.TaintDraining {
			return t.Value
		}
	}

	return ""
}

// passTakes is how long an eviction pass and its requests take at most.
const passTakes = 90 * time.Second

// checkEviction checks that pods are evicted only from nodes that are being
// drained. The caller holds mu.
func (w *world) checkEviction(c simapi.Change) {
	w.checks.stats.count(evictions, 1)
	ended, began := w.checks.drained[c.Namespace]
	w.book.must(began && (ended.IsZero() || !time.Now().After(ended.Add(passTakes))),
		"invariant 11: pod %s/%s was evicted by %s, and the node is not being drained", c.Namespace, c.Name, c.By)
}

// drains reports whether a node is being drained. The caller holds mu.
func (c *checks) drains(node string) bool {
	ended, began := c.drained[node]
	return began && ended.IsZero()
}

// checkDrains checks that the status of a rollout names a Node before the Node
// has the taint of a drain. The caller holds mu.
func (w *world) checkDrains(c simapi.Change) {
	var is, was corev1.Node
	if c.Is != nil {
		decode(c.Is, &is)
	}
	if c.Was != nil {
		decode(c.Was, &was)
	}

	taint := drainTaint(&is)
	if _, draining := w.checks.drained[c.Name]; draining && taint == "" && drainTaint(&was) != "" {
		w.checks.drained[c.Name] = time.Now()
	}
	if taint == "" || taint == drainTaint(&was) {
		return
	}

	w.checks.stats.count(drains, 1)
	crowd := len(w.checks.nodes)
	for _, at := range w.checks.left {
		if at.Add(drainTakes).After(time.Now()) {
			crowd++
		}
	}

	w.checks.drained[c.Name], w.checks.crowd[c.Name] = time.Time{}, crowd
	drain := fleet.DrainOf(&is)
	w.book.must(w.checks.draining[drain.Rollout+"/"+c.Name] || len(w.machines) > v1alpha1.MaxFailedNodes, // the list is bounded
		"invariant 11: %s has the taint of a drain (%s), and no status of a rollout has named it", c.Name, taint)
}

// noteDraining notes which nodes the status of a rollout has named. The caller
// holds mu.
func (w *world) noteDraining(r *v1alpha1.NodeConfigRollout) {
	for _, n := range r.Status.DrainingNodes {
		w.checks.draining[fleet.DrainID(r.UID)+"/"+n.Name] = true
	}
}

// tainted returns the nodes that have the taint of a drain.
func (w *world) tainted() []string {
	return slices.DeleteFunc(w.server.Names("nodes", ""), func(name string) bool {
		node, _ := get[corev1.Node](w, "nodes", "", name)
		return drainTaint(&node) == ""
	})
}
