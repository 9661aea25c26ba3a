package fleet_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// alone stops the shared controller until the test ends.
func alone(t *testing.T) {
	t.Helper()
	assert.NoError(t, shared.stop())
	t.Cleanup(func() {
		var err error
		shared, err = startController("--leader-elect=false")
		assert.NoError(t, err)
	})
}

// controller starts another controller, and kills it when the test ends.
func (s *scenario) controller(flags ...string) *process {
	s.t.Helper()
	p, err := startController(flags...)
	s.do(err)
	s.t.Cleanup(func() { assert.OK(s.t, p.kill()) })
	return p
}

func TestAControllerThatIsKilledFiftyTimesNeverExceedsItsBudget(t *testing.T) { // not parallel: it stops the shared controller
	const kills, budget = 50, 3
	s := play(t, "killed", 30)
	alone(t)
	r := s.roll("maxPods: 101", `strategy: {maxUnavailable: 3, steps: [{nodes: 1}, {nodes: 100%}]}`)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	revisions := int64(1)
	for range kills {
		p, err := spawnController("--leader-elect=false")
		s.do(err)
		// It is up after some 100 ms, and a node is updated within two seconds.
		time.Sleep(time.Duration(random.Int64N(int64(1100 * time.Millisecond)))) // kills it at a random moment
		s.do(p.kill())
		if st := r.object().Status; at(revisions, v1alpha1.RolloutComplete)(&st) == nil {
			revisions++
			r.push("maxPods: " + strings.Repeat("1", int(revisions)))
		}
	}
	s.controller("--leader-elect=false")
	st := r.await(at(revisions, v1alpha1.RolloutComplete), updated(30))
	t.Logf("%d revisions, seed %d", revisions, seed)
	assert.That(t, st.Halt == nil && st.Attempt == 1 && len(st.History) == int(revisions), "seed %d: the status says %+v", seed, st)
	if most := s.most(unproven); most > budget {
		t.Errorf("seed %d: %d nodes were in flight at once, of a budget of %d", seed, most, budget)
	}
	for name, nc := range s.nodeConfigs() {
		if nc.Generation != 1+revisions { // made empty, and one assignment for each revision
			t.Errorf("seed %d: %s was written to %d times, for %d revisions", seed, name, nc.Generation-1, revisions)
		}
	}
}

func TestOnlyTheLeaderWritesAndAnotherControllerTakesOver(t *testing.T) { // not parallel: it stops the shared controller
	s := play(t, "leaders", 6)
	alone(t)
	// A killed controller of another test leaves its lease.
	left := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.ControllerLease}}
	s.do(client.IgnoreNotFound(kube.Delete(t.Context(), left)))
	leads := func(p *process) bool { return strings.Contains(p.said(""), "msg=leading") }
	wrote := func(p *process) bool { return strings.Contains(p.said(""), "msg=moved") }
	awaitLeader := func(p *process) {
		t.Helper()
		s.until("it leads", func() (string, bool) { return p.said(""), leads(p) })
	}
	first := s.controller("--leader-elect-lease-duration=1h")
	awaitLeader(first)
	second := s.controller("--leader-elect-lease-duration=15s")
	r := s.roll("maxPods: 101", `strategy: {maxUnavailable: 1, steps: [{nodes: 100%}]}`)
	progress := func(n int32) {
		t.Helper()
		r.await(that("more nodes are updated", func(st *status) bool { return st.Nodes.Updated >= n }))
	}
	progress(1)
	if leads(second) || wrote(second) || !wrote(first) {
		t.Errorf("the one that waits says:\n%s", second.said(""))
	}

	// A leader that is stopped releases its lease, of an hour.
	s.do(first.stop())
	awaitLeader(second)
	progress(2)

	// After a leader was killed, the next one leads when the lease of 15 s has expired.
	third := s.controller("--leader-elect-lease-duration=15s")
	assert.That(t, !leads(third), "two lead")
	s.do(second.kill())
	awaitLeader(third)
	lease := &coordinationv1.Lease{}
	s.do(kube.Get(t.Context(), types.NamespacedName{Namespace: v1alpha1.SystemNamespace, Name: "evenkeel-controller"}, lease))
	assert.That(t, lease.Spec.LeaseTransitions != nil && *lease.Spec.LeaseTransitions >= 2,
		"the lease changed hands %v times", lease.Spec.LeaseTransitions)
	r.await(at(1, v1alpha1.RolloutComplete), updated(6))
	if most := s.most(unproven); most != 1 {
		t.Errorf("%d nodes were in flight at once, of a budget of 1", most)
	}
	for name, nc := range s.nodeConfigs() {
		assert.That(t, nc.Generation == 2, "%s was written to %d times", name, nc.Generation-1)
	}
}
