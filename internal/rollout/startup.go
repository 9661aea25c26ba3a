// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// A node can register with a taint that keeps pods away until the node runs its
// configuration: the startup taint. The plan of the rollout that has the node
// says what the node can expect (startupState), and StartupNode.Release decides
// about the taint.

// StartupState is what a rollout has for a node with the startup taint.
type StartupState uint8

// The states of nodes with the startup taint.
const (
	StartupWaits      StartupState = iota // for a configuration, or for the first plan
	StartupConfigured                     // the node runs what the rollout wants, and its kubelet is healthy
	StartupNothing                        // the rollout has nothing for the node now
)

// StartupNode is what is known about a Node with the startup taint.
type StartupNode struct {
	Created  time.Time // by the API server's clock
	Selected bool      // by a rollout
	State    StartupState
}

// StartupTimes limit how long a node has the startup taint, from the creation
// of its Node on.
type StartupTimes struct {
	Grace    time.Duration // while no rollout selects the node
	Deadline time.Duration // in any case
}

// StartupRelease is the reason to remove the startup taint from a node; empty:
// the node keeps it.
type StartupRelease string

// The reasons to remove the startup taint.
const (
	StartupKeep         StartupRelease = ""
	ReleasedConfigured  StartupRelease = "configured"
	ReleasedNothing     StartupRelease = "nothing to run"
	ReleasedNotSelected StartupRelease = "not selected"
	ReleasedAtDeadline  StartupRelease = "deadline"
)

// StartupReleases are all reasons to remove the startup taint.
var StartupReleases = []StartupRelease{ReleasedConfigured, ReleasedNothing, ReleasedNotSelected, ReleasedAtDeadline}

// Release decides whether a node loses the startup taint now. If it does not,
// next is when to decide again if nothing changes.
func (n StartupNode) Release(now time.Time, t StartupTimes) (why StartupRelease, next time.Time) {
	deadline, grace := n.Created.Add(t.Deadline), n.Created.Add(t.Grace)
	switch {
	case n.Selected && n.State == StartupConfigured:
		return ReleasedConfigured, time.Time{}
	case n.Selected && n.State == StartupNothing:
		return ReleasedNothing, time.Time{}
	case !n.Selected && !now.Before(grace):
		return ReleasedNotSelected, time.Time{}
	case !now.Before(deadline):
		return ReleasedAtDeadline, time.Time{}
	case !n.Selected && grace.Before(deadline):
		return StartupKeep, grace
	}

	return StartupKeep, deadline
}

// startup finds out what the nodes with the startup taint can expect.
func (d *planner) startup() {
	d.Startup = map[int]StartupState{}
	for i := range d.nodes {
		if n := &d.nodes[i]; n.Startup && n.Owner == "" {
			d.Startup[i] = d.startupState(i)
		}
	}
}

// startupState returns what a node with the startup taint can expect, after all
// moves were decided.
func (d *planner) startupState(i int) StartupState {
	n, s := &d.nodes[i], d.States[i]
	_, newcomer := d.joins.newcomers[i]
	switch {
	case n.manual(), n.OtherSource != "":
		return StartupNothing
	case d.moved[i], s == Draining, newcomer && !d.joins.stopped:
		return StartupWaits
	case n.Source.By().Name == d.in.Name:
		return d.startupAssigned(n)
	case s == Blocked && !d.stopped(): // the target was taken back, and is offered again
		return StartupWaits
	case n.Source == nil && n.Created.After(d.in.Created) && d.willJoin(): // when it is Ready and its agent answers
		return StartupWaits
	}

	return StartupNothing
}

// willJoin reports whether new nodes get a revision, now or when all agents
// have been asked about it.
func (d *planner) willJoin() bool {
	return d.joins.possible && !d.joins.stopped || d.asking && d.in.Spec.NewNodes == v1alpha1.NewNodesTarget && !d.in.Spec.Frozen
}

// startupAssigned is startupState for a node whose source this rollout wrote.
func (d *planner) startupAssigned(n *Node) StartupState {
	h := d.Next.Halt
	switch {
	case n.Observed != n.Generation, n.Created.After(n.Source.By().AssignedAt.Time) && !n.Known:
		return StartupWaits // its status may be about the configuration before, or about another machine with the same name
	case !isConfigMap(n.Source): // it went back to its local configuration
		return StartupNothing
	case h != nil && h.Rollback && !d.in.Spec.Frozen && d.assignedTarget(n): // it goes back
		return StartupWaits
	case n.healthy() && n.Active.Digest() == n.Source.Content().SHA256 && (!n.InTrial || n.TrialHealthy):
		return StartupConfigured
	case n.OK == "False" && !n.Provisional && !n.refuses(): // the node does not try it again
		return StartupNothing
	}

	return StartupWaits
}
