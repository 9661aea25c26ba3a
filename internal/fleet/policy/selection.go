package policy

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/rollout"
)

// Selection is which nodes a rollout selects, and the claim by which it competes with other rollouts for them. The zero
// value selects nothing.
type Selection struct {
	Claim       rollout.Claim
	Nodes       labels.Selector
	canaries    labels.Selector
	topologyKey string
}

// SelectionOf returns the selection of a rollout. The error says what is wrong with a selector; the selection is then empty.
func SelectionOf(r *v1alpha1.NodeConfigRollout) (Selection, error) {
	nodes, canaries, err := selectors(&r.Spec)
	if err != nil {
		return Selection{}, err
	}
	return Selection{
		Claim: rollout.Claim{Name: r.Name, Priority: r.Spec.Priority, Created: r.CreationTimestamp.Time},
		Nodes: nodes, canaries: canaries, topologyKey: r.Spec.Strategy.TopologyKey,
	}, nil
}

// SelectionsOf returns the selections of the rollouts that can have nodes: not of those that are being deleted.
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

// Place fills in what depends on the rollout in a node that it selects: Domain, Canary and Owner. holder is the rollout that
// has the node.
func (s Selection) Place(n *rollout.Node, node *corev1.Node, holder string) {
	n.Domain = node.Labels[s.topologyKey]
	n.Canary = s.canaries.Matches(labels.Set(node.Labels))
	if holder != s.Claim.Name {
		n.Owner = holder
	}
}

// selectors returns which nodes a rollout selects, and which of them go first. The error says what is wrong with a
// selector.
func selectors(s *v1alpha1.NodeConfigRolloutSpec) (nodes, canaries labels.Selector, err error) {
	nodes, canaries = labels.Everything(), labels.Nothing()
	if !s.AllNodes {
		if nodes, err = metav1.LabelSelectorAsSelector(&s.NodeSelector); err != nil {
			return nil, nil, fmt.Errorf("spec.nodeSelector: %w", err)
		}
		if nodes.Empty() {
			return nil, nil, fmt.Errorf("spec.nodeSelector is empty: give it labels, or set allNodes: true if every node is meant")
		}
	}
	if c := s.Strategy.CanarySelector; c != nil {
		if canaries, err = metav1.LabelSelectorAsSelector(c); err != nil {
			return nil, nil, fmt.Errorf("spec.strategy.canarySelector: %w", err)
		}
	}
	return nodes, canaries, nil
}
