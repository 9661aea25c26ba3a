package fleet_test

import (
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestNewNodesDecidesWhatAJoiningNodeGets(t *testing.T) {
	t.Parallel()
	for _, newNodes := range []v1alpha1.NewNodes{v1alpha1.NewNodesLastSucceeded, v1alpha1.NewNodesTarget} {
		t.Run(string(newNodes), func(t *testing.T) {
			t.Parallel()
			target := newNodes == v1alpha1.NewNodesTarget
			s := play(t, map[bool]string{false: "join-last", true: "join-target"}[target], 3)
			r := s.roll("maxPods: 101", `
newNodes: `+string(newNodes)+`
strategy: {maxUnavailable: 4, steps: [{nodes: 1}, {pause: {}}, {nodes: 100%}]}
`)
			// Before anything has succeeded.
			st := r.await(at(1, v1alpha1.RolloutAwaitingApproval))
			first := st.UpdateRevision.ConfigMapRef
			canary := s.given(first)
			_, err := s.fleet.Add(t.Context(), 1)
			s.do(err)
			if target {
				r.await(updated(2))
			} else {
				r.await(that("it waits for its turn", func(st *status) bool { return st.Nodes.Selected == 4 && st.Nodes.Pending == 3 }))
				r.looked()
				s.same("have the first revision", s.given(first), canary)
			}
			r.approve(1, 2)
			r.complete(1)

			// While the second revision is on its way.
			r.push("maxPods: 102")
			st = r.await(at(2, v1alpha1.RolloutAwaitingApproval), updated(1))
			second := st.UpdateRevision.ConfigMapRef
			_, err = s.fleet.Add(t.Context(), 1)
			s.do(err)
			gets, not := first, second
			if target {
				gets, not = second, first
			}
			s.until("the node that joined has proven what it got", func() (string, bool) {
				nc := s.nodeConfig(s.node(4))
				return nameOf(nc.Status.Active), runs(nc, gets.UID) && !unproven(nc)
			})
			r.looked()
			for _, name := range s.everGiven(not) {
				assert.That(t, name != s.node(4), "%s was given %s", name, not.Name)
			}
			r.approve(2, 2)
			r.complete(2)

			// After it has succeeded.
			_, err = s.fleet.Add(t.Context(), 1)
			s.do(err)
			st = r.await(at(2, v1alpha1.RolloutComplete), updated(6))
			s.same("run the second revision", s.running(second), s.nodes(0, 6))
			if nc := s.nodeConfig(s.node(5)); nc.Spec.ConfigSource.RolloutRef.Previous != nil {
				t.Errorf("the last one went a long way round: %+v", nc.Spec.ConfigSource)
			}
			assert.Equal(t, st.Updated, "6/6", "updated")
		})
	}
}
