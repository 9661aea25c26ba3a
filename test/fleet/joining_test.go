package fleet_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// join adds nodes.
func (s *scenario) join(n int) []string {
	s.t.Helper()
	names, err := s.fleet.Add(s.t.Context(), n)
	s.do(err)
	return names
}

// selects requires this number of selected nodes, each counted once.
func selects(n int32) check {
	return func(st *status) error {
		c := st.Nodes
		sum := c.Pending + c.Assigned + c.Trial + c.Soaking + c.Updated + c.Failed + c.Skipped + c.Stale + c.Conflicted + c.Manual + c.Blocked
		if c.Selected != n || sum != n {
			return fmt.Errorf("%d nodes are selected, want %d, and the states count %d", c.Selected, n, sum)
		}
		return nil
	}
}

func TestNodesMayLeaveInEveryStateAndTheRolloutCompletes(t *testing.T) {
	t.Parallel()
	s := play(t, "leaving", 8, faulty("crashloop,node=leaving-4", "silent,node=leaving-7"), longTrials)
	// The five canaries each leave in another state.
	s.label("canary", "yes", s.nodes(0, 5)...)
	s.do(s.fleet.Silence(s.node(0)))
	r := s.roll("maxPods: 101", `
soakSeconds: 4
strategy:
  maxUnavailable: 100%
  canarySelector: {matchLabels: {canary: "yes"}}
  steps: [{nodes: 5}, {nodes: 100%}]
failurePolicy: {maxFailures: 5}
`)
	leave := func(i int, left int32) {
		t.Helper()
		s.do(s.fleet.Remove(t.Context(), s.node(i)))
		r.await(selects(left))
	}
	r.await(that("a node waits", func(st *status) bool { return st.Nodes.Pending > 0 }))
	leave(5, 7)

	s.until("it is assigned something", func() (string, bool) {
		nc := s.nodeConfig(s.node(0))
		return "not yet", nc.Spec.ConfigSource != nil && nc.Status.ObservedGeneration != nc.Generation
	})
	leave(0, 6)
	s.until("it is in its trial", func() (string, bool) { return "not yet", s.nodeConfig(s.node(1)).Status.Trial != nil })
	leave(1, 5)
	r.await(that("a node soaks", func(st *status) bool { return st.Nodes.Soaking > 0 }))
	leave(2, 4)
	r.await(that("it has failed", func(st *status) bool { return len(st.FailedNodes) == 1 && st.FailedNodes[0].Name == s.node(4) }))
	leave(4, 3)
	r.await(that("no node has failed", func(st *status) bool { return st.Nodes.Failed == 0 && len(st.FailedNodes) == 0 }))
	r.await(that("a node is updated", func(st *status) bool { return st.Nodes.Updated > 0 }))
	leave(3, 2)
	// A node whose agent never ran, too.
	leave(7, 1)
	st := r.await(at(1, v1alpha1.RolloutComplete), selects(1), updated(1))
	assert.That(t, st.Updated == "1/1" && st.Nodes.Unavailable == 0, "the status says %+v", st)
}

func TestFailingNewNodesStopOnlyTheServiceOfNewNodes(t *testing.T) {
	t.Parallel()
	late := []string{"joinbad-2", "joinbad-3", "joinbad-4", "joinbad-5"}
	s := play(t, "joinbad", 2, faulty("crashloop,node="+strings.Join(late, ",node=")))
	for _, node := range late { // a node without workload pods needs no budget
		s.pods(node, 1)
	}
	r := s.roll("maxPods: 101", `strategy: {maxUnavailable: 100%, maxJoining: 1, steps: [{nodes: 100%}]}`)
	ref := r.complete(1)
	s.join(len(late))
	st := r.await(selects(6), that("joining is stopped", func(st *status) bool {
		return strings.Contains(st.Message, "joining is stopped: revision 1 failed on 1 node that joined (limit 1): joinbad-") && st.Nodes.Pending == 3
	}))
	if c := condition(st, "JoiningStopped"); c.Status != "True" || c.Reason != "TooManyFailures" || !strings.Contains(c.Message, "rollout retry "+s.name) {
		t.Errorf("JoiningStopped is %+v", c)
	}
	given := s.everGiven(ref)
	assert.That(t, len(given) == 3 && st.Halt == nil && st.Nodes.Failed == 1, "given to %v, and the status says %+v", given, st)
	n := s.nodeConfig(late[0]).Status.WorkloadPods
	assert.That(t, n != nil && *n == 1, "its agent counts %v workload pods, want 1", n)

	// A retry has the node try again, and lets another one join.
	r.edit(func(spec *v1alpha1.NodeConfigRolloutSpec) {
		spec.Retry = &v1alpha1.RolloutRetry{Revision: 1, Attempt: 2}
	})
	r.await(selects(6), that("another one joined and failed", func(st *status) bool {
		return st.Nodes.Failed == 2 && st.Nodes.Pending == 2 && strings.Contains(st.Message, "joining is stopped")
	}))
	given = s.everGiven(ref)
	assert.That(t, len(given) == 4, "given to %v", given)
}
