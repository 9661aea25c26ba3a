// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestANewLeaderRestartsAnUnrecordedSoak(t *testing.T) {
	for name, change := range map[string]func(*Observation){
		"nothing":             func(m *Observation) { *m = Observation{} },
		"of another rollout":  func(m *Observation) { m.Rollout = "others" },
		"of another revision": func(m *Observation) { m.Revision++ },
		"of another attempt":  func(m *Observation) { m.Attempt++ },
		"from the future":     func(m *Observation) { m.HealthySince = m.HealthySince.Add(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			w := fleet(1)
			w.in.soak(10 * time.Minute)
			w.runFor(80 * time.Second)
			change(&w.nodes[0].Observation)
			w.now = w.now.Add(10 * time.Minute)
			w.in.Outages = seenSince(w.now)
			w.plan()
			assert.Must(t, w.last.States[0] == Soaking && w.nodes[0].Observation.HealthySince.Equal(w.now),
				"the node is %s, its mark %+v at %s", w.last.States[0], w.nodes[0].Observation, w.now)
			w.now = w.now.Add(10 * time.Minute)
			w.plan()
			assert.Equal(t, w.last.States[0], Updated, "after the whole soak the node")
		})
	}
}

func TestALongTrialDoesNotDelayTheRollback(t *testing.T) {
	w := fleet(3)
	w.in.Spec.Rollback.MaxUnavailable = number(1)
	w.runFor(2 * time.Minute)
	assert.Must(t, w.last.Next.Phase == v1alpha1.RolloutComplete, "it is %s", w.last.Next.Phase)
	w.in.Spec.Abort = &v1alpha1.RolloutAbort{Revision: 1, Rollback: true}
	first := w.plan()
	assert.Must(t, len(first.Moves) == 1, "%d nodes go back at first", len(first.Moves))
	n := &w.nodes[first.Moves[0].Node]
	n.Observed, n.InTrial, n.TrialLength = n.Generation, true, 168*time.Hour
	w.now = w.now.Add(seconds(w.in.Spec.NodeTimeoutSeconds) + maxRollbackTrial - time.Second)
	r := w.plan()
	assert.That(t, len(r.Moves) == 0, "%d more nodes go back too early", len(r.Moves))
	w.now = w.now.Add(time.Second)
	r = w.plan()
	assert.That(t, len(r.Moves) == 1, "%d more nodes go back after %s", len(r.Moves), seconds(w.in.Spec.NodeTimeoutSeconds)+maxRollbackTrial)
}
