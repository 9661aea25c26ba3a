package installer

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/report"
)

// Select returns the nodes that are named, or selected, and how they stand; those of the control plane last.
func (m Operation) Select(ctx context.Context, c client.Client, w Desired, names []string, selector labels.Selector) ([]*Progress, error) {
	pods := map[string][]corev1.Pod{}
	for pod, err := range report.Pages(ctx, c, func() *corev1.PodList { return &corev1.PodList{} }, func(l *corev1.PodList) []corev1.Pod { return l.Items },
		client.InNamespace(v1alpha1.InstallNamespace), client.MatchingLabels{"app.kubernetes.io/name": m.DaemonSet}) {
		if err != nil {
			return nil, fmt.Errorf("list the pods in %s: %w", v1alpha1.InstallNamespace, err)
		}
		if pod.DeletionTimestamp == nil {
			pods[pod.Spec.NodeName] = append(pods[pod.Spec.NodeName], *pod)
		}
	}
	var first, last []*Progress
	missing := map[string]bool{}
	for _, name := range names {
		missing[name] = true
	}
	add := func(p report.Pair) {
		n := &Progress{Name: p.Node.Name, State: m.judge(target{p, pods[p.Node.Name]}, w)}
		if _, ok := p.Node.Labels["node-role.kubernetes.io/control-plane"]; ok {
			last = append(last, n)
		} else {
			first = append(first, n)
		}
	}
	if selector == nil {
		selector = labels.Everything()
	}
	for p, err := range m.pairs(ctx, c, selector) {
		switch {
		case err != nil:
			return nil, err
		case p.Node != nil && (len(names) == 0 || missing[p.Node.Name]):
			delete(missing, p.Node.Name)
			add(p)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("there is no node %s; see `kubectl get nodes`; nothing was changed", report.Few(slices.Sorted(maps.Keys(missing))))
	}
	return append(first, last...), nil
}

// pairs yields nodes, and what their agents report where that matters: to uninstall, the CRD need not be there.
func (m Operation) pairs(ctx context.Context, c client.Client, selector labels.Selector) iter.Seq2[report.Pair, error] {
	if m == Install {
		return report.Pairs(ctx, c, selector)
	}
	return func(yield func(report.Pair, error) bool) {
		for node, err := range report.Pages(ctx, c, func() *corev1.NodeList { return &corev1.NodeList{} },
			func(l *corev1.NodeList) []corev1.Node { return l.Items }, client.MatchingLabelsSelector{Selector: selector}) {
			if !yield(report.Pair{Node: node}, err) {
				return
			}
		}
	}
}
