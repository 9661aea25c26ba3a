// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAbortRevokesPendingAssignmentsAndCanReturnToThePreviousRevision(t *testing.T) {
	t.Parallel()
	for _, rollback := range []bool{false, true} {
		t.Run(fmt.Sprintf("rollback=%t", rollback), func(t *testing.T) {
			t.Parallel()
			s := play(t, fmt.Sprintf("abort-%t", rollback), 5)
			silent := s.node(0)
			s.label("canary", "yes", s.nodes(0, 2)...)
			r := s.roll("maxPods: 101", `
strategy:
  maxUnavailable: 5
  canarySelector: {canary: "yes"}
  steps: [{nodes: 2}, {pause: {}}, {nodes: 100%}]
approval: {revision: 1, step: 2}
`)
			first := r.complete(1)
			s.do(s.fleet.Silence(silent))
			r.push("maxPods: 102")
			st := r.await(that("the second revision is on a canary", func(st *status) bool { return st.UpdateRevision.Number == 2 && st.Nodes.Updated >= 1 }))
			second := st.UpdateRevision.ConfigMapRef
			got := s.everGiven(second)
			assert.That(t, slices.Contains(got, silent), "the silent node was not given it: %v", got)

			r.edit(func(s *v1alpha1.NodeConfigRolloutSpec) {
				s.Abort = &v1alpha1.RolloutAbort{Revision: 2, Rollback: rollback}
			})
			phase := v1alpha1.RolloutHalted
			if rollback {
				phase = v1alpha1.RolloutRolledBack
			}
			st = r.await(at(2, phase))
			h := st.Halt
			assert.That(t, h.Reason == "Aborted" && h.Message == "stopped by a person" && h.Rollback == rollback, "the stop is %+v", h)
			r.looked()
			src := s.nodeConfig(silent).Spec.ConfigSource
			assert.That(t, src != nil && src.ConfigMapRef.UID == first.UID && src.RolloutRef.Name == r.as && src.RolloutRef.Revision == 1,
				"the silent node has %+v, want its previous source %+v", src, first)
			updated := s.everGiven(second)
			updated = slices.DeleteFunc(updated, func(n string) bool { return n == silent })
			if rollback {
				s.same("have the second revision", s.given(second), nil)
				for _, name := range updated {
					assert.That(t, slices.Contains(s.revoking(second), name), "%s left the second revision and does not revoke it", name)
				}
			} else {
				s.same("keep the second revision", s.running(second), updated)
				for _, name := range updated {
					assert.That(t, !slices.Contains(s.revoking(second), name), "%s keeps the second revision and revokes it", name)
				}
			}
			s.do(s.fleet.Unsilence(t.Context(), silent))
			s.until("the silent node speaks and runs the first revision", func() (string, bool) {
				nc := s.nodeConfig(silent)
				return nameOf(nc.Status.Active), runs(nc, first.UID) && !unsettled(nc)
			})
			st = r.looked()
			assert.That(t, st.Phase == phase, "it did not stay stopped: %s", st.Message)
		})
	}
}
