// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simapi

import (
	"net/http"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// evict answers a request for the eviction of a pod. As in the real API server,
// each eviction uses up one disruption that the status of the pod's
// PodDisruptionBudget allows. The caller holds mu.
func (s *Server) evict(by string, t target, content map[string]any) (int, []byte, *statusError) {
	var eviction policyv1.Eviction
	if err := decodeInto(encode(content), &eviction); err != nil {
		return 0, nil, failf(http.StatusBadRequest, "BadRequest", "decode the eviction: %v", err)
	}

	was, failed := s.get(t.kind, t.at)
	if failed != nil {
		return 0, nil, failed
	}

	var pod corev1.Pod
	if err := decodeInto(was.raw, &pod); err != nil {
		return 0, nil, failf(http.StatusInternalServerError, "InternalError", "decode the pod: %v", err)
	}
	if o := eviction.DeleteOptions; o != nil && o.Preconditions != nil && o.Preconditions.UID != nil && *o.Preconditions.UID != pod.UID {
		return 0, nil, failf(http.StatusConflict, "Conflict", "Operation cannot be fulfilled on %s: the precondition does not hold", t.kind.named(t.at.name))
	}

	budgets := s.kinds["poddisruptionbudgets/policy"]
	if budgets != nil && pod.Status.Phase == corev1.PodRunning {
		var found []*object
		for _, o := range s.list(&selection{kind: budgets, namespace: t.at.namespace, labels: labels.Everything(), fields: fields.Everything()}, 0) {
			var budget policyv1.PodDisruptionBudget
			if err := decodeInto(o.raw, &budget); err != nil {
				return 0, nil, failf(http.StatusInternalServerError, "InternalError", "decode the budget: %v", err)
			}
			if selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector); err == nil && selector.Matches(labels.Set(pod.Labels)) {
				found = append(found, o)
			}
		}

		if len(found) > 1 {
			return 0, nil, failf(http.StatusInternalServerError, "InternalError", "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")
		}

		if len(found) == 1 {
			next := clone(found[0].content)
			status := sub(next, "status")
			allowed := number(status["disruptionsAllowed"])
			if allowed <= 0 {
				return 0, nil, failf(http.StatusTooManyRequests, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
			}

			status["disruptionsAllowed"] = allowed - 1
			if _, failed := s.update("", budgets, found[0], next, "status"); failed != nil {
				return 0, nil, failed
			}
		}
	}

	s.remove(by, t.kind, was)

	return http.StatusCreated, encode(map[string]any{"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Success"}), nil
}
