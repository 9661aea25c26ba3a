package fleet_test

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rehearsal"
)

func TestANewNodeIsOpenToPodsWhenItRunsItsConfiguration(t *testing.T) {
	t.Parallel()
	if err := cluster.Apply(t.Context(), filepath.Join(root, "config/startup-taint")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kube.Delete(context.Background(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "evenkeel-controller-startup-taint"}}); err != nil {
			t.Error(err)
		}
	})
	taint := corev1.Taint{Key: v1alpha1.TaintUnconfigured, Effect: corev1.TaintEffectNoSchedule}
	s := play(t, "startup", 2, func(o *rehearsal.Options) { o.Taints = []corev1.Taint{taint} })
	open := func(i int) bool {
		n := &corev1.Node{}
		s.do(kube.Get(t.Context(), types.NamespacedName{Name: s.node(i)}, n))
		if len(n.Spec.Taints) == 0 || n.Spec.Taints[0].Key != rehearsal.Label {
			t.Errorf("%s has lost another taint: %+v", n.Name, n.Spec.Taints)
		}
		return !slices.Contains(n.Spec.Taints, taint)
	}
	r := s.roll("maxPods: 101", "strategy: {maxUnavailable: 2}")
	ref := r.complete(1)
	_, err := s.fleet.Add(t.Context(), 1)
	s.do(err)
	s.until("the node that joined is open to pods", func() (string, bool) {
		is := open(2) // before its NodeConfig is read
		nc := s.nodeConfig(s.node(2))
		if is && !runs(nc, ref.UID) {
			t.Errorf("it is open, and runs %s", nameOf(nc.Status.Active))
		}
		return nameOf(nc.Status.Active), is
	})
	s.until("the other nodes are open", func() (string, bool) { return "", open(0) && open(1) })
}
