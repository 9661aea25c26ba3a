// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// Labels of kubernetes.io and k8s.io that a node may set on itself, as the admission plugin NodeRestriction has it. All others
// there it may not set, and all outside of these two it may.
var (
	nodesOwnLabels = []string{
		"kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
		"topology.kubernetes.io/zone", "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
		"failure-domain.beta.kubernetes.io/region", "node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type",
	}
	nodesOwnNamespaces = []string{"kubelet.kubernetes.io", "node.kubernetes.io"}
	reservedNamespaces = []string{"kubernetes.io", "k8s.io"}
)

// nodeMaySet reports whether a node may set a label on its own Node if the API server runs NodeRestriction.
func nodeMaySet(key string) bool {
	namespace, _, prefixed := strings.Cut(key, "/")
	within := func(all []string) bool {
		return prefixed && slices.ContainsFunc(all, func(n string) bool { return namespace == n || strings.HasSuffix(namespace, "."+n) })
	}
	return !within(reservedNamespaces) || slices.Contains(nodesOwnLabels, key) || within(nodesOwnNamespaces)
}

// SelfSelectionWarning returns a warning if a node can choose by itself whether a rollout selects it; empty if the selector
// has a label that nodes may not set.
func SelfSelectionWarning(s *v1alpha1.NodeConfigRolloutSpec) string {
	var keys []string
	for key := range s.NodeSelector.MatchLabels {
		keys = append(keys, key)
	}
	for _, e := range s.NodeSelector.MatchExpressions {
		keys = append(keys, e.Key)
	}
	if s.AllNodes || len(keys) == 0 || slices.ContainsFunc(keys, func(key string) bool { return !nodeMaySet(key) }) {
		return ""
	}
	slices.Sort(keys)
	return fmt.Sprintf("a node may set every label of the selector on itself (%s), and so join or leave the rollout: "+
		"use a label that only administrators set, such as node-restriction.kubernetes.io/pool", strings.Join(slices.Compact(keys), ", "))
}
