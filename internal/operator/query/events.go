// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// agentComponent is the source of the Events that agents write.
const agentComponent = "evenkeel-agent"

// maxEvents is the number of Events that are read at most for one question: those of a large fleet would keep an API server busy.
const maxEvents = 10_000

// RolloutEvents returns Events of a rollout.
func RolloutEvents(ctx context.Context, c client.Reader, name string) ([]corev1.Event, error) {
	return eventsOf(ctx, c, fields.Set{"involvedObject.kind": "NodeConfigRollout", "involvedObject.name": name})
}

// NodeEvents returns Events that the agent of a node wrote; without a name, those of all nodes, at most 10,000.
func NodeEvents(ctx context.Context, c client.Reader, name string) ([]corev1.Event, error) {
	of := fields.Set{"involvedObject.kind": "Node", "source": agentComponent}
	if name != "" {
		of["involvedObject.name"] = name
	}
	return eventsOf(ctx, c, of)
}

// eventsOf lists Events of objects without a namespace, which are in the namespace default.
func eventsOf(ctx context.Context, c client.Reader, of fields.Set) ([]corev1.Event, error) {
	var out []corev1.Event
	for e, err := range Pages[*corev1.Event](ctx, c, &corev1.EventList{}, client.InNamespace(metav1.NamespaceDefault),
		client.MatchingFieldsSelector{Selector: of.AsSelector()}) {
		if err != nil {
			return nil, fmt.Errorf("list Events: %w", err)
		}
		if out = append(out, *e); len(out) == maxEvents {
			break
		}
	}
	return slices.Clip(out), nil
}
