package fleet_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// cordon cordons a node, or ends that.
func (s *scenario) cordon(node string, is bool) {
	s.t.Helper()
	patch := fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, is)
	s.do(kube.Patch(s.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch(types.MergePatchType, []byte(patch))))
}

func TestAnAnnouncedRebootIsNoFailureAndAnotherIs(t *testing.T) {
	t.Parallel()
	s := play(t, "rebooted", 4)
	r := s.roll("maxPods: 101", `
strategy: {maxUnavailable: 100%, steps: [{nodes: 100%}]}
soakSeconds: 600
`)
	soaking := func(n int32) check {
		return that("nodes soak", func(st *status) bool { return st.Nodes.Soaking == n })
	}
	r.await(soaking(4))
	rebooted := s.node(1)
	s.cordon(rebooted, true)
	s.until("the controller has seen the cordon", func() (string, bool) {
		text := s.nodeConfig(rebooted).Annotations[v1alpha1.AnnotationObserved]
		return text, strings.Contains(text, `"maintenance":{"since"`)
	})
	s.do(s.fleet.SetReady(rebooted, false))
	r.await(soaking(3), that("it is skipped", func(st *status) bool { return st.Nodes.Skipped == 1 }))
	time.Sleep(notReadyGrace + 2*time.Second) // it would have failed by then
	if st := r.object().Status; st.Halt != nil || st.Nodes.Failed > 0 || st.Nodes.Skipped != 1 {
		t.Fatalf("an announced reboot: the status says %+v", st)
	}
	s.do(s.fleet.SetReady(rebooted, true))
	r.await(soaking(4))
	s.cordon(rebooted, false)

	s.do(s.fleet.SetReady(s.node(2), false))
	st := r.await(at(1, v1alpha1.RolloutHalted))
	assert.That(t, len(st.FailedNodes) == 1 && st.FailedNodes[0].Name == s.node(2) && st.FailedNodes[0].Reason == "NodeNotReady",
		"an unannounced reboot: failed are %+v", st.FailedNodes)
	s.do(s.fleet.SetReady(s.node(2), true))
}
