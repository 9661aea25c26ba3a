// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

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
