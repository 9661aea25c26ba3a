// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"slices"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// Holder returns which of the rollouts that select a node has it; empty if
// there is none. A node in progress stays with its rollout; others go to the
// one with the highest priority, then to the oldest, then by name.
func Holder(claims []Claim, n *Node) string {
	by := n.Source.By().Name
	if n.inFlight() && slices.ContainsFunc(claims, func(c Claim) bool { return c.Name == by }) {
		return by
	}
	if len(claims) == 0 {
		return ""
	}

	return slices.MinFunc(claims, func(a, b Claim) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	}).Name
}

// inFlight reports whether a node has not finished with its assignment.
func (n *Node) inFlight() bool {
	return n.Source.By().Name != "" && (n.Observed != n.Generation || n.InTrial || n.stale())
}

// stale reports whether a node rejects its assignment because of its term or
// time.
func (n *Node) stale() bool {
	return n.OK == "Unknown" && n.Reason == v1alpha1.ReasonStaleAssignment && n.Observed == n.Generation && n.Source.By().Name != ""
}
