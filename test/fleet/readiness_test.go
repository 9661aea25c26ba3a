package fleet_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// ready makes Nodes Ready or NotReady, and waits until the API shows it.
func (s *scenario) ready(ready bool, nodes ...string) {
	s.t.Helper()
	for _, name := range nodes {
		s.do(s.fleet.SetReady(name, ready))
	}
	want := corev1.ConditionFalse
	if ready {
		want = corev1.ConditionTrue
	}
	for _, name := range nodes {
		s.until("the Node is as Ready as it should be", func() (string, bool) {
			n := &corev1.Node{}
			s.do(kube.Get(s.t.Context(), types.NamespacedName{Name: name}, n))
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady {
					return string(c.Status), c.Status == want
				}
			}
			return "unknown", false
		})
	}
}

func TestANodeThatBecomesNotReadyAfterItsAssignmentHasFailed(t *testing.T) {
	t.Parallel()
	s := play(t, "notready-after", 4)
	s.label("canary", "yes", s.node(2))
	// Its agent cannot say it: it goes with the machine.
	s.do(s.fleet.Silence(s.node(2)))
	r := s.roll("maxPods: 101", `
strategy:
  maxUnavailable: 100%
  canarySelector: {matchLabels: {canary: "yes"}}
  steps: [{nodes: 1}, {nodes: 100%}]
`)
	s.until("it is assigned the revision", func() (string, bool) { return "not yet", s.nodeConfig(s.node(2)).Spec.ConfigSource != nil })
	s.ready(false, s.node(2))
	st := r.await(at(1, v1alpha1.RolloutHalted))
	h := st.Halt
	assert.That(t, h.Reason == "TooManyFailures", "the stop is %+v", h)
	f := st.FailedNodes
	assert.That(t, len(f) == 0 || f[0].Name == s.node(2) && f[0].Reason == "NodeNotReady", "failed: %+v", f)
	s.same("ever given the revision", s.everGiven(st.UpdateRevision.ConfigMapRef), []string{s.node(2)})
	// The node did not adopt the revision, and must not get the stopped revision when it returns.
	s.until("the assignment is taken back", func() (string, bool) {
		nc := s.nodeConfig(s.node(2))
		return "not yet", nc.Spec.ConfigSource == nil && slices.Contains(nc.Spec.Revoked, st.UpdateRevision.ConfigMapRef.UID)
	})
}

func TestAnOutageOfADomainStopsTheRolloutWithoutFailures(t *testing.T) {
	t.Parallel()
	s := play(t, "outage", 12, zones(2))
	r := s.roll("maxPods: 101", `
strategy: {maxUnavailable: 4, topologyKey: topology.kubernetes.io/zone, steps: [{nodes: 100%}]}
failurePolicy: {maxFailures: 1, action: Rollback}
`)
	first := r.complete(1)
	r.edit(func(spec *v1alpha1.NodeConfigRolloutSpec) {
		spec.SoakSeconds, spec.Template = 600, s.template("maxPods: 102")
	})
	second := r.await(at(2, v1alpha1.RolloutProgressing), that("four nodes soak", func(st *status) bool {
		return st.Nodes.Soaking == 4
	})).UpdateRevision.ConfigMapRef
	given := s.given(second)
	zones := map[string][]string{}
	for _, name := range s.fleet.Names() {
		n := &corev1.Node{}
		s.do(kube.Get(t.Context(), types.NamespacedName{Name: name}, n))
		zone := n.Labels[corev1.LabelTopologyZone]
		zones[zone] = append(zones[zone], name)
	}
	in := func(zone string) (n int) {
		for _, name := range zones[zone] {
			if slices.Contains(given, name) {
				n++
			}
		}
		return n
	}
	down := "zone-0"
	if in("zone-1") > in(down) {
		down = "zone-1"
	}
	s.ready(false, zones[down]...)
	st := r.await(at(2, v1alpha1.RolloutHalted))
	assert.That(t, st.History[0].Outcome == v1alpha1.OutcomeHalted && st.History[0].Reason == v1alpha1.HaltInconclusive,
		"the history says %+v", st.History[0])
	assert.That(t, st.Halt.Reason == v1alpha1.HaltInconclusive && !st.Halt.Rollback, "the stop is %+v", st.Halt)
	st = r.looked()
	x := condition(st, v1alpha1.ConditionHalted)
	assert.That(t, x.Status == "True" && x.Reason == v1alpha1.HaltInconclusive, "Halted is %+v", x)
	s.same("have the second revision", s.given(second), given)
	s.same("revoke the second revision", s.revoking(second), nil)
	s.same("revoke the first revision", s.revoking(first), nil)

	s.ready(true, zones[down]...)
	r.looked()
	s.same("have the second revision when the zone is back", s.given(second), given)
	r.edit(func(spec *v1alpha1.NodeConfigRolloutSpec) {
		spec.SoakSeconds, spec.Retry = 0, &v1alpha1.RolloutRetry{Revision: 2, Attempt: 2}
	})
	st = r.await(at(2, v1alpha1.RolloutComplete), updated(12))
	assert.That(t, st.Halt == nil && st.Attempt == 2, "after the retry the status says %+v", st)
}
