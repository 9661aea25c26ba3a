// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestARevisionThatFailsAfterSeveralNodesIsRevokedOnAll(t *testing.T) {
	t.Parallel()
	s := play(t, "rollback", 8, faulty("crashloop,field=maxPods:7,node=rollback-4,node=rollback-5"))
	s.label("canary", "yes", s.nodes(0, 4)...)
	r := s.roll("maxPods: 101", `
strategy:
  maxUnavailable: 4
  canarySelector: {canary: "yes"}
  steps: [{nodes: 4}, {pause: {}}, {nodes: 100%}]
failurePolicy: {action: Rollback}
rollback: {maxUnavailable: 1}
approval: {revision: 1, step: 2}
`)
	good := r.complete(1)
	r.push("maxPods: 7")
	st := r.await(at(2, v1alpha1.RolloutAwaitingApproval), updated(4))
	bad := st.UpdateRevision.ConfigMapRef
	s.same("the canaries run the second revision", s.running(bad), s.nodes(0, 4))

	// One of those that must go back is silent: the others do not wait for it
	// for long.
	silent := s.node(1)
	s.do(s.fleet.Silence(silent))
	r.approve(2, 1)
	st = r.await(at(2, v1alpha1.RolloutRolledBack))
	assert.That(t, st.Halt.Reason == "TooManyFailures" && st.Halt.Rollback, "the stop is %+v", st.Halt)
	h := st.History
	assert.That(t, h[0].Outcome == v1alpha1.OutcomeRolledBack && h[0].Reason == v1alpha1.HaltTooManyFailures && h[0].Revision == 2 &&
		h[0].Failed >= 1 && h[1].Outcome == v1alpha1.OutcomeSucceeded && h[1].Reason == "", "the history is %+v", h)
	for _, f := range st.FailedNodes { // they are listed after they have gone back
		assert.That(t, f.Reason == v1alpha1.ReasonCrashLooped && (f.Name == s.node(4) || f.Name == s.node(5)), "failed: %+v", f)
	}

	assert.That(t, len(st.FailedNodes) != 0, "no node is listed as failed")
	assert.That(t, strings.Contains(st.Message, "the rollback was assigned to all its nodes, but 1 node still runs it: "+silent),
		"it says: %s", st.Message)
	s.same("have the first revision", s.given(good), s.nodes(0, 8))
	left := s.everGiven(bad)
	s.same("revoke the second one", s.revoking(bad), left)
	assert.That(t, slices.Contains(left, s.node(4)) || slices.Contains(left, s.node(5)), "no broken node was given it: %v", left)
	healthy := s.nodes(0, 4)
	if most := s.most(func(nc *v1alpha1.NodeConfig) bool {
		return slices.Contains(healthy, nc.Name) && nc.Name != silent && slices.Contains(nc.Spec.Revoked, bad.UID) && unsettled(nc)
	}); most != 1 {
		t.Errorf("%d healthy nodes went back at a time, of a budget of 1", most)
	}

	s.do(s.fleet.Unsilence(t.Context(), silent))
	s.until("all run the first revision", func() (string, bool) {
		on := s.running(good)
		return strings.Join(on, " "), slices.Equal(on, s.nodes(0, 8))
	})
}
