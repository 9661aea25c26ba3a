// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// TestForgedTaintsDrainNothingForEver gives a Node the taint of a drain with
// numbers and times that no controller writes.
func TestForgedTaintsDrainNothingForEver(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}}
	for value, want := range map[string]struct {
		rollout string
		since   time.Time
	}{
		"1.1.1777636800." + DrainID("u"):                   {DrainID("u"), now},
		"1.1.7258118400." + DrainID("u"):                   {DrainID("u"), now.Add(-time.Hour)},
		"9223372036854775807.1.1777636800." + DrainID("u"): {unknownDrain, time.Time{}},
		"1.1000000001.1777636800." + DrainID("u"):          {unknownDrain, time.Time{}},
	} {
		node.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintDraining, Value: value, Effect: corev1.TaintEffectNoSchedule}}
		n := NodeOf(node, nil)
		IgnoreLater(&n, now.Add(MaxAhead))
		assert.That(t, n.Drain.Rollout == want.rollout && n.Drain.Since.Equal(want.since), "%s is %+v", value, n.Drain)
	}
}

func TestForgedNumbersOnNodesChooseNoNextNumber(t *testing.T) {
	r := &v1alpha1.NodeConfigRollout{}
	got := highestNumber(r, nil, []int64{3, 1<<63 - 1, maxInheritedNumber + 1})
	assert.Equal(t, got, 3, "the highest number")
}
