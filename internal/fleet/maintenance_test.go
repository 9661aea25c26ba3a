// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

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
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, MaintenanceOf(test.node, more), test.want, "the source")
			if StripNode(test.node); MaintenanceOf(test.node, more) != test.want {
				t.Errorf("of the stripped node the source is %q, want %q", MaintenanceOf(test.node, more), test.want)
			}
		})
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

func TestKeysOfMaintenanceArePublished(t *testing.T) {
	r := &v1alpha1.NodeConfigRollout{}
	s := DefaultSettings
	s.Maintenance = []string{"example.com/repair"}
	r.Status.Controller = &s
	got := SettingsOf(r, nil).Maintenance
	assert.That(t, len(got) == 1 && got[0] == "example.com/repair", "the command line sees %q", got)
}
