// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// Selection is the nodes that a rollout selects, and its claim on them. The
// zero value selects no node.
type Selection struct {
	Claim       rollout.Claim
	Nodes       labels.Selector
	canaries    labels.Selector
	topologyKey string
}

// SelectionOf returns the selection of a rollout. If a selector is invalid, it
// returns an error and an empty selection.
func SelectionOf(r *v1alpha1.NodeConfigRollout) (Selection, error) {
	nodes, canaries, err := selectors(&r.Spec)
	if err != nil {
		return Selection{}, err
	}

	return Selection{
		Claim: claimOf(r), Nodes: nodes, canaries: canaries, topologyKey: r.Spec.Strategy.TopologyKey,
	}, nil
}

func claimOf(r *v1alpha1.NodeConfigRollout) rollout.Claim {
	return rollout.Claim{Name: r.Name, Priority: r.Spec.Priority, Created: r.CreationTimestamp.Time}
}

// SelectionsOf returns the selections of the rollouts that are valid and not
// being deleted.
func SelectionsOf(all []v1alpha1.NodeConfigRollout) []Selection {
	var out []Selection
	for i := range all {
		if s, err := SelectionOf(&all[i]); err == nil && all[i].DeletionTimestamp == nil {
			out = append(out, s)
		}
	}

	return out
}

// Selects reports whether the rollout selects a node.
func (s Selection) Selects(node *corev1.Node) bool {
	return s.Nodes != nil && s.Nodes.Matches(labels.Set(node.Labels))
}

// ClaimsOn returns the claims of the selections that select a node.
func ClaimsOn(all []Selection, node *corev1.Node) []rollout.Claim {
	var out []rollout.Claim
	for _, s := range all {
		if s.Selects(node) {
			out = append(out, s.Claim)
		}
	}

	return out
}

// Place sets the fields of a selected node that depend on the rollout: Domain,
// Canary and Owner. holder is the rollout that has the node.
func (s Selection) Place(n *rollout.Node, node *corev1.Node, holder string) {
	n.Domain = node.Labels[s.topologyKey]
	n.Canary = s.canaries.Matches(labels.Set(node.Labels))
	if holder != s.Claim.Name {
		n.Owner = holder
	}
}

// selectors returns the selectors of nodes and of canaries.
func selectors(s *v1alpha1.NodeConfigRolloutSpec) (nodes, canaries labels.Selector, err error) {
	nodes, canaries = labels.Everything(), labels.Nothing()
	if !s.AllNodes {
		if nodes, err = metav1.LabelSelectorAsSelector((*metav1.LabelSelector)(&s.NodeSelector)); err != nil {
			return nil, nil, fmt.Errorf("spec.nodeSelector: %w", err)
		}
		if nodes.Empty() {
			return nil, nil, fmt.Errorf("spec.nodeSelector is empty: add labels, or set allNodes: true to select every node")
		}
	}

	if c := s.Strategy.CanarySelector; len(c) > 0 {
		if canaries, err = labels.ValidatedSelectorFromSet(c); err != nil {
			return nil, nil, fmt.Errorf("spec.strategy.canarySelector: %w", err)
		}
	}

	return nodes, canaries, nil
}

// Labels of kubernetes.io and k8s.io that a node may set on itself, as the
// admission plugin NodeRestriction has it. All others there it may not set, and
// all outside of these two it may.
var (
	nodesOwnLabels = []string{
		"kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
		"topology.kubernetes.io/zone", "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
		"failure-domain.beta.kubernetes.io/region", "node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type",
	}
	nodesOwnNamespaces = []string{"kubelet.kubernetes.io", "node.kubernetes.io"}
	reservedNamespaces = []string{"kubernetes.io", "k8s.io"}
)

// nodeMaySet reports whether a node may set a label on its own Node if the API
// server runs NodeRestriction.
func nodeMaySet(key string) bool {
	namespace, _, prefixed := strings.Cut(key, "/")
	within := func(all []string) bool {
		return prefixed && slices.ContainsFunc(all, func(n string) bool { return namespace == n || strings.HasSuffix(namespace, "."+n) })
	}

	return !within(reservedNamespaces) || slices.Contains(nodesOwnLabels, key) || within(nodesOwnNamespaces)
}

// SelfSelectionWarning returns a warning if a node can choose by itself whether
// a rollout selects it; empty if the selector has a label that nodes may not
// set.
func SelfSelectionWarning(s *v1alpha1.NodeConfigRolloutSpec) string {
	keys := slices.Collect(maps.Keys(s.NodeSelector.MatchLabels))
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
