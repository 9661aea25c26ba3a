// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simapi

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// evict answers a request for the eviction of a pod. As in the real API server,
// each eviction uses up one disruption that the status of the pod's
// PodDisruptionBudget allows. A pod has one at most. The caller holds mu.
func (s *Server) evict(by string, t target, body []byte) error {
	var eviction policyv1.Eviction
	if err := json.Unmarshal(body, &eviction); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("decode the eviction: %v", err))
	}

	was, err := s.get(t.kind, t.at)
	if err != nil {
		return err
	}
	if err := t.kind.meets(was, eviction.DeleteOptions); err != nil {
		return err
	}

	pod := as[corev1.Pod](was)
	budgets := s.kind("poddisruptionbudgets")
	for _, o := range s.list(everything(budgets, t.at.namespace), 0) {
		budget := as[policyv1.PodDisruptionBudget](o)
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil || pod.Status.Phase != corev1.PodRunning || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if budget.Status.DisruptionsAllowed <= 0 {
			return apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		}

		budget.Status.DisruptionsAllowed--
		if _, err := s.update(write{}, budgets, o, contentOf(budget), "status"); err != nil {
			return err
		}
	}

	s.remove(by, t.kind, was)

	return nil
}
