package policy

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestMaintenanceIsRecognized(t *testing.T) {
	taint := func(key string) *corev1.Node {
		return &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "other"}, {Key: key}}}}
	}
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: kind, Status: status}}}}
	}
	more := []string{"example.com/repair", "UnderRepair", "Ready"}
	for what, c := range map[string]struct {
		node *corev1.Node
		want string
	}{
		"nothing":                  {&corev1.Node{}, ""},
		"a cordon":                 {&corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}, "cordoned"},
		"out of service":           {taint("node.kubernetes.io/out-of-service"), "taint node.kubernetes.io/out-of-service"},
		"Cluster Autoscaler":       {taint("ToBeDeletedByClusterAutoscaler"), "taint ToBeDeletedByClusterAutoscaler"},
		"Karpenter":                {taint("karpenter.sh/disrupted"), "taint karpenter.sh/disrupted"},
		"evenkeel's own":           {taint("evenkeel.dev/draining"), ""},
		"NotReady":                 {taint("node.kubernetes.io/not-ready"), ""},
		"planned":                  {condition("MaintenancePlanned", corev1.ConditionTrue), "condition MaintenancePlanned"},
		"in progress":              {condition("MaintenanceInProgress", corev1.ConditionTrue), "condition MaintenanceInProgress"},
		"a drain":                  {condition("DrainInProgress", corev1.ConditionTrue), "condition DrainInProgress"},
		"drained":                  {condition("Drained", corev1.ConditionTrue), "condition Drained"},
		"a shutdown":               {condition("GracefulNodeShutdownInProgress", corev1.ConditionTrue), "condition GracefulNodeShutdownInProgress"},
		"over":                     {condition("MaintenanceInProgress", corev1.ConditionFalse), ""},
		"not known":                {condition("MaintenanceInProgress", corev1.ConditionUnknown), ""},
		"a taint of a flag":        {taint("example.com/repair"), "taint example.com/repair"},
		"a condition of a flag":    {condition("UnderRepair", corev1.ConditionTrue), "condition UnderRepair"},
		"Ready is no announcement": {condition("Other", corev1.ConditionTrue), ""},
	} {
		if got := MaintenanceOf(c.node, more); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
		stripped := c.node.DeepCopy()
		StripNode(stripped)
		if got := MaintenanceOf(stripped, more); got != c.want {
			t.Errorf("%s, as it is kept in memory: %q, want %q", what, got, c.want)
		}
	}
}
