package fleet_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestARolloutHaltsAtMaxFailures(t *testing.T) {
	t.Parallel()
	const name = "threshold"
	s := play(t, name, 6, faulty(
		fmt.Sprintf("reject,field=maxPods:7,node=%s-0", name),
		fmt.Sprintf("reject,field=maxPods:8,node=%s-0,node=%[1]s-1", name)))
	s.label("first", "yes", s.nodes(0, 2)...)
	r := s.roll("maxPods: 7", `
strategy:
  maxUnavailable: 4
  canarySelector: {matchLabels: {first: "yes"}}
  steps: [{nodes: 100%}]
failurePolicy: {maxFailures: 2}
`)
	st := r.await(at(1, v1alpha1.RolloutComplete))
	assert.That(t, st.Updated == "5/6" && st.Nodes.Failed == 1 && st.Halt == nil,
		"with one failure it says %s, %+v", st.Message, st.Nodes)
	if x := condition(st, v1alpha1.ConditionDegraded); x.Status != "True" || x.Reason != "NodesFailed" || !strings.Contains(x.Message, s.node(0)+" ValidationFailed") {
		t.Errorf("Degraded is %+v", x)
	}

	r.push("maxPods: 8")
	st = r.await(at(2, v1alpha1.RolloutHalted))
	want := fmt.Sprintf("2 nodes failed (limit 2): %s ValidationFailed, %s ValidationFailed", s.node(0), s.node(1))
	assert.That(t, st.Halt.Reason == "TooManyFailures" && st.Halt.Message == want, "the stop is %+v, want %q", st.Halt, want)
	r.looked()
	bad := st.UpdateRevision.ConfigMapRef
	if got := s.everGiven(bad); len(got) > 6 { // 4 at first, and one more for each that was done before the stop
		t.Errorf("%d nodes were given it: %v", len(got), got)
	}
	if most := s.most(func(nc *v1alpha1.NodeConfig) bool { return gives(nc, bad.UID) && unproven(nc) }); most > 4 {
		t.Errorf("%d nodes were unavailable at a time, of a budget of 4", most)
	}
}

func TestARevisionThatFailsAfterSeveralNodesIsRevokedOnAll(t *testing.T) {
	t.Parallel()
	s := play(t, "rollback", 8, faulty("crashloop,field=maxPods:7,node=rollback-4,node=rollback-5"))
	s.label("canary", "yes", s.nodes(0, 4)...)
	r := s.roll("maxPods: 101", `
strategy:
  maxUnavailable: 4
  canarySelector: {matchLabels: {canary: "yes"}}
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

	// One of those that must go back is silent: the others do not wait for it for long.
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
