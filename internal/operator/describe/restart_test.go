// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"math"
	"testing"

	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheCostOfRestarts(t *testing.T) {
	reported := func(kubelet string, pods int64) fleet.Restart {
		return fleet.Restart{Kubelet: kubelet, PodsUnready: &pods}
	}
	unknown := func(kubelet string) fleet.Restart { return fleet.Restart{Kubelet: kubelet} }
	const begin = "a restart of the kubelet makes pods unready until their next probe: "
	for _, tt := range []struct {
		about string
		nodes []fleet.Restart
		want  string
	}{
		{"no node", nil, ""},
		{"newer kubelets, with and without a number", []fleet.Restart{reported("v1.36.3", 0), unknown("v1.35.4"), unknown("")}, ""},
		{"an old kubelet without probed pods", []fleet.Restart{reported("v1.34.4", 0)}, ""},
		{"one pod", []fleet.Restart{reported("v1.34.4", 1)}, begin + "1 pod on 1 node (kubelet 1.34)"},
		{"old kubelets", []fleet.Restart{reported("v1.34.4", 300), reported("v1.33.13", 10), reported("v1.33.1-eks-1", 2)}, begin + "312 pods on 3 nodes (kubelet 1.33, 1.34)"},
		{"static pods, or the feature gate", []fleet.Restart{reported("v1.37.2", 3), reported("v1.36.3", 0)}, begin + "3 pods on 1 node (kubelet 1.37)"},
		{"agents that do not count", []fleet.Restart{unknown("v1.34.4"), unknown("v1.30.1")}, begin + "an unknown number on 2 nodes (kubelet 1.30, 1.34)"},
		{"a mix", []fleet.Restart{reported("v1.33.13", 5), unknown("v1.34.4"), unknown("v1.36.3")}, begin + "5 pods on 1 node, and an unknown number on 1 node (kubelet 1.33, 1.34)"},
		{"no version", []fleet.Restart{reported("\x1b[31m", 5)}, begin + "5 pods on 1 node"},
		{"absurd numbers", []fleet.Restart{reported("v1.34.4", math.MaxInt64), reported("v1.34.4", math.MaxInt64), reported("v1.34.4", -1)}, begin + "20000 pods on 2 nodes (kubelet 1.34)"},
	} {
		assert.Equal(t, RestartCostOf(tt.nodes).String(), tt.want, tt.about)
	}
}
