// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"syscall"
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
		// A controller that was killed leaves its lease, which the next one
		// takes over only when it has expired. Until then, commands of the
		// tests that follow would say that no controller runs.
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.ControllerLease}}
		assert.NoError(t, client.IgnoreNotFound(kube.Delete(context.Background(), lease)))
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
	s.t.Cleanup(func() {
		if p.Kill(); s.t.Failed() {
			s.t.Log("this test's controller said:\n" + p.said(""))
		}
	})

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
		p.Kill()
		if st := r.object().Status; at(revisions, v1alpha1.RolloutComplete)(&st) == nil {
			revisions++
			r.push("maxPods: " + strings.Repeat("1", int(revisions)))
		}
	}

	s.controller("--leader-elect=false")
	st := r.await(at(revisions, v1alpha1.RolloutComplete), updated(30))
	t.Logf("%d revisions, seed %d", revisions, seed)
	assert.That(t, st.Halt == nil && st.Attempt == 1 && len(st.History) == int(revisions), "seed %d: the status says %+v", seed, st)
	most := s.most(unproven)
	assert.That(t, most <= budget, "seed %d: %d nodes were in flight at once, of a budget of %d", seed, most, budget)
	for name, nc := range s.nodeConfigs() { // made empty, and one assignment for each revision
		assert.Equal(t, nc.Generation, 1+revisions, "seed", seed, "the generation of", name)
	}
}

func TestAFrozenLeaderIsReplacedAndEnds(t *testing.T) { // not parallel: it stops the shared controller
	s := play(t, "frozen", 2)
	alone(t)
	leads := func(p *process) {
		t.Helper()
		s.until("it leads", func() (string, bool) { return p.said(""), strings.Contains(p.said(""), "all watches are synced") })
	}
	former := s.controller()
	leads(former)
	next := s.controller()
	s.do(former.Cmd.Process.Signal(syscall.SIGSTOP))
	// End its lease now, without waiting for it to expire.
	lease := &coordinationv1.Lease{}
	s.do(kube.Get(t.Context(), types.NamespacedName{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.ControllerLease}, lease))
	name := *lease.Spec.HolderIdentity
	s.do(kube.Patch(t.Context(), lease, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"holderIdentity":""}}`))))
	leads(next)
	s.roll("maxPods: 101", `strategy: {maxUnavailable: 100%, steps: [{nodes: 100%}]}`).complete(1)
	s.do(former.Cmd.Process.Signal(syscall.SIGCONT))
	select {
	case <-former.Done:
	case <-time.After(within):
		t.Fatal("the former leader goes on")
	}

	assert.That(t, former.Cmd.ProcessState.ExitCode() == 1 && strings.Contains(former.said(""), "this controller is no longer the leader"),
		"it ended with %s, and said:\n%s", former.Cmd.ProcessState, former.said(""))
	s.do(kube.Get(t.Context(), client.ObjectKeyFromObject(lease), lease))
	holder := *lease.Spec.HolderIdentity
	assert.That(t, holder != "" && holder != name, "the lease of the next one names %q, the former leader is %q", holder, name)
	s.do(next.stop()) // it gives the lease up
}
