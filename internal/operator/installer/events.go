// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Events returns the newest Events of a Node since a time, at most so many, the newest last.
func Events(ctx context.Context, c client.Client, node string, since time.Time, most int) ([]corev1.Event, error) {
	list := &corev1.EventList{}
	err := c.List(ctx, list, client.InNamespace(metav1.NamespaceDefault), client.MatchingFieldsSelector{
		Selector: fields.Set{"involvedObject.kind": "Node", "involvedObject.name": node}.AsSelector(),
	})
	if err != nil {
		return nil, err
	}
	at := func(e corev1.Event) time.Time {
		if e.LastTimestamp.IsZero() {
			return e.EventTime.Time
		}
		return e.LastTimestamp.Time
	}
	found := slices.DeleteFunc(list.Items, func(e corev1.Event) bool { return at(e).Before(since.Truncate(time.Second)) })
	slices.SortStableFunc(found, func(a, b corev1.Event) int { return at(a).Compare(at(b)) })
	return found[max(0, len(found)-most):], nil
}
