package dashboard

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestConfirmationsSayWhatRestartsCost(t *testing.T) {
	r := waiting()
	content := assert.Value(policy.ContentOf(r.Spec.Template, nil))(t)
	revision := &corev1.ConfigMap{Immutable: new(true), Data: map[string]string{content.Key: content.Data}}
	revision.Namespace, revision.Name, revision.UID = v1alpha1.SystemNamespace, policy.RevisionName(r.Name, content.SHA256), "u3"
	revision.Labels = map[string]string{v1alpha1.LabelRollout: r.Name, v1alpha1.LabelRevision: "3"}
	ref := v1alpha1.ConfigMapReference{Namespace: revision.Namespace, Name: revision.Name, UID: revision.UID, SHA256: content.SHA256}
	r.Status.UpdateRevision.ConfigMapRef = ref
	s, _ := served(t, true, revision)
	var objects []client.Object
	for name, pods := range map[string]int64{"has-it": 5, "pending-a": 3, "pending-b": 4, "pending-c": 0} {
		node, nc := nodeOf(name, "z1", true), configOf(name, metav1.ConditionTrue, "AllChecksPassed")
		node.Status.NodeInfo.KubeletVersion = "v1.34.4"
		nc.Status.PodsUnreadyOnRestart = &pods
		if name == "has-it" {
			nc.Spec.ConfigSource = &v1alpha1.NodeConfigSource{
				ConfigMapRef: &ref,
				RolloutRef:   &v1alpha1.RolloutReference{Name: "workers", Revision: 3, Attempt: 1, AssignedAt: metav1.Now()},
			}
		}
		objects = append(objects, node, nc)
	}
	known(s.clusters[0].cache, append(objects, r)...)
	got := s.clusters[0].cache.snapshot(t.Context(), time.Now())
	const begin = "Note: a restart of the kubelet makes pods unready until their next probe: "
	costs := got.Rollouts[0].RestartCosts
	for which, want := range map[restarts]string{restartsPending: begin + "7 pods on 2 nodes (kubelet 1.34).", restartsBack: begin + "5 pods on 1 node (kubelet 1.34)."} {
		assert.Equal(t, costs[which], want, which)
	}
	wants := map[string]restarts{"resume": restartsPending, "promote": restartsPending, "promote-full": restartsPending, "abort-rollback": restartsBack, "retry": restartsAgain, "undo": restartsBack}
	for _, a := range s.clusters[0].offered(r, "") {
		assert.Equal(t, a.Restarts, wants[a.Verb], a.Verb, "restarts")
	}
}
