// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// Nodes reads the nodes with these names, or all that a selector matches. A name without a Node is an error.
func (o Operation) Nodes(ctx context.Context, c client.Reader, names []string, selector labels.Selector) ([]Node, error) {
	pods := map[string][]corev1.Pod{}
	for pod, err := range query.Pages[*corev1.Pod](ctx, c, &corev1.PodList{}, o.itsPods()...) {
		if err != nil {
			return nil, fmt.Errorf("list the pods in %s: %w", v1alpha1.InstallNamespace, err)
		}
		pods[pod.Spec.NodeName] = append(pods[pod.Spec.NodeName], *pod)
	}
	missing := map[string]bool{}
	for _, name := range names {
		missing[name] = true
	}
	if selector == nil {
		selector = labels.Everything()
	}
	var nodes []Node
	for p, err := range o.pairs(ctx, c, selector) {
		switch {
		case err != nil:
			return nil, err
		case p.Node != nil && (len(names) == 0 || missing[p.Node.Name]):
			delete(missing, p.Node.Name)
			nodes = append(nodes, nodeOf(p, pods[p.Node.Name]))
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("nodes not found: %s; see `kubectl get nodes`; nothing was changed",
			printable.Few(slices.Sorted(maps.Keys(missing))))
	}
	slices.SortFunc(nodes, func(a, b Node) int { return printable.CompareNatural(a.Name, b.Name) })
	return nodes, nil
}

// pairs yields nodes with the reports of their agents. Uninstalling does not need the reports, and their CRD may be gone.
func (o Operation) pairs(ctx context.Context, c client.Reader, selector labels.Selector) iter.Seq2[fleet.Pair, error] {
	if o == Install {
		return query.Pairs(ctx, c, selector)
	}
	return func(yield func(fleet.Pair, error) bool) {
		for node, err := range query.Pages[*corev1.Node](ctx, c, &corev1.NodeList{}, client.MatchingLabelsSelector{Selector: selector}) {
			if !yield(fleet.Pair{Node: node}, err) {
				return
			}
		}
	}
}

// itsPods selects the pods of the operation's DaemonSet.
func (o Operation) itsPods() []client.ListOption {
	return []client.ListOption{client.InNamespace(v1alpha1.InstallNamespace), client.MatchingLabels{"app.kubernetes.io/name": o.DaemonSet}}
}

// node reads one node.
func (o Operation) node(ctx context.Context, c client.Reader, name string) (Node, error) {
	p := fleet.Pair{Node: &corev1.Node{}, Config: &v1alpha1.NodeConfig{}}
	err := c.Get(ctx, client.ObjectKey{Name: name}, p.Node)
	if apierrors.IsNotFound(err) {
		return Node{Name: name, Gone: true}, nil
	}
	if err != nil {
		return Node{}, err
	}
	if o != Install {
		p.Config = nil
	} else if err := c.Get(ctx, client.ObjectKey{Name: name}, p.Config); apierrors.IsNotFound(err) {
		p.Config = nil
	} else if err != nil {
		return Node{}, err
	}
	pods := &corev1.PodList{}
	err = c.List(ctx, pods, append(o.itsPods(), client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName",
		name)})...)
	return nodeOf(p, pods.Items), err
}

// nodeOf converts the objects of a node.
func nodeOf(p fleet.Pair, pods []corev1.Pod) Node {
	labels := p.Node.Labels
	_, controlPlane := labels[fleet.LabelControlPlane]
	n := Node{
		Name: p.Node.Name, Deleting: p.Node.DeletionTimestamp != nil, Cordoned: p.Node.Spec.Unschedulable, Ready: fleet.IsReady(p.Node),
		ControlPlane: controlPlane, SelfHosted: labels["evenkeel.dev/kubelet"] == "self-hosted", OS: labels[corev1.LabelOSStable],
		Label: labels[v1alpha1.LabelAgent], Failure: p.Node.Annotations[v1alpha1.AnnotationAgentFailed],
		Turn: p.Node.Annotations[v1alpha1.AnnotationAgentTurn],
	}
	if p.Config != nil {
		n.Reported, n.AgentVersion = fleet.HasReported(p.Config), p.Config.Status.AgentVersion
	}
	n.Pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	return n
}
