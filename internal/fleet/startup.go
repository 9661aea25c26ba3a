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
)

// IsStartupTaint reports whether a taint is the startup taint with this key. An empty key matches no taint.
func IsStartupTaint(t *corev1.Taint, key string) bool {
	return key != "" && t.Key == key && t.Effect == corev1.TaintEffectNoSchedule
}

// HasStartupTaint reports whether a Node has the startup taint with this key.
func HasStartupTaint(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return IsStartupTaint(&t, key) })
}

// CheckStartupTaint says why a key cannot be the key of the startup taint. Empty is valid: there is none.
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
