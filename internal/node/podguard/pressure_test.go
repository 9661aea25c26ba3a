// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evenkeel/evenkeel/internal/component"
)

// The kubelet removes images only near a threshold, so a margin as large as
// that of memory would refuse ordinary nodes.
func TestTheMarginOfFilesystemsIsSmall(t *testing.T) {
	config := component.Effective{"evictionHard": map[string]any{"imagefs.available": "10%", "memory.available": "10%"}}
	for _, tt := range []struct {
		usage Usage
		lost  bool
	}{
		{Usage{ImageFS: Level{Capacity: 10000, Available: 1021}}, false},
		{Usage{ImageFS: Level{Capacity: 10000, Available: 1019}}, true},
		{Usage{Memory: Level{Capacity: 10000, Available: 1101}}, false},
		{Usage{Memory: Level{Capacity: 10000, Available: 1099}}, true},
	} {
		in := Input{Minor: newestMinor, Before: config, After: config, Usage: tt.usage, Node: &corev1.Node{}, Pods: []*corev1.Pod{{}}}
		in.Node.Status.Capacity = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")}
		in.Node.Status.Allocatable = in.Node.Status.Capacity
		if got := Predict(in); (len(got) > 0) != tt.lost {
			t.Errorf("%+v: %+v", tt.usage, got)
		}
	}
}
