// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
)

// severalBudgets returns refusals of pods that have more than one PodDisruptionBudget. The API server would answer 500 to their
// evictions, but only after other pods of the node were evicted in vain.
func severalBudgets(ctx context.Context, api kubernetes.Interface, pods []corev1.Pod) (refused answers, err error) {
	budgets := map[string][]policyv1.PodDisruptionBudget{}
	for i := range pods {
		pod := &pods[i]
		if pod.Status.Phase == corev1.PodPending {
			continue // evicted without regard to budgets
		}
		found, listed := budgets[pod.Namespace]
		if !listed {
			if found, err = budgetsIn(ctx, api, pod.Namespace); err != nil {
				return nil, err
			}
			budgets[pod.Namespace] = found
		}
		var names []string
		for j := range found {
			selector, err := metav1.LabelSelectorAsSelector(found[j].Spec.Selector)
			if err == nil && selector.Matches(labels.Set(pod.Labels)) { // the API server ignores the others, too
				names = append(names, found[j].Name)
			}
		}
		if len(names) > 1 {
			refused.add(refusedFor(pod, " ("+strings.Join(few(names), ", ")+")"))
		}
	}
	return refused, nil
}

// budgetsIn lists the PodDisruptionBudgets of a namespace.
func budgetsIn(ctx context.Context, api kubernetes.Interface, namespace string) ([]policyv1.PodDisruptionBudget, error) {
	var all []policyv1.PodDisruptionBudget
	options := metav1.ListOptions{Limit: pageSize}
	for len(all) <= maxObjects {
		list, err := api.PolicyV1().PodDisruptionBudgets(namespace).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list the PodDisruptionBudgets in %s: %w", namespace, err)
		}
		all = append(all, list.Items...)
		if options.Continue = list.Continue; options.Continue == "" {
			return all, nil
		}
	}
	return nil, fmt.Errorf("namespace %s has more than %d PodDisruptionBudgets", namespace, maxObjects)
}

func refusedFor(pod *corev1.Pod, budgets string) string {
	return nameOf(pod) + " has more than one PodDisruptionBudget" + budgets + ", with which the API server evicts no pod: keep one of them"
}

// isSeveralBudgets reports whether an eviction failed because the pod has more than one PodDisruptionBudget.
func isSeveralBudgets(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "more than one PodDisruptionBudget")
}
