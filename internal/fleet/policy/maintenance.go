package policy

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/internal/fleet/rollout"
)

// Taints and conditions with which others announce that they work on a node. KEP-5683 defines the conditions about drains and
// maintenance: administrators and their tools set them, and nothing in Kubernetes 1.37 reads them.
var (
	maintenanceTaints = []string{
		corev1.TaintNodeOutOfService, "ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted",
	}
	maintenanceConditions = []corev1.NodeConditionType{
		corev1.NodeDrainInProgress, corev1.NodeDrained, corev1.NodeMaintenancePlanned, corev1.NodeMaintenanceInProgress,
		corev1.NodeGracefulNodeShutdownInProgress,
	}
)

// MaintenanceOf returns where a Node says that others work on it; empty if it does not. more are the keys of further taints and the
// types of further conditions.
func MaintenanceOf(node *corev1.Node, more []string) string {
	if node.Spec.Unschedulable {
		return rollout.Cordoned
	}
	for i := range node.Spec.Taints {
		if key := node.Spec.Taints[i].Key; slices.Contains(maintenanceTaints, key) || slices.Contains(more, key) {
			return "taint " + key
		}
	}
	for i := range node.Status.Conditions {
		c := &node.Status.Conditions[i]
		if c.Status == corev1.ConditionTrue && (slices.Contains(maintenanceConditions, c.Type) || c.Type != corev1.NodeReady && slices.Contains(more, string(c.Type))) {
			return "condition " + string(c.Type)
		}
	}
	return ""
}
