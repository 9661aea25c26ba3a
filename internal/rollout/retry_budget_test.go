// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestARetryWaitsForAFailedNodeThatIsDownOrOnTrialIfTheBudgetIsUsedUp(t *testing.T) {
	for what, change := range map[string]func(w *world, n *Node){
		"NotReady": func(w *world, n *Node) { w.setNotReady(n, true) },
		"on trial": func(w *world, n *Node) { n.InTrial = true },
		"silent":   func(_ *world, n *Node) { n.Generation++ },
	} {
		w := fleet(3)
		w.assigned("n1", "n2", "n3")
		w.judge("False", v1alpha1.ReasonCrashLooped, "n1", "n2", "n3")
		w.in.Spec.FailurePolicy.MaxFailures, w.in.Spec.Strategy.MaxUnavailable = number(100), number(1)
		w.in.Spec.Retry = &v1alpha1.RolloutRetry{Revision: 1, Attempt: 2}
		change(w, w.node("n1"))
		r := w.plan()
		for _, m := range r.Moves {
			assert.That(t, w.nodes[m.Node].Name == "n1",
				"n1 is %s and uses up the budget, and %s is assigned the target again", what, w.nodes[m.Node].Name)
		}
	}
}

// crowdedFleet is a fleet of five nodes, of which two may be unavailable. Three
// refuse revision 1 because of their pods, and revision 2, the target, has
// failed on some of the others.
func crowdedFleet(failed int) *world {
	w := fleet(5)
	w.assigned("n1", "n2", "n3", "n4", "n5")
	w.in.Spec.FailurePolicy.MaxFailures, w.in.Spec.Strategy.MaxUnavailable = number(100), number(2)
	w.target("r2")
	w.in.Status.UpdateRevision = new(w.in.Target)
	w.judge("False", v1alpha1.ReasonWouldEvictPods, "n1", "n2", "n3", "n4", "n5")
	for i := range w.nodes {
		n := &w.nodes[i]
		if i >= 3 {
			n.OK, n.Reason, n.Active = "True", v1alpha1.ReasonAllChecksPassed, ref("uid-r1", "r1")
			n.LastKnownGood = n.Active
		}

		if i >= 5-failed {
			n.OK, n.Reason = "False", v1alpha1.ReasonCrashLooped
			n.Source.Content().UID, n.Source.Content().SHA256, n.Source.By().Revision = "uid-r2", "r2", 2
		}
	}

	return w
}

func TestTheTargetBeginsOnNoMoreNodesThanTheBudgetAllows(t *testing.T) {
	for _, drain := range []v1alpha1.DrainMode{v1alpha1.DrainNever, v1alpha1.DrainAlways} {
		for failed, want := range []int{2, 1, 0} {
			w := crowdedFleet(failed)
			w.in.Spec.Strategy.Drain = drain
			r := w.plan()
			for range 3 {
				r.Moves = append(r.Moves, w.plan().Moves...)
			}

			begun := 0
			for i := range w.nodes {
				if n := &w.nodes[i]; n.Drain.Rollout != "" || n.Source.Content().SHA256 == "r2" {
					begun++
				}
			}

			assert.Equal(t, begun-failed, want, "drain", drain, "the target begins after", failed, "have failed, with the moves", r.Moves)
		}
	}
}

func TestARejectedAssignmentOfTheTargetDoesNotWaitForNodesThatRefuseAnEarlierRevision(t *testing.T) {
	w := crowdedFleet(0)
	w.in.Term, w.in.Spec.Strategy.MaxUnavailable = 2, number(1)
	n := w.node("n5")
	n.OK, n.Reason, n.Source.Content().UID, n.Source.Content().SHA256, n.Source.By().Revision, n.Source.By().Term = "Unknown", v1alpha1.ReasonStaleAssignment, "uid-r2", "r2", 2, 1
	n.Active, n.LastKnownGood = nil, nil
	moves := w.plan().Moves
	assert.That(t, len(moves) == 1, "moves %+v, want one", moves)
}
