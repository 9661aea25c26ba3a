package fleet_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// probedPods puts a Ready pod with a probe and this label app on each of these nodes.
func (s *scenario) probedPods(app string, nodes ...string) {
	s.t.Helper()
	for _, node := range nodes {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: node + "-" + app, Labels: map[string]string{"app": app}},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
				Name: "c", Image: "none", ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80)}}},
			}}},
		}
		s.do(kube.Create(s.t.Context(), pod))
		s.cleanUp(pod)
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		s.do(kube.Status().Update(s.t.Context(), pod))
	}
}

// cleanUp deletes an object after the test.
func (s *scenario) cleanUp(o client.Object) {
	s.t.Cleanup(func() { s.do(kube.Delete(context.Background(), o, client.GracePeriodSeconds(0))) })
}

// budget creates a PodDisruptionBudget of the pods with this label app, and returns a function that sets how many disruptions it
// allows: no controller of PodDisruptionBudgets runs here.
func (s *scenario) budget(app string) (allow func(disruptions int32)) {
	s.t.Helper()
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: app}}
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	s.do(kube.Create(s.t.Context(), b))
	s.cleanUp(b)
	return func(disruptions int32) {
		b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation, DisruptionsAllowed: disruptions}
		s.do(kube.Status().Update(s.t.Context(), b))
	}
}

// mayReadPods grants the controller what a rollout with respectDisruptionBudgets needs.
func (s *scenario) mayReadPods() {
	s.t.Helper()
	meta := metav1.ObjectMeta{Name: s.name + "-pods"}
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
		{APIGroups: []string{"policy"}, Resources: []string{"poddisruptionbudgets"}, Verbs: []string{"list"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "evenkeel-system", Name: "evenkeel-controller"}},
	}
	for _, o := range []client.Object{role, binding} {
		s.do(kube.Create(s.t.Context(), o))
		s.cleanUp(o)
	}
}

func TestARestartThatMakesPodsUnreadyWaitsForTheirBudgets(t *testing.T) {
	t.Parallel()
	s := play(t, "budgets", 3)
	for _, name := range s.nodes(0, 3) { // these kubelets make pods with probes unready
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		s.do(kube.Status().Patch(t.Context(), node, client.RawPatch("application/merge-patch+json", []byte(`{"status": {"nodeInfo": {"kubeletVersion": "v1.34.4"}}}`))))
	}
	s.probedPods("budgets-web", s.nodes(0, 2)...)
	allow := s.budget("budgets-web")
	allow(0)
	r := s.roll("maxPods: 101", `strategy: {maxUnavailable: 100%, steps: [{nodes: 100%}], respectDisruptionBudgets: true}`)
	r.invalid("spec.strategy.respectDisruptionBudgets: the controller may not list pods and PodDisruptionBudgets", "kubectl apply -k config/drain")
	s.mayReadPods()
	st := r.await(updated(1), that("it says what it waits for", func(st *status) bool {
		return strings.Contains(st.Message, "PodDisruptionBudget default/budgets-web allows 0 disruptions, and a restart of the kubelet on ")
	}))
	r.looked()
	ref := st.UpdateRevision.ConfigMapRef
	s.same("were given the revision", s.everGiven(ref), s.nodes(2, 3))
	allow(2)
	r.complete(1)
	s.same("run the revision", s.running(ref), s.nodes(0, 3))
}
