// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"hash/fnv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// skewOf returns the skew of a node's clock, by or -by; a name always has the same sign.
func skewOf(name string, by time.Duration) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(name))
	if h.Sum32()%2 == 0 {
		return -by
	}
	return by
}

// skewed returns a status with shifted times, except those of conditions, which the reporter sets.
func skewed(st v1alpha1.NodeConfigStatus, by time.Duration) v1alpha1.NodeConfigStatus {
	out := *st.DeepCopy()
	shift := func(t *metav1.Time) {
		if t != nil && !t.IsZero() {
			*t = metav1.NewTime(t.Add(by))
		}
	}
	if l := out.LastKnownGood; l != nil {
		shift(l.Since)
	}
	if t := out.Trial; t != nil {
		shift(t.StartTime)
	}
	for i := range out.BadConfigs {
		shift(out.BadConfigs[i].Time)
	}
	return out
}
