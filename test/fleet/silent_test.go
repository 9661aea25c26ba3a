package fleet_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

func TestAnAssignmentOfASilentAgentIsRevokedAndRetriedLater(t *testing.T) {
	t.Parallel()
	// The last one has no agent at all.
	s := play(t, "silent", 6, faulty("silent,node=silent-5"))
	quiet, without := s.node(4), s.node(5)
	r := s.roll("maxPods: 101", `
strategy: {maxUnavailable: 100%, steps: [{nodes: 100%}]}
`)
	st := r.await(at(1, v1alpha1.RolloutComplete), updated(5))
	first := st.UpdateRevision.ConfigMapRef
	if st.Nodes.Stale != 1 || st.Nodes.Failed != 0 {
		t.Errorf("the counts are %+v", st.Nodes)
	}
	if nc := s.nodeConfig(without); nc.Spec.ConfigSource != nil || nc.Generation != 1 {
		t.Errorf("a node without an agent was given something: generation %d, %+v", nc.Generation, nc.Spec.ConfigSource)
	}

	s.do(s.fleet.Silence(quiet))
	r.push("maxPods: 102")
	st = r.await(at(2, v1alpha1.RolloutProgressing), updated(4), that("two are silent", func(st *v1alpha1.NodeConfigRolloutStatus) bool {
		return st.Nodes.Stale == 2 && st.Nodes.Failed == 0
	}))
	second := st.UpdateRevision.ConfigMapRef
	// One of six may always be away; without two it does not call itself complete.
	r.await(at(2, v1alpha1.RolloutProgressing), that("it says why it is not complete", func(st *v1alpha1.NodeConfigRolloutStatus) bool {
		return strings.Contains(st.Message, "too many nodes are NotReady or have a silent agent to continue without them")
	}))
	s.until("the assignment is taken back", func() (string, bool) {
		on := s.given(second)
		return fmt.Sprint(on), len(on) == 4
	})
	s.same("were ever given the second revision", s.everGiven(second), s.nodes(0, 5))
	s.same("have the second revision", s.given(second), s.nodes(0, 4))
	s.same("have the first revision, as before", s.given(first), []string{quiet})
	s.same("revoke the second revision", s.revoking(second), nil)

	s.do(s.fleet.Unsilence(t.Context(), quiet))
	r.await(at(2, v1alpha1.RolloutComplete), updated(5))
	s.do(s.fleet.Unsilence(t.Context(), without))
	st = r.await(at(2, v1alpha1.RolloutComplete), updated(6))
	s.same("run the second revision", s.running(second), s.nodes(0, 6))
	if h := st.History[0]; h.Failed != 0 || st.Nodes.Stale != 0 {
		t.Errorf("the status says %+v", st)
	}
}
