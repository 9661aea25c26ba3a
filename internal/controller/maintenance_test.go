// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// seenNode is a Node as a watch has it. Its clock is wrong.
func seenNode(ready, cordoned bool, conditions ...corev1.NodeConditionType) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{Unschedulable: cordoned}}
	status := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[ready]
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(then.AddDate(10, 0, 0))}}
	for _, c := range conditions {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(then.AddDate(-10, 0, 0))})
	}

	return n
}

func TestMaintenanceBeginsWhenTheControllerSeesIt(t *testing.T) {
	now := then
	f := newCache("", time.Second)
	f.now = func() time.Time { return now }
	see := func(n *corev1.Node) rollout.Node {
		f.setNode(n)
		return f.nodes["n"].observed
	}
	if n := see(seenNode(true, false)); n.Maintenance != "" || !n.MaintenanceSince.IsZero() {
		t.Errorf("a node at rest is seen under maintenance %q since %s", n.Maintenance, n.MaintenanceSince)
	}

	now = then.Add(time.Minute)
	if n := see(seenNode(true, true)); n.Maintenance != rollout.Cordoned || !n.MaintenanceSince.Equal(now) {
		t.Errorf("it is seen under maintenance %q since %s", n.Maintenance, n.MaintenanceSince)
	}

	now = then.Add(time.Minute + 300*time.Millisecond)
	if n := see(seenNode(false, false, corev1.NodeDrained)); n.Maintenance != "condition Drained" || !n.MaintenanceSince.Equal(then.Add(time.Minute)) || !n.MaintenanceSince.Before(n.WentNotReady) {
		t.Errorf("after a cordon it is under maintenance %q since %s, and went NotReady at %s", n.Maintenance, n.MaintenanceSince, n.WentNotReady)
	}

	now = then.Add(2 * time.Minute)
	see(seenNode(false, false))
	now = then.Add(3 * time.Minute)
	if n := see(seenNode(false, true)); n.MaintenanceSince.Before(n.WentNotReady) {
		t.Errorf("cordoned again at %s, it counts from %s; it went NotReady at %s", now, n.MaintenanceSince, n.WentNotReady)
	}

	f.deleteNode("n")
	now = then.Add(4 * time.Minute)
	if n := see(seenNode(true, true)); !n.MaintenanceSince.Equal(now) {
		t.Errorf("created again, it is under maintenance since %s", n.MaintenanceSince)
	}
}

// Within one second, too, the order counts: a health check may cordon a node as
// soon as it is NotReady.
func TestACordonJustAfterNotReadyComesAfterIt(t *testing.T) {
	now := then
	f := newCache("", time.Second)
	f.now = func() time.Time { return now }
	f.setRollout(&v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "r"}, Spec: v1alpha1.NodeConfigRolloutSpec{NodeSelection: v1alpha1.NodeSelection{AllNodes: true}}})
	for _, n := range []*corev1.Node{seenNode(true, false), seenNode(false, false), seenNode(false, true)} {
		f.setNode(n)
		now = now.Add(200 * time.Millisecond)
	}

	nodes, _ := f.planNodes(f.rollouts["r"], 0, nil)
	assert.That(t, !nodes[0].MaintenanceSince.Before(nodes[0].WentNotReady),
		"maintenance began at %s, NotReady at %s", nodes[0].MaintenanceSince, nodes[0].WentNotReady)
}

// A leader that sees a node for the first time does not know what came first,
// unless the node's observation says so.
func TestANewLeaderDoesNotExcuseWhatItSeesFirst(t *testing.T) {
	f := newCache("", time.Second)
	f.now = func() time.Time { return then }
	f.setNode(seenNode(false, true, corev1.NodeMaintenanceInProgress))
	n := f.nodes["n"].observed
	assert.That(t, !n.MaintenanceSince.Before(n.WentNotReady), "maintenance began at %s, NotReady at %s", n.MaintenanceSince, n.WentNotReady)
}
