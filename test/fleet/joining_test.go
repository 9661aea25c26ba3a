package fleet_test

import (
	"slices"
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
		return assert.Unless(c.Selected == n && sum == n, "%d nodes are selected, want %d, and the states count %d", c.Selected, n, sum)
	}
}

func TestNewNodesDecidesWhatAJoiningNodeGets(t *testing.T) {
	t.Parallel()
	for _, newNodes := range []v1alpha1.NewNodes{v1alpha1.NewNodesLastSucceeded, v1alpha1.NewNodesTarget} {
		t.Run(string(newNodes), func(t *testing.T) {
			t.Parallel()
			s := play(t, "join-"+strings.ToLower(string(newNodes)), 3)
			r := s.roll("maxPods: 101", `
newNodes: `+string(newNodes)+`
strategy: {maxUnavailable: 4, steps: [{nodes: 1}, {pause: {}}, {nodes: 100%}]}
`)
			r.await(at(1, v1alpha1.RolloutAwaitingApproval))
			r.approve(1, 2)
			gets := r.complete(1)
			r.push("maxPods: 102")
			st := r.await(at(2, v1alpha1.RolloutAwaitingApproval), updated(1))
			not := st.UpdateRevision.ConfigMapRef
			if newNodes == v1alpha1.NewNodesTarget {
				gets, not = not, gets
			}
			joined := s.join(1)[0]
			s.until("the node that joined has proven what it got", func() (string, bool) {
				nc := s.nodeConfig(joined)
				return nameOf(nc.Status.Active), runs(nc, gets.UID) && !unproven(nc)
			})
			r.looked()
			assert.That(t, !slices.Contains(s.everGiven(not), joined), "%s was given %s", joined, not.Name)
			r.approve(2, 2)
			r.complete(2)
		})
	}
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
