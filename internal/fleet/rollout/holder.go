package rollout

import (
	"cmp"
	"slices"
)

// Precedes orders rollouts that select the same node: the higher priority first, then the older, then by name.
func Precedes(a, b Claim) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
}

// Holder returns the name of the rollout that has a node, among those that select it; empty if none does. A node that is
// in flight stays with the one that it is in flight for.
func Holder(claims []Claim, n *Node) string {
	if n.inFlight() {
		for _, c := range claims {
			if c.Name == n.Source.Rollout {
				return c.Name
			}
		}
	}
	if len(claims) == 0 {
		return ""
	}
	return slices.MinFunc(claims, Precedes).Name
}

// inFlight tells whether a node has been given a source that it has not dealt with yet.
func (n *Node) inFlight() bool {
	return n.Source.Rollout != "" && (n.Observed != n.Generation || n.InTrial || n.stale())
}

// stale reports whether a node refuses its source because of who assigned it, or when.
func (n *Node) stale() bool {
	return n.Source.Rollout != "" && n.Observed == n.Generation && n.OK == "Unknown" && n.Reason == agentStale
}
