// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// ObservationOf returns the observation in a NodeConfig's annotation; zero if there is none, or if no controller can have written
// it.
func ObservationOf(nc *v1alpha1.NodeConfig) rollout.Observation {
	var o rollout.Observation
	err := json.Unmarshal([]byte(nc.Annotations[v1alpha1.AnnotationObserved]), &o)
	if err != nil || !numbered(o.Revision, o.Attempt, o.Failed, int64(o.Offers)) || o.Maintenance.Total < 0 {
		return rollout.Observation{}
	}
	return o
}

// ObservationText returns an observation as the annotation stores it.
func ObservationText(o rollout.Observation) (string, error) {
	o.HealthySince, o.Blocked = o.HealthySince.UTC(), o.Blocked.UTC()
	o.Maintenance.Since, o.Maintenance.Ended = o.Maintenance.Since.UTC(), o.Maintenance.Ended.UTC()
	text, err := json.Marshal(o)
	if err != nil {
		return "", fmt.Errorf("encode an observation: %w", err)
	}
	return string(text), nil
}

// numbered reports whether a controller can have counted to all of these numbers.
func numbered(numbers ...int64) bool {
	return slices.Min(numbers) >= 0 && slices.Max(numbers) <= v1alpha1.MaxNumber
}

// MaxAhead is by how much a time that a controller recorded may be ahead of another controller's clock.
const MaxAhead = time.Minute

// IgnoreLater removes from a node the records that are later than a time: no controller has written them. What is timed by the
// record then counts from the creation of the Node, or from when the controller began to observe the fleet.
func IgnoreLater(n *rollout.Node, latest time.Time) {
	o := &n.Observation
	for _, t := range []time.Time{o.HealthySince, o.Blocked, o.Maintenance.Since, o.Maintenance.Ended} {
		if t.After(latest) {
			n.Observation = rollout.Observation{}
			ignore(n, "the annotation "+v1alpha1.AnnotationObserved)
			break
		}
	}
	if n.Source.By().AssignedAt.After(latest) {
		n.Source = n.Source.DeepCopy()
		n.Source.RolloutRef.AssignedAt = metav1.NewTime(n.Created)
		ignore(n, "the time of its rolloutRef")
	}
	if n.Drain.Since.After(latest) {
		n.Drain.Since = n.Created
		ignore(n, "the time of its taint "+v1alpha1.TaintDraining)
	}
}

// ignore notes a record that cannot be the controller's.
func ignore(n *rollout.Node, what string) {
	n.Ignored = strings.TrimPrefix(n.Ignored+" and "+what, " and ")
}
