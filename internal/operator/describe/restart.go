// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// RestartCost is what restarts of the kubelets of some nodes cost the pods
// there.
type RestartCost struct {
	PodsUnready int64 `json:"podsUnready"` // until their next probe, as the agents counted them last
	Nodes       int   `json:"nodes"`       // with such pods
	// UnknownNodes is the number of nodes whose kubelet makes pods unready, and
	// whose agents do not report how many.
	UnknownNodes int      `json:"unknownNodes,omitempty"`
	Kubelets     []string `json:"kubelets"` // minor versions on all these nodes, such as 1.34
}

// mostPods limits what one agent can add to a sum.
const mostPods = 10_000

// RestartCostOf returns the cost of one restart on each node; nil if there is
// none.
func RestartCostOf(restarts []fleet.Restart) *RestartCost {
	c := &RestartCost{Kubelets: []string{}}
	minors := map[uint]bool{}
	for _, r := range restarts {
		v, err := version.ParseGeneric(r.Kubelet)
		known := err == nil && v.Major() == 1
		switch {
		case r.PodsUnready == nil && known && v.Minor() <= fleet.LastResetting:
			c.UnknownNodes++
		case r.PodsUnready != nil && *r.PodsUnready > 0:
			c.PodsUnready += min(*r.PodsUnready, mostPods)
			c.Nodes++
		default:
			continue
		}

		if known {
			minors[v.Minor()] = true
		}
	}

	if c.Nodes+c.UnknownNodes == 0 {
		return nil
	}

	for _, minor := range slices.Sorted(maps.Keys(minors)) {
		c.Kubelets = append(c.Kubelets, fmt.Sprintf("1.%d", minor))
	}

	return c
}

// String returns the words of a note; empty if there is no cost.
func (c *RestartCost) String() string {
	if c == nil {
		return ""
	}

	var where []string
	if c.Nodes > 0 {
		where = append(where, fmt.Sprintf("%s on %s", printable.Count(int(c.PodsUnready), "pod"), printable.Count(c.Nodes, "node")))
	}
	if c.UnknownNodes > 0 {
		where = append(where, "an unknown number on "+printable.Count(c.UnknownNodes, "node"))
	}

	words := "a restart of the kubelet makes pods unready until their next probe: " + strings.Join(where, ", and ")
	if len(c.Kubelets) > 0 {
		words += " (kubelet " + printable.Few(c.Kubelets) + ")"
	}

	return words
}
