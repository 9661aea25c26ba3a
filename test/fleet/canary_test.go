package fleet_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
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
		{"unhealthy", []string{v1alpha1.ReasonNotHealthy}, "healthy"},
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
  canarySelector: {matchLabels: {canary: "yes"}}
  steps: [{nodes: 2}, {nodes: 100%}]
`)
			good := r.complete(1)
			s.same("the first revision is on", s.running(good), s.nodes(0, 8))

			r.push("maxPods: 7")
			st := r.await(at(2, v1alpha1.RolloutHalted))
			bad := st.UpdateRevision.ConfigMapRef
			s.same("ever assigned the bad revision", s.everGiven(bad), canaries)
			if h := st.Halt; h == nil || h.Reason != "TooManyFailures" || h.Revision != 2 || h.Rollback {
				t.Errorf("the stop is %+v", h)
			}
			if !strings.Contains(st.Message, " failed (limit 1): "+s.name) || !strings.HasSuffix(st.Message, "kubectl evenkeel rollout retry "+s.name+", or: kubectl evenkeel rollout undo "+s.name) {
				t.Errorf("it says: %s", st.Message)
			}
			if x := condition(st, v1alpha1.ConditionHalted); x.Status != "True" || x.Reason != "TooManyFailures" {
				t.Errorf("Halted is %+v", x)
			}
			if x := condition(st, v1alpha1.ConditionDegraded); x.Status != "True" || x.Reason != "TooManyFailures" {
				t.Errorf("Degraded is %+v", x)
			}
			if len(st.FailedNodes) == 0 {
				t.Error("no node is listed as failed")
			}
			for _, f := range st.FailedNodes {
				if !slices.Contains(canaries, f.Name) || !slices.Contains(c.reasons, f.Reason) || !strings.Contains(strings.ToLower(f.Message), c.words) {
					t.Errorf("failed: %+v", f)
				}
			}
			if st.CurrentRevision.Number != 1 || st.Step != 0 {
				t.Errorf("the status says %+v", st)
			}
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
			if len(s.given(bad)) == 0 {
				t.Error("no node keeps the bad revision")
			}
			if st.Phase != v1alpha1.RolloutHalted {
				t.Errorf("it did not stay halted: %s", st.Message)
			}
		})
	}
}
