// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestATaintRecordsADrain(t *testing.T) {
	id := DrainID("5f0c1c3e-0000-4000-8000-000000000001")
	drain := rollout.Drain{Rollout: id, Revision: 7, Attempt: 2, Since: time.Unix(1_800_000_000, 0).UTC()}
	handed := drain
	handed.HandedOver = true
	for _, want := range []rollout.Drain{drain, handed} {
		taint := DrainTaint(want)
		assert.That(t, len(taint.Value) <= 63 && !strings.ContainsAny(taint.Value, " :/"), "the value %q is invalid", taint.Value)
		assert.Equal(t, DrainOf(&corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "other"}, taint}}}), want, "read")
	}

	assert.Equal(t, DrainOf(&corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "other"}}}}), rollout.Drain{},
		"a Node without the taint")
}

func TestATaintThatCannotBeReadIsOfNoRollout(t *testing.T) {
	good := DrainTaint(rollout.Drain{Rollout: DrainID("u"), Revision: 1, Attempt: 1, Since: time.Unix(1, 0)})
	evicts := good
	evicts.Effect = corev1.TaintEffectNoExecute
	for name, taint := range map[string]corev1.Taint{
		"no value": {Key: v1alpha1.TaintDraining, Effect: good.Effect}, "another effect": evicts,
		"no number": {Key: v1alpha1.TaintDraining, Effect: good.Effect, Value: strings.Replace(good.Value, "1.", "x.", 1)},
		"too much":  {Key: v1alpha1.TaintDraining, Effect: good.Effect, Value: good.Value + ".x"},
		"short ID":  {Key: v1alpha1.TaintDraining, Effect: good.Effect, Value: good.Value[:len(good.Value)-1]},
	} {
		got := DrainOf(&corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{taint}}})
		assert.That(t, got.Rollout != "" && got.Rollout != DrainID("u") && got == (rollout.Drain{Rollout: got.Rollout}), "%s: read %+v", name, got)
	}
}

func TestADrainNeedsPermissionsAndHasATimeout(t *testing.T) {
	assert.Equal(t, completeDrain(nil).TimeoutSeconds, 900, "the timeout")
	assert.Equal(t, completeDrain(&v1alpha1.DrainOptions{TimeoutSeconds: 60}).TimeoutSeconds, 60, "the timeout")
	for _, tt := range []struct {
		mode v1alpha1.DrainMode
		may  *bool
		want string
	}{
		{"", nil, ""}, {v1alpha1.DrainNever, new(false), ""}, {v1alpha1.DrainAlways, new(true), ""}, {v1alpha1.DrainWhenBlocked, new(true), ""},
		{v1alpha1.DrainAlways, nil, ""}, // the CLI does not know
		{v1alpha1.DrainAlways, new(false), "kubectl apply -k config/drain"},
		{v1alpha1.DrainWhenBlocked, new(false), "kubectl apply -k config/drain"},
	} {
		s := &v1alpha1.NodeConfigRolloutSpec{Strategy: v1alpha1.RolloutStrategy{Drain: tt.mode}}
		err := checkDrain(s, &v1alpha1.RolloutController{Drain: tt.may})
		assert.That(t, (err == nil) == (tt.want == "") && (err == nil || strings.Contains(err.Error(), tt.want)), "%+v: %v", tt, err)
	}
}

func TestTheStartupTaintHasAKeyAndAnEffect(t *testing.T) {
	const key = v1alpha1.TaintUnconfigured
	for name, tt := range map[string]struct {
		key   string
		taint corev1.Taint
		want  bool
	}{
		"it":               {key, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule}, true},
		"with a value":     {key, corev1.Taint{Key: key, Value: "true", Effect: corev1.TaintEffectNoSchedule}, true},
		"another effect":   {key, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute}, false},
		"another key":      {key, corev1.Taint{Key: key + "x", Effect: corev1.TaintEffectNoSchedule}, false},
		"there is no such": {"", corev1.Taint{Effect: corev1.TaintEffectNoSchedule}, false},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "example.com/theirs"}, tt.taint}}}
		StripNode(node)
		assert.Equal(t, HasStartupTaint(node, tt.key), tt.want, name)
	}
}

func TestKeysOfStartupTaints(t *testing.T) {
	for _, key := range []string{"", v1alpha1.TaintUnconfigured, "startup-taint.cluster-autoscaler.kubernetes.io/evenkeel", "readiness.k8s.io/evenkeel", "unconfigured"} {
		assert.OK(t, CheckStartupTaint(key), key)
	}

	for key, want := range map[string]string{
		"a b": "must be the key of a taint", "a/b/c": "must be the key of a taint", "a'b": "must be the key of a taint",
		v1alpha1.TaintDraining: "another meaning", "node.kubernetes.io/not-ready": "another meaning",
		"node.cloudprovider.kubernetes.io/uninitialized": "another meaning", "ToBeDeletedByClusterAutoscaler": "another meaning", "karpenter.sh/disrupted": "another meaning",
	} {
		assert.ErrorHas(t, CheckStartupTaint(key), want, key)
	}
}

func TestANodeOnWhichAnAgentWroteConfigOKIsKnown(t *testing.T) {
	for status, want := range map[corev1.ConditionStatus]bool{corev1.ConditionTrue: true, corev1.ConditionFalse: false} {
		node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: v1alpha1.ConditionConfigOK, Status: status}}}}
		StripNode(node)
		assert.Equal(t, NodeOf(node, nil).Known, want, status)
	}
}

func TestMaintenanceIsRecognized(t *testing.T) {
	taint := func(keys ...string) *corev1.Node {
		n := &corev1.Node{}
		for _, key := range keys {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		}

		return n
	}
	condition := func(kind string, status corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: corev1.NodeConditionType(kind), Status: status},
		}}}
	}
	more := []string{"example.com/repair", "Rebooting"}
	for name, test := range map[string]struct {
		node *corev1.Node
		want string
	}{
		"a node at rest":               {condition("MemoryPressure", corev1.ConditionTrue), ""},
		"a cordon":                     {&corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}, "cordoned"},
		"out of service":               {taint("other", "node.kubernetes.io/out-of-service"), "taint node.kubernetes.io/out-of-service"},
		"the autoscaler":               {taint("ToBeDeletedByClusterAutoscaler"), "taint ToBeDeletedByClusterAutoscaler"},
		"Karpenter":                    {taint("karpenter.sh/disrupted"), "taint karpenter.sh/disrupted"},
		"a drain in progress":          {condition("DrainInProgress", corev1.ConditionTrue), "condition DrainInProgress"},
		"a drained node":               {condition("Drained", corev1.ConditionTrue), "condition Drained"},
		"planned maintenance":          {condition("MaintenancePlanned", corev1.ConditionTrue), "condition MaintenancePlanned"},
		"maintenance":                  {condition("MaintenanceInProgress", corev1.ConditionTrue), "condition MaintenanceInProgress"},
		"a shutdown":                   {condition("GracefulNodeShutdownInProgress", corev1.ConditionTrue), "condition GracefulNodeShutdownInProgress"},
		"maintenance that has ended":   {condition("MaintenanceInProgress", corev1.ConditionFalse), ""},
		"maintenance that may be over": {condition("MaintenanceInProgress", corev1.ConditionUnknown), ""},
		"a taint of the flag":          {taint("example.com/repair"), "taint example.com/repair"},
		"a condition of the flag":      {condition("Rebooting", corev1.ConditionTrue), "condition Rebooting"},
		"evenkeel's own drain":         {taint(v1alpha1.TaintDraining), ""},
		"the node lifecycle":           {taint(corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeUnschedulable), ""},
	} {
		assert.Equal(t, MaintenanceOf(test.node, more), test.want, name)
		StripNode(test.node)
		assert.Equal(t, MaintenanceOf(test.node, more), test.want, name, "stripped")
	}
}

func TestAStrippedNodeKeepsFewUnknownConditions(t *testing.T) {
	n := &corev1.Node{}
	for i := range 1000 {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeConditionType(fmt.Sprint("Planted", i)), Status: corev1.ConditionTrue})
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: fmt.Sprint("planted-", i)})
	}

	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeDrained, Status: corev1.ConditionTrue, Message: "long"})
	if StripNode(n); len(n.Spec.Taints) != maxAnnouncements || len(n.Status.Conditions) != maxAnnouncements+1 ||
		n.Status.Conditions[maxAnnouncements].Type != corev1.NodeDrained || n.Status.Conditions[maxAnnouncements].Message != "" {
		t.Errorf("kept are %d taints and %+v", len(n.Spec.Taints), n.Status.Conditions)
	}
}

func TestKeysOfMaintenanceAreChecked(t *testing.T) {
	for _, key := range []string{"example.com/repair", "Rebooting"} {
		assert.OK(t, CheckMaintenanceKey(key), key)
	}

	for _, key := range []string{"", "a b", "Ready", v1alpha1.TaintDraining, "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node.kubernetes.io/unschedulable"} {
		assert.That(t, CheckMaintenanceKey(key) != nil, "%q is accepted", key)
	}
}
