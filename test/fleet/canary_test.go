// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestACanaryStopsABadConfigurationBeforeOtherNodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind    string
		reasons []string
		words   string // of the node
	}{
		{"reject", []string{v1alpha1.ReasonValidationFailed}, "set to reject it"},
		{"crashloop", []string{v1alpha1.ReasonCrashLooped}, "crash-looped"},
		// Whoever is quicker: the node itself, or the controller that looks at the Node.
		{"notready", []string{v1alpha1.ReasonNotReady, "NodeNotReady"}, "ready"},
	} {
		t.Run(c.kind, func(t *testing.T) {
			t.Parallel()
			s := play(t, "canary-"+c.kind, 8, faulty(c.kind+",field=maxPods:7"))
			canaries := s.nodes(2, 4)
			s.label("canary", "yes", canaries...)
			r := s.roll("maxPods: 101", `
strategy:
  maxUnavailable: 50%
  canarySelector: {canary: "yes"}
  steps: [{nodes: 2}, {nodes: 100%}]
`)
			good := r.complete(1)
			s.same("the first revision is on", s.running(good), s.nodes(0, 8))

			r.push("maxPods: 7")
			st := r.await(at(2, v1alpha1.RolloutHalted))
			bad := st.UpdateRevision.ConfigMapRef
			s.same("ever assigned the bad revision", s.everGiven(bad), canaries)
			assert.That(t, st.Halt != nil && st.Halt.Reason == "TooManyFailures" && st.Target() == 2 && !st.Halt.Rollback,
				"the stop is %+v", st.Halt)
			if !strings.Contains(st.Message, " failed (limit 1): "+s.name) || !strings.Contains(st.Message, "kubectl evenkeel rollout retry "+s.name+" "+s.name) || !strings.HasSuffix(st.Message, ", or: kubectl evenkeel rollout undo "+s.name) {
				t.Errorf("it says: %s", st.Message)
			}
			x := condition(st, v1alpha1.ConditionHalted)
			assert.That(t, x.Status == "True" && x.Reason == "TooManyFailures", "Halted is %+v", x)
			x = condition(st, v1alpha1.ConditionDegraded)
			assert.That(t, x.Status == "True" && x.Reason == "TooManyFailures", "Degraded is %+v", x)
			assert.That(t, len(st.FailedNodes) != 0, "no node is listed as failed")
			for _, f := range st.FailedNodes {
				if !slices.Contains(canaries, f.Name) || !slices.Contains(c.reasons, f.Reason) || !strings.Contains(strings.ToLower(f.Message), c.words) {
					t.Errorf("failed: %+v", f)
				}
			}
			assert.That(t, st.CurrentRevision.Number == 1 && st.Step == 0, "the status says %+v", st)
			if h := st.History; len(h) != 2 || h[0].Outcome != "Halted" || h[0].Failed < 1 || h[1].Outcome != "Succeeded" {
				t.Errorf("the history is %+v", h)
			}

			// Under Pause the canaries keep their assignment, but run the good revision.
			s.until("every node runs the first revision", func() (string, bool) {
				on := s.running(good)
				return strings.Join(on, " "), slices.Equal(on, s.nodes(0, 8))
			})
			st = r.looked()
			// A canary that had not adopted it when the other one failed loses its assignment.
			have := append(s.given(bad), s.revoking(bad)...)
			slices.Sort(have)
			s.same("the bad revision is assigned or being revoked", have, canaries)
			s.same("ever assigned the bad revision", s.everGiven(bad), canaries)
			assert.That(t, len(s.given(bad)) != 0, "no node keeps the bad revision")
			assert.That(t, st.Phase == v1alpha1.RolloutHalted, "it did not stay halted: %s", st.Message)
		})
	}
}
