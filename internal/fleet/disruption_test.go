// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestBudgetsAreRespectedWhereTheControllerMay(t *testing.T) {
	may, mayNot := new(true), new(false)
	for _, tt := range []struct {
		asked *bool
		may   *bool
		want  bool
		err   string
	}{
		{nil, may, true, ""},
		{nil, mayNot, false, ""},
		{nil, nil, false, ""},
		{new(false), may, false, ""},
		{new(true), may, true, ""},
		{new(true), nil, false, ""}, // the CLI does not know
		{new(true), mayNot, false, "spec.strategy.respectDisruptionBudgets: the controller may not list pods and PodDisruptionBudgets; grant it with kubectl apply -k config/drain (Helm: --set drain.enabled=true), or set the field to false"},
	} {
		r := &v1alpha1.NodeConfigRollout{Spec: v1alpha1.NodeConfigRolloutSpec{NodeSelection: v1alpha1.NodeSelection{AllNodes: true}}}
		r.Spec.Strategy.RespectDisruptionBudgets = tt.asked
		p := Build(Objects{Rollout: r, Template: Template{Content: payload.Payload{Key: "kubelet", Data: []byte("x"), SHA256: digest("x")}}, ReadPods: tt.may, Settings: DefaultSettings})
		assert.That(t, p.RespectBudgets == tt.want && p.Invalid == tt.err,
			"asked %v, may %v: %v, invalid %q", tt.asked, tt.may, p.RespectBudgets, p.Invalid)
		got, _ := respectsBudgets(&v1alpha1.RolloutStrategy{RespectDisruptionBudgets: tt.asked, Drain: v1alpha1.DrainAlways}, tt.may)
		assert.That(t, got == (tt.want && tt.asked != nil), "asked %v, may %v: %v where each node is drained", tt.asked, tt.may, got)
	}
}

func TestKubeletsThatMakePodsUnreadyDisrupt(t *testing.T) {
	for _, tt := range []struct {
		kubelet string
		unready *int64
		want    bool
	}{
		{"v1.34.4", nil, true}, {"v1.33.0", new(int64(0)), true}, {"v1.35.0", nil, false}, {"v1.36.1", new(int64(0)), false},
		{"v1.36.1", new(int64(3)), true}, {"", nil, false}, {"v2.1.0", nil, false},
	} {
		node := &corev1.Node{}
		node.Status.NodeInfo.KubeletVersion = tt.kubelet
		nc := &v1alpha1.NodeConfig{Status: v1alpha1.NodeConfigStatus{PodsUnreadyOnRestart: tt.unready}}
		got := NodeOf(node, nc).Disrupts
		assert.That(t, got == tt.want, "kubelet %q with %v: %v", tt.kubelet, tt.unready, got)
	}
}

func TestDisruptedPodsAreThoseThatARestartMakesUnready(t *testing.T) {
	pod := func(change func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Labels: map[string]string{"app": "web"}}}
		p.Spec.Containers = []corev1.Container{{}, {ReadinessProbe: &corev1.Probe{}}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		if change != nil {
			change(&p)
		}

		return p
	}
	pods := []corev1.Pod{
		pod(nil),
		pod(func(p *corev1.Pod) {
			p.Spec = corev1.PodSpec{InitContainers: []corev1.Container{{StartupProbe: &corev1.Probe{}}}, Containers: []corev1.Container{{}}}
		}),
		pod(func(p *corev1.Pod) { p.Labels["app"] = "db" }),
		// Not disrupted, or of no budget:
		pod(func(p *corev1.Pod) { p.Namespace = "other" }),
		pod(func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] }),
		pod(func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }),
		pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		pod(func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }),
		pod(func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }),
	}
	budget := func(name string, s *metav1.LabelSelector) policyv1.PodDisruptionBudget {
		return policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: s}, Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1},
		}
	}
	budgets := []policyv1.PodDisruptionBudget{
		budget("web", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}), budget("all", &metav1.LabelSelector{}), budget("none", nil),
		budget("broken", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}),
	}
	want := map[string]int{"shop/all": 3, "shop/web": 2}
	node, nc := &corev1.Node{}, &v1alpha1.NodeConfig{}
	for _, tt := range []struct {
		kubelet string
		unready *int64
		want    map[string]int
	}{
		{"v1.34.4", nil, want}, {"v1.36.3", new(int64(4)), want},
		{"v1.36.3", new(int64(1)), nil}, // only the static pod
		{"v1.36.3", nil, nil},
	} {
		node.Status.NodeInfo.KubeletVersion, nc.Status.PodsUnreadyOnRestart = tt.kubelet, tt.unready
		got := DisruptedPods(node, nc, pods, budgets)
		assert.That(t, maps.Equal(got, tt.want), "kubelet %s with %v: %v, want %v", tt.kubelet, tt.unready, got, tt.want)
	}

	got := AllowedBy(budgets)
	assert.That(t, got["shop/web"] == 1 && len(got) == 4, "allowed: %v", got)
}

func TestABudgetWhoseStatusIsOldAllowsNothing(t *testing.T) {
	b := []policyv1.PodDisruptionBudget{{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Status: policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DisruptionsAllowed: 5}}}
	assert.Equal(t, AllowedBy(b)["/"], 0, "it allows")
	b[0].Status.ObservedGeneration = 2
	assert.Equal(t, AllowedBy(b)["/"], 5, "it allows")
}

func TestStaticPodsThatAreNotReady(t *testing.T) {
	static := map[string]string{corev1.MirrorPodAnnotationKey: ""}
	pod := func(name string, annotations map[string]string, ready corev1.ConditionStatus, phase corev1.PodPhase) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
		p.Status.Phase, p.Status.Conditions = phase, []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}

		return p
	}
	pods := []corev1.Pod{
		pod("etcd", static, corev1.ConditionFalse, corev1.PodRunning), pod("kube-apiserver", static, corev1.ConditionTrue, corev1.PodRunning),
		pod("web", nil, corev1.ConditionFalse, corev1.PodRunning), pod("once", static, corev1.ConditionFalse, corev1.PodSucceeded),
		pod("failed", static, corev1.ConditionFalse, corev1.PodFailed),
	}
	got := StaticPodsNotReady(pods)
	assert.That(t, slices.Equal(got, []string{"etcd", "failed"}), "%v", got)
	for range 30 {
		pods = append(pods, pods[0])
	}

	assert.Equal(t, len(StaticPodsNotReady(pods)), 20, "names")
	assert.Equal(t, len(StaticPodsNotReady(nil)), 0, "without static pods") // as on k3s
}
