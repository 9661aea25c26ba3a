package fleet_test

import (
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheRolloutWithTheHigherPriorityOwnsTheNodes(t *testing.T) {
	t.Parallel()
	s := play(t, "overlap", 5, faulty("slow=3s,field=maxPods:101"))
	low := s.roll("maxPods: 101", `strategy: {maxUnavailable: 2, steps: [{nodes: 100%}]}`)
	low.await(that("two nodes are in flight", func(st *status) bool { return st.Nodes.Assigned+st.Nodes.Trial == 2 }))
	first := low.object().Status.UpdateRevision.ConfigMapRef
	flying := s.given(first)
	high := s.rollAs("overlap-high", "maxPods: 102", `
priority: 10
strategy: {maxUnavailable: 100%, steps: [{nodes: 100%}]}
`)
	st := high.await(at(1, v1alpha1.RolloutComplete), updated(5))
	second := st.UpdateRevision.ConfigMapRef
	s.same("run the second configuration", s.running(second), s.nodes(0, 5))
	s.same("were ever given the first one", s.everGiven(first), flying)
	was := map[string]*v1alpha1.NodeConfig{}
	s.replay(func(name string, now map[string]*v1alpha1.NodeConfig) {
		if old, nc := was[name], now[name]; old != nil && nc != nil && gives(old, first.UID) && gives(nc, second.UID) && unsettled(old) {
			t.Errorf("%s was taken away in flight: generation %d, observed %d, trial %+v", name, old.Generation, old.Status.ObservedGeneration, old.Status.Trial)
		}
		was[name] = now[name]
	})

	st = low.await(at(1, v1alpha1.RolloutNoNodes), that("all are conflicted", func(st *status) bool { return st.Nodes.Conflicted == 5 && st.Updated == "0/0" }))
	assert.That(t, strings.Contains(st.Message, "none of the 5 selected nodes is available to this rollout: 5 belong to other rollouts"),
		"it says: %s", st.Message)

	high.delete()
	low.await(at(1, v1alpha1.RolloutComplete), updated(5))
	s.same("run the first configuration", s.running(first), s.nodes(0, 5))
	got := s.most(func(nc *v1alpha1.NodeConfig) bool { return gives(nc, first.UID) && unproven(nc) })
	assert.That(t, got == 2, "%d nodes were in flight at a time, of a budget of 2", got)
}
