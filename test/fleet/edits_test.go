package fleet_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// byHand replaces what a node is to run, as a person does.
func (s *scenario) byHand(node, source string) int64 {
	s.t.Helper()
	nc := s.nodeConfig(node)
	patch := fmt.Sprintf(`[{"op":"add","path":"/spec","value":%s}]`, source)
	s.do(kube.Patch(s.t.Context(), nc, client.RawPatch(types.JSONPatchType, []byte(patch))))
	return nc.Generation
}

func TestAManuallyAssignedNodeIsNotServedUntilItIsReturned(t *testing.T) {
	t.Parallel()
	s := play(t, "byhand", 4)
	s.label("canary", "yes", s.node(0))
	r := s.roll("maxPods: 101", `
strategy:
  maxUnavailable: 1
  canarySelector: {matchLabels: {canary: "yes"}}
  steps: [{nodes: 1}, {pause: {}}, {nodes: 100%}]
`)
	ref := r.await(at(1, v1alpha1.RolloutAwaitingApproval)).UpdateRevision.ConfigMapRef
	manual := []string{s.node(0), s.node(3)} // one that has the revision, one that does not
	generation := map[string]int64{}
	for _, name := range manual {
		generation[name] = s.byHand(name, `{"configSource":{"local":{}}}`)
	}
	r.await(that("two nodes are manual", func(st *status) bool { return st.Nodes.Manual == 2 }))
	r.approve(1, 1)
	st := r.await(at(1, v1alpha1.RolloutComplete), updated(2))
	assert.That(t, st.Updated == "2/2" && st.Nodes.Manual == 2 && st.Nodes.Failed == 0, "the counts are %s, %+v", st.Updated, st.Nodes)
	r.looked()
	for _, name := range manual {
		nc := s.nodeConfig(name)
		assert.That(t, nc.Generation == generation[name] && nc.Spec.ConfigSource.Local != nil, "%s was overwritten: %+v", name, nc.Spec)
	}
	for _, name := range manual {
		s.byHand(name, `{}`)
	}
	r.await(at(1, v1alpha1.RolloutComplete), updated(4))
	s.same("run the revision", s.running(ref), s.nodes(0, 4))
}

func TestARolloutContinuesDespiteConstantEdits(t *testing.T) {
	t.Parallel()
	s := play(t, "edited", 8)
	r := s.roll("maxPods: 101", `strategy: {maxUnavailable: 2, steps: [{nodes: 100%}]}`)
	edits := 0
	s.until("it is complete", func() (string, bool) {
		r.edit(func(spec *v1alpha1.NodeConfigRolloutSpec) {
			*spec.RevisionHistoryLimit = 20 + (*spec.RevisionHistoryLimit+1)%2
		})
		edits++
		st := r.object().Status
		return fmt.Sprintf("%s after %d edits: %s", st.Phase, edits, st.Message), st.Phase == v1alpha1.RolloutComplete
	})
	st := r.await(at(1, v1alpha1.RolloutComplete), updated(8))
	assert.That(t, len(st.History) == 1 && st.Attempt == 1, "the status says %+v", st)
	if most := s.most(unproven); most > 2 {
		t.Errorf("%d nodes were in flight at once, of a budget of 2", most)
	}
	for name, nc := range s.nodeConfigs() {
		assert.That(t, nc.Generation == 2, "%s was written to %d times", name, nc.Generation-1)
	}
}

func TestAnOutageOfTheAPIServerIsNotAFailure(t *testing.T) { // not parallel: all tests share the API server
	s := play(t, "apigone", 8)
	r := s.roll("maxPods: 101", `strategy: {maxUnavailable: 3, steps: [{nodes: 100%}]}`)
	r.await(that("some nodes are updated", func(st *status) bool { return st.Nodes.Updated >= 2 }))
	s.do(cluster.StopAPIServer())
	// Longer than agents may be silent, Nodes NotReady, and kubelets unhealthy.
	gone := time.NewTimer(max(agentTimeout, notReadyGrace) + time.Second)
	defer gone.Stop()
	select {
	case <-gone.C:
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
	s.do(cluster.StartAPIServer(t.Context()))
	st := r.await(at(1, v1alpha1.RolloutComplete), updated(8))
	assert.That(t, st.Nodes.Failed == 0 && st.Attempt == 1 && len(st.History) == 1 && st.History[0].Failed == 0, "the status says %+v", st)
	s.same("blame a configuration", s.those(func(nc *v1alpha1.NodeConfig) bool { return len(nc.Status.BadConfigs) > 0 }), nil)
	s.same("run the revision", s.running(st.UpdateRevision.ConfigMapRef), s.nodes(0, 8))
	for name, nc := range s.nodeConfigs() {
		if nc.Generation != 2 { // made empty, and one assignment: none was taken back
			t.Errorf("%s was written to %d times", name, nc.Generation-1)
		}
	}
	if most := s.most(unproven); most > 3 {
		t.Errorf("%d nodes were in flight at once, of a budget of 3", most)
	}
}
