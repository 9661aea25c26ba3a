// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// Taints and conditions with which others announce that they work on a node.
// KEP-5683 defines the conditions about drains and maintenance: administrators
// and their tools set them, and nothing in Kubernetes 1.37 reads them.
var (
	maintenanceTaints = []string{
		corev1.TaintNodeOutOfService, "ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted",
	}
	maintenanceConditions = []corev1.NodeConditionType{
		corev1.NodeDrainInProgress, corev1.NodeDrained, corev1.NodeMaintenancePlanned, corev1.NodeMaintenanceInProgress,
		corev1.NodeGracefulNodeShutdownInProgress,
	}
)

// MaintenanceOf returns where a Node says that others work on it, such as
// "cordoned" or "taint karpenter.sh/disrupted"; empty if it does not. more are
// the keys of additional taints and the types of additional conditions.
func MaintenanceOf(node *corev1.Node, more []string) string {
	if node.Spec.Unschedulable {
		return rollout.Cordoned
	}

	for i := range node.Spec.Taints {
		if key := node.Spec.Taints[i].Key; isMaintenanceTaint(key, more) {
			return "taint " + key
		}
	}

	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; isMaintenanceCondition(c, more) {
			return "condition " + string(c.Type)
		}
	}

	return ""
}

func isMaintenanceTaint(key string, more []string) bool {
	return slices.Contains(maintenanceTaints, key) || slices.Contains(more, key)
}

func isMaintenanceCondition(c *corev1.NodeCondition, more []string) bool {
	return c.Status == corev1.ConditionTrue && (slices.Contains(maintenanceConditions, c.Type) || slices.Contains(more, string(c.Type)))
}

// CheckMaintenanceKey says why a key cannot be one of the additional keys of
// MaintenanceOf. Such keys appear with every drain of evenkeel, or with every
// NotReady: a node that the configuration broke would be excused.
func CheckMaintenanceKey(key string) error {
	switch {
	case len(validation.IsQualifiedName(key)) > 0:
		return fmt.Errorf("must be the key of a taint or the type of a Node condition, such as example.com/repair, not %q", key)
	case strings.HasPrefix(key, v1alpha1.GroupName+"/"), slices.Contains([]string{
		string(corev1.NodeReady), corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeUnschedulable,
	}, key):
		return fmt.Errorf("must not be %s: evenkeel handles it in another way", key)
	}

	return nil
}

// IsStartupTaint reports whether a taint is the startup taint with this key. An
// empty key matches no taint.
func IsStartupTaint(t *corev1.Taint, key string) bool {
	return key != "" && t.Key == key && t.Effect == corev1.TaintEffectNoSchedule
}

// HasStartupTaint reports whether a Node has the startup taint with this key.
func HasStartupTaint(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return IsStartupTaint(&t, key) })
}

// CheckStartupTaint says why a key cannot be the key of the startup taint.
// Empty is valid: there is none.
func CheckStartupTaint(key string) error {
	switch prefix, _, _ := strings.Cut(key, "/"); {
	case key == "":
		return nil
	case len(validation.IsQualifiedName(key)) > 0:
		return fmt.Errorf("must be the key of a taint, such as %s, not %q", v1alpha1.TaintUnconfigured, key)
	case key == v1alpha1.TaintDraining, isMaintenanceTaint(key, nil), prefix == "node.kubernetes.io",
		prefix == "node.cloudprovider.kubernetes.io":
		return fmt.Errorf("must not be %s: the taint has another meaning", key)
	}

	return nil
}
