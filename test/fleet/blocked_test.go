package fleet_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// pods puts pods on a node, and returns a function that removes them.
func (s *scenario) pods(node string, n int) (remove func()) {
	s.t.Helper()
	var all []*corev1.Pod
	for i := range n {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("%s-pod-%d", node, i)},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}
		s.do(kube.Create(s.t.Context(), pod))
		all = append(all, pod)
	}
	return func() {
		for _, pod := range all {
			s.do(kube.Delete(s.t.Context(), pod, client.GracePeriodSeconds(0)))
		}
	}
}

func TestANodeBlockedByItsPodsDoesNotStopARolloutAndIsRetried(t *testing.T) {
	t.Parallel()
	s := play(t, "blocked", 3)
	full := s.node(0)
	s.label("canary", "yes", full) // it goes first
	remove := s.pods(full, 2)
	r := s.roll("maxPods: 1", `
strategy:
  maxUnavailable: 1
  canarySelector: {matchLabels: {canary: "yes"}}
  steps: [{nodes: 100%}]
`)
	st := r.await(at(1, v1alpha1.RolloutProgressing), updated(2), that("the canary is blocked", func(st *status) bool {
		return st.Nodes.Blocked == 1 && st.Nodes.Failed == 0 && strings.Contains(st.Message, full+" WouldEvictPods")
	}))
	ref := st.UpdateRevision.ConfigMapRef
	assert.That(t, strings.Contains(st.Message, "change the configuration, set trial.allowPodLoss in it, or move the pods away (WouldEvictPods)"),
		"it says: %s", st.Message)
	x := condition(st, v1alpha1.ConditionDegraded)
	assert.That(t, x.Status == "True" && x.Reason == "NodesBlocked" && strings.Contains(x.Message, full), "Degraded is %+v", x)
	s.same("have the revision", s.given(ref), s.nodes(1, 3))
	s.same("run the revision", s.running(ref), s.nodes(1, 3))
	nc := s.nodeConfig(full)
	m := nc.Spec.TakenBack
	assert.That(t, nc.Spec.ConfigSource == nil && m != nil && m.Rollout == s.name, "it was taken back, and the spec is %+v", nc.Spec)

	remove()
	r.edit(func(spec *v1alpha1.NodeConfigRolloutSpec) {
		spec.Retry = &v1alpha1.RolloutRetry{Revision: 1, Attempt: 2, Nodes: []string{full}}
	})
	st = r.await(at(1, v1alpha1.RolloutComplete), updated(3))
	assert.That(t, st.Nodes.Blocked == 0 && st.Halt == nil, "the status says %+v", st)
}
