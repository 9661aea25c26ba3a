package fleet_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// told waits for an Event of the rollout.
func (r *rollout) told(reason, words string) {
	r.t.Helper()
	r.until(fmt.Sprintf("an Event %s says %q", reason, words), func() (string, bool) {
		list := &corev1.EventList{}
		r.do(kube.List(r.t.Context(), list, client.InNamespace("default")))
		var all []string
		for _, e := range list.Items {
			if e.InvolvedObject.Name != r.as {
				continue
			}
			if e.Reason == reason && strings.Contains(e.Message, words) {
				return "", true
			}
			all = append(all, e.Reason+": "+e.Message)
		}
		return strings.Join(all, "\n"), false
	})
}

// configMap is one of evenkeel-system; nil if there is none.
func (s *scenario) configMap(name string) *corev1.ConfigMap {
	s.t.Helper()
	cm := &corev1.ConfigMap{}
	err := kube.Get(s.t.Context(), types.NamespacedName{Namespace: v1alpha1.SystemNamespace, Name: name}, cm)
	if client.IgnoreNotFound(err) != nil {
		s.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return cm
}

func TestDeletingARolloutLeavesItsNodesUnchanged(t *testing.T) {
	t.Parallel()
	s := play(t, "deleted", 4)
	r, first, second := s.rollWithPausedUpdate()
	before := s.nodeConfigs()

	r.delete()
	r.told("RolloutDeleted", "its nodes stay as they are: 3 nodes keep revision 1, 1 node keeps revision 2")
	// Another rollout that is served meanwhile shows that the controller has gone on.
	other := s.rollAs("deleted-other", "maxPods: 103", `
nodeSelector: {matchLabels: {pool: deleted-nobody}}
`)
	other.await(that("no nodes", func(st *v1alpha1.NodeConfigRolloutStatus) bool { return st.Phase == v1alpha1.RolloutNoNodes }))
	for name, was := range before {
		if is := s.nodeConfig(name); is.Generation != was.Generation {
			t.Errorf("%s was written to: %+v, was %+v", name, is.Spec, was.Spec)
		}
	}
	for _, ref := range []v1alpha1.ConfigMapReference{first, second} {
		if cm := s.configMap(ref.Name); cm == nil || cm.UID != ref.UID {
			t.Errorf("revision %s, which nodes name, is gone", ref.Name)
		}
	}

	// A rollout of that name that is made later takes them on.
	again := s.rollAs(s.name, "maxPods: 104", `
strategy: {maxUnavailable: 100%, steps: [{nodes: 100%}]}
`)
	ref := again.complete(3)
	s.same("run the new one", s.running(ref), s.nodes(0, 4))
}
