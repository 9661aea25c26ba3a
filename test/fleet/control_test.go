package fleet_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

func TestAPausedRolloutServesNodesThatJoinAndAFrozenOneDoesNot(t *testing.T) {
	t.Parallel()
	s := play(t, "pause", 4)
	r := s.roll("maxPods: 101", `
strategy: {maxUnavailable: 4, steps: [{nodes: 100%}]}
`)
	first := r.complete(1)
	r.edit(func(s *v1alpha1.NodeConfigRolloutSpec) {
		s.Strategy.MaxUnavailable.IntVal = 1
		s.Template = r.template("maxPods: 102")
	})
	r.await(that("one node is updated", func(st *status) bool { return st.UpdateRevision.Number == 2 && st.Nodes.Updated >= 1 }))
	r.edit(func(s *v1alpha1.NodeConfigRolloutSpec) { s.Paused = true })
	st := r.await(at(2, v1alpha1.RolloutPaused))
	if !strings.HasPrefix(st.Message, "spec.paused; revision 2: ") || condition(st, v1alpha1.ConditionProgressing).Status != "False" {
		t.Errorf("it says %s, %+v", st.Message, st.Conditions)
	}
	second := st.UpdateRevision.ConfigMapRef
	had := s.given(second)
	if len(had) == 0 || len(had) == 4 {
		t.Fatalf("%v have the second revision: the test shows nothing", had)
	}

	_, err := s.fleet.Add(t.Context(), 1) // joins while it is paused
	s.do(err)
	r.await(that("there are 5 nodes, and what was in flight is updated", func(st *status) bool {
		return st.Nodes.Selected == 5 && st.Nodes.Updated == int32(len(had)) && st.Nodes.Pending == int32(5-len(had))
	}))
	r.looked()
	s.same("have the second revision", s.given(second), had)
	s.until("the node that joined runs the first revision", func() (string, bool) {
		nc := s.nodeConfig(s.node(4))
		return nameOf(nc.Status.Active), runs(nc, first.UID) && !unproven(nc)
	})

	r.edit(func(s *v1alpha1.NodeConfigRolloutSpec) { s.Paused, s.Frozen = false, true })
	st = r.await(at(2, v1alpha1.RolloutFrozen))
	if !strings.HasPrefix(st.Message, "spec.frozen: no node moves, not even new nodes; ") {
		t.Errorf("it says %s", st.Message)
	}
	_, err = s.fleet.Add(t.Context(), 1) // joins while it is frozen
	s.do(err)
	r.await(that("there are 6 nodes", func(st *status) bool { return st.Nodes.Selected == 6 }))
	r.looked()
	if nc := s.nodeConfig(s.node(5)); nc.Generation != 1 || nc.Spec.ConfigSource != nil {
		t.Errorf("a frozen rollout served a node that joined: %+v", nc.Spec)
	}
	s.same("were ever given the second revision", s.everGiven(second), had)

	r.edit(func(s *v1alpha1.NodeConfigRolloutSpec) { s.Frozen, s.Strategy.MaxUnavailable.IntVal = false, 6 })
	r.complete(2)
	s.same("run the second revision", s.running(second), s.nodes(0, 6))
}

func TestAPauseEndsByApprovalOrByItselfAndTheLastStepApprovesAll(t *testing.T) {
	t.Parallel()
	s := play(t, "promote", 6)
	r := s.roll("maxPods: 101", `
strategy:
  maxUnavailable: 6
  steps: [{nodes: 1}, {pause: {}}, {nodes: 2}, {pause: {duration: 4s}}, {nodes: 3}, {pause: {}}, {nodes: 100%}]
`)
	st := r.await(at(1, v1alpha1.RolloutAwaitingApproval))
	ref := st.UpdateRevision.ConfigMapRef
	if st.StepsDone != "1/7" || st.Step != 1 || !strings.Contains(st.Message, "1/7 steps done; waiting for approval: kubectl evenkeel rollout promote promote") {
		t.Errorf("step %d, %s: %s", st.Step, st.StepsDone, st.Message)
	}
	r.approve(2, 6) // a revision that does not exist
	r.looked()
	if got := s.everGiven(ref); len(got) != 1 {
		t.Errorf("at the first pause it was assigned to %v", got)
	}

	r.approve(1, 1)
	st = r.await(at(1, v1alpha1.RolloutWaiting))
	if st.StepsDone != "3/7" || !strings.Contains(st.Message, "3/7 steps done; waiting until ") || len(s.everGiven(ref)) != 2 {
		t.Errorf("%s: %s; %v were given it", st.StepsDone, st.Message, s.everGiven(ref))
	}
	began := st.StepTime
	st = r.await(at(1, v1alpha1.RolloutAwaitingApproval))
	if st.StepsDone != "5/7" || len(s.everGiven(ref)) != 3 {
		t.Errorf("%s; %v were given it", st.StepsDone, s.everGiven(ref))
	}
	third := ""
	for _, name := range s.given(ref) {
		if at := s.nodeConfig(name).Spec.ConfigSource.RolloutRef.AssignedAt; at.After(began.Time) {
			third = name
			if waited := at.Sub(began.Time); waited.Seconds() < 4 {
				t.Errorf("the timed pause took %s", waited)
			}
		}
	}
	if third == "" {
		t.Error("no node was assigned it after the timed pause")
	}

	r.approve(1, 6) // promote --full
	r.complete(1)
	s.same("run it", s.running(ref), s.nodes(0, 6))

	r.edit(func(s *v1alpha1.NodeConfigRolloutSpec) { // the next one is approved before it begins
		s.Template, s.Approval = r.template("maxPods: 102"), &v1alpha1.RolloutApproval{Revision: 2, Step: 6}
	})
	second := r.complete(2)
	s.same("run the second revision", s.running(second), s.nodes(0, 6))
	if most := s.most(func(nc *v1alpha1.NodeConfig) bool { return gives(nc, second.UID) && unproven(nc) }); most != 6 {
		t.Errorf("%d nodes moved at a time, although all steps were approved", most)
	}
}

func TestRetryTriesTheRevisionOnTheNamedNodes(t *testing.T) {
	t.Parallel()
	s := play(t, "retry", 4)
	s.fault("reject", s.node(0), s.node(1))
	// The nodes that fail are slower than the others: a stop takes back what a node has not adopted yet.
	for _, name := range s.nodes(0, 2) {
		s.do(s.fleet.Silence(name))
	}
	r := s.roll("maxPods: 101", `
strategy: {maxUnavailable: 100%, steps: [{nodes: 100%}]}
failurePolicy: {maxFailures: 2}
`)
	r.await(updated(2))
	for _, name := range s.nodes(0, 2) {
		s.do(s.fleet.Unsilence(t.Context(), name))
	}
	st := r.await(at(1, v1alpha1.RolloutHalted), updated(2))
	ref := st.UpdateRevision.ConfigMapRef
	for _, name := range s.nodes(0, 2) {
		s.do(s.fleet.ClearFault(name))
	}
	st = r.looked()
	if st.Phase != v1alpha1.RolloutHalted || len(s.running(ref)) != 2 {
		t.Errorf("the stop was lifted by itself: %s", st.Message)
	}

	r.edit(func(spec *v1alpha1.NodeConfigRolloutSpec) {
		spec.Retry = &v1alpha1.RolloutRetry{Revision: 1, Attempt: 2, Nodes: []string{s.node(0)}}
	})
	st = r.await(at(1, v1alpha1.RolloutComplete), updated(3))
	if st.Halt != nil || st.Attempt != 2 || st.Nodes.Failed != 1 {
		t.Errorf("the status says %+v", st)
	}
	attempts := func() (out []int64) {
		for _, name := range s.nodes(0, 4) {
			out = append(out, s.nodeConfig(name).Spec.ConfigSource.RolloutRef.Attempt)
		}
		return out
	}
	r.looked()
	if got := attempts(); !slices.Equal(got, []int64{2, 1, 1, 1}) {
		t.Errorf("the attempts are %v", got)
	}

	r.edit(func(spec *v1alpha1.NodeConfigRolloutSpec) {
		spec.Retry = &v1alpha1.RolloutRetry{Revision: 1, Attempt: 3}
	})
	st = r.await(at(1, v1alpha1.RolloutComplete), updated(4))
	if st.Attempt != 3 || st.Nodes.Failed != 0 || condition(st, v1alpha1.ConditionDegraded).Status != "False" {
		t.Errorf("the status says %+v", st)
	}
	if got := attempts(); !slices.Equal(got, []int64{2, 3, 1, 1}) {
		t.Errorf("the attempts are %v", got)
	}
}
