package fleet_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// able waits until the agents of nodes report that they can answer.
func (s *scenario) able(nodes ...string) {
	s.t.Helper()
	s.until("the agents report the capability", func() (string, bool) {
		able := s.those(func(nc *v1alpha1.NodeConfig) bool {
			return slices.Contains(nc.Status.Capabilities, v1alpha1.CapabilityPreflight)
		})
		return fmt.Sprint(able), len(able) == len(nodes)
	})
}

func TestARevisionThatANodeRefusesIsAssignedToNone(t *testing.T) {
	t.Parallel()
	s := play(t, "asked", 5, faulty("reject,field=maxPods:8,node=asked-1"))
	s.able(s.nodes(0, 5)...)
	r := s.roll("maxPods: 8", `strategy: {maxUnavailable: 100%, preflight: Require, steps: [{nodes: 100%}]}`)
	st := r.await(at(1, v1alpha1.RolloutHalted))
	p := st.Preflight
	if p == nil || p.EndTime == nil || p.Accepted != 4 || p.Refused != 1 || len(p.Refusals) != 1 || p.Refusals[0].Reason != v1alpha1.ReasonValidationFailed || !slices.Equal(p.Refusals[0].Examples, []string{"asked-1"}) {
		t.Fatalf("status.preflight is %+v", p)
	}
	if h := st.Halt; h.Reason != v1alpha1.HaltPreflightRefused || h.Rollback || !strings.Contains(h.Message, "1 ValidationFailed (asked-1)") {
		t.Errorf("the stop is %+v", h)
	}
	s.same("were ever given the revision", s.everGiven(st.UpdateRevision.ConfigMapRef), nil)
	for name, nc := range s.nodeConfigs() {
		assert.Equal(t, nc.Generation, 1, "the request has changed the generation of", name, "to")
	}

	r.push("maxPods: 9")
	st = r.await(at(2, v1alpha1.RolloutComplete), updated(5))
	assert.That(t, st.Preflight != nil && st.Preflight.Revision == 2 && st.Preflight.Accepted == 5, "status.preflight is %+v", st.Preflight)
}
