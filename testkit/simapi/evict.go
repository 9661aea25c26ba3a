// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simapi

import (
	"encoding/json"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// evict answers a request for the eviction of a pod. As in the real API server,
// each eviction uses up one disruption that the status of the pod's
// PodDisruptionBudget allows. The caller holds mu.
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
	budgets := s.kinds["poddisruptionbudgets/policy"]
	if budgets != nil && pod.Status.Phase == corev1.PodRunning {
		var found []*object
		for _, o := range s.list(everything(budgets, t.at.namespace), 0) {
			budget := as[policyv1.PodDisruptionBudget](o)
			if selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector); err == nil && selector.Matches(labels.Set(pod.Labels)) {
				found = append(found, o)
			}
		}

		if len(found) > 1 {
			return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
				Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."}}
		}

		if len(found) == 1 {
			budget := as[policyv1.PodDisruptionBudget](found[0])
			if budget.Status.DisruptionsAllowed <= 0 {
				return apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
			}

			budget.Status.DisruptionsAllowed--
			if _, err := s.update(write{}, budgets, found[0], contentOf(budget), "status"); err != nil {
				return err
			}
		}
	}

	s.remove(by, t.kind, was)

	return nil
}
