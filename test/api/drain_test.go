// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/controller/drain"
	"github.com/evenkeel/evenkeel/internal/fleet"
	decision "github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// theController returns a client with the rights of the controller, which may
// drain nodes until the test ends.
func theController(t *testing.T) kubernetes.Interface {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(asController())
	assert.Returns(t, false, "before config/drain is applied, the controller may drain")(drain.MayDrain(t.Context(), client))
	applied(t, "-k", filepath.Join(root, "config/drain"))
	assert.Eventually(t, "config/drain lets the controller drain nodes", func() bool {
		may, err := drain.MayDrain(t.Context(), client)
		return err == nil && may
	})

	return client
}

// givenNode creates a Node until the test ends.
func givenNode(t *testing.T, name string) {
	t.Helper()
	created(t, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"example.com/note": "x"}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: "example.com/theirs", Effect: corev1.TaintEffectNoSchedule},
			{Key: v1alpha1.TaintUnconfigured, Effect: corev1.TaintEffectNoSchedule}, {Key: v1alpha1.TaintUnconfigured, Effect: corev1.TaintEffectNoExecute},
		}},
	})
}

func TestTheControllerChangesOnlyItsOwnTaintsOfNodes(t *testing.T) {
	controller := theController(t)
	givenNode(t, "tainted")
	ctx := t.Context()
	nodes := controller.CoreV1().Nodes()
	patch := func(text string) error {
		return assert.Err(nodes.Patch(ctx, "tainted", types.StrategicMergePatchType, []byte(text), metav1.PatchOptions{}))
	}
	assert.Eventually(t, "the policy takes effect", func() bool { // until then, nothing may be changed that it is to refuse below
		cordon := []byte(`{"spec":{"unschedulable":true}}`)
		_, err := nodes.Patch(ctx, "tainted", types.StrategicMergePatchType, cordon, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsForbidden(err)
	})
	for what, text := range map[string]string{
		"unschedulable": `{"spec":{"unschedulable":true}}`, "labels": `{"metadata":{"labels":{"a":"c"}}}`,
		"annotation example.com/note": `{"metadata":{"annotations":{"example.com/note":null}}}`, "finalizers": `{"metadata":{"finalizers":["example.com/f"]}}`,
		"taints": `{"spec":{"taints":[{"key":"example.com/more","effect":"NoExecute"}]}}`, "providerID": `{"spec":{"providerID":"p"}}`,
	} {
		wantRefused(t, patch(text), http.StatusForbidden, "tried to change "+what+" of Node tainted", "it may only change taints and annotations of evenkeel.dev/")
	}

	assert.OK(t, patch(`{"metadata":{"annotations":{"evenkeel.dev/note":"y"}}}`), "its own annotation")
	taints := func(operations string) error {
		return assert.Err(nodes.Patch(ctx, "tainted", types.JSONPatchType, []byte(operations), metav1.PatchOptions{}))
	}
	for what, operations := range map[string]string{
		"another taint": `[{"op":"remove","path":"/spec/taints/0"}]`, "another effect": `[{"op":"remove","path":"/spec/taints/2"}]`,
		"another value": `[{"op":"add","path":"/spec/taints/1/value","value":"x"}]`,
	} {
		err := taints(operations)
		assert.That(t, apierrors.IsForbidden(err), "%s: %v, want a refusal", what, err)
	}

	assert.OK(t, taints(`[{"op":"remove","path":"/spec/taints/1"}]`), "the startup taint")
	err := taints(`[{"op":"add","path":"/spec/taints/-","value":{"key":"evenkeel.dev/unconfigured","effect":"NoSchedule"}}]`)
	assert.That(t, apierrors.IsForbidden(err), "setting the startup taint: %v, want a refusal", err)
	d := decision.Drain{Rollout: fleet.DrainID("u"), Revision: 3, Attempt: 2, Since: time.Unix(1_800_000_000, 0).UTC()}
	for _, want := range []decision.Drain{d, d, {Rollout: d.Rollout, Revision: 3, Attempt: 2, Since: d.Since, HandedOver: true}, {}, {}} {
		assert.NoError(t, assert.Err(drain.Write(ctx, controller, "tainted", want)))
		node := assert.Value(nodes.Get(ctx, "tainted", metav1.GetOptions{}))(t)
		assert.Equal(t, fleet.DrainOf(node), want, "the Node records")
		assert.That(t, slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "example.com/theirs" }),
			"another taint is gone: %+v", node.Spec.Taints)
	}

	gone, err := drain.Write(ctx, controller, "no-such-node", d)
	assert.That(t, gone == nil && err == nil, "a Node that is gone: %+v, %v", gone, err)
}

func TestAnEvictionPassEvictsWhatMayGo(t *testing.T) {
	controller := theController(t)
	ctx := t.Context()
	logs := map[string]string{"app": "logs"}
	created(t, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "logs"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: logs},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: logs}, Spec: podOn("", "", "").Spec},
	}})
	for name, of := range map[string]string{"one": "both", "two": "both", "none": "one"} {
		selector := &metav1.LabelSelector{MatchLabels: map[string]string{"budget": of}}
		created(t, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector}})
	}

	type pod struct {
		name, kind, labels string // kind of its controller; labels as k=v
		change             func(*corev1.Pod)
	}
	replicated := func(name, labels string, change func(*corev1.Pod)) pod {
		return pod{name, "ReplicaSet", labels, change}
	}
	emptyDir := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	}
	slow := func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(300)) }
	ignoreCache := v1alpha1.DrainOptions{IgnoredPods: map[string]string{"app": "cache"}}
	for i, c := range []struct {
		what    string
		pods    []pod
		done    string // a pod of them that has ended
		options v1alpha1.DrainOptions
		want    decision.DrainReport // Waiting and Refused: parts
		stay    []string
	}{
		{what: "nothing", want: decision.DrainReport{}},
		{what: "replicated pods go", pods: []pod{replicated("a", "", nil), replicated("b", "", nil)}, want: decision.DrainReport{Left: 2, Pods: []string{"a", "b"}}},
		{what: "DaemonSets and static pods stay", pods: []pod{{"ds", "DaemonSet", "", nil}, replicated("a", "", nil)}, want: decision.DrainReport{Left: 1, Pods: []string{"a"}}, stay: []string{"ds"}},
		{what: "one without a controller", pods: []pod{{"bare", "", "", nil}, replicated("a", "", nil)}, want: decision.DrainReport{Left: 1, Pods: []string{"a"}, Refused: "Pods that declare no controller (drainOptions.unmanagedPods: Evict would evict them): default/bare"}, stay: []string{"a", "bare"}},
		{what: "one without a controller may go", pods: []pod{{"bare", "", "", nil}}, options: v1alpha1.DrainOptions{UnmanagedPods: v1alpha1.DrainEvict}, want: decision.DrainReport{Left: 1, Pods: []string{"bare"}}},
		{what: "local data", pods: []pod{replicated("data", "", emptyDir)}, want: decision.DrainReport{Refused: "Pods with local storage (drainOptions.localData: Evict would evict them): default/data"}, stay: []string{"data"}},
		{what: "local data may go", pods: []pod{replicated("data", "", emptyDir)}, options: v1alpha1.DrainOptions{LocalData: v1alpha1.DrainEvict}, want: decision.DrainReport{Left: 1, Pods: []string{"data"}}},
		{what: "ignored pods", pods: []pod{{"cache", "", "app=cache", emptyDir}, replicated("a", "", nil)}, options: ignoreCache, want: decision.DrainReport{Left: 1, Pods: []string{"a"}, Ignored: []string{"cache"}}, stay: []string{"cache"}},
		{what: "one that has ended", pods: []pod{{"ended", "", "", emptyDir}}, done: "ended", want: decision.DrainReport{}, stay: []string{"ended"}},
		{what: "a budget", pods: []pod{replicated("a", "budget=one", nil)}, want: decision.DrainReport{Left: 1, Pods: []string{"a"}, Waiting: "default/a: Cannot evict pod as it would violate the pod's disruption budget. The disruption budget none is still being processed by the server."}, stay: []string{"a"}},
		{what: "two budgets", pods: []pod{replicated("a", "budget=both", nil), replicated("b", "", nil)}, want: decision.DrainReport{Left: 2, Pods: []string{"a", "b"}, Refused: "default/a has more than one PodDisruptionBudget (one, two)"}, stay: []string{"a", "b"}},
		{what: "a DaemonSet of another API group", pods: []pod{{"other", "DaemonSet", "", func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "example.com/v1" }}}, want: decision.DrainReport{Left: 1, Pods: []string{"other"}}},
		{what: "a static pod", pods: []pod{{"static", "", "", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }}}, want: decision.DrainReport{}, stay: []string{"static"}},
		{what: "one that ends slowly", pods: []pod{replicated("slow", "", slow)}, want: decision.DrainReport{Left: 1, Pods: []string{"slow"}}, stay: []string{"slow"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			node := fmt.Sprintf("drained-%d", i)
			name := func(short string) string { return node + "-" + short }
			for _, p := range c.pods {
				made := podOn(node, name(p.name), p.kind)
				if key, value, ok := strings.Cut(p.labels, "="); ok {
					made.Labels = map[string]string{key: value}
				}
				if p.change != nil {
					p.change(made)
				}

				created(t, made)
				phase := corev1.PodRunning
				if p.name == c.done {
					phase = corev1.PodSucceeded
				}

				status := fmt.Appendf(nil, `{"status":{"phase":%q,"conditions":[{"type":"Ready","status":"True"}]}}`, phase)
				assert.NoError(t,
					assert.Err(admin.CoreV1().Pods("default").Patch(ctx, made.Name, types.StrategicMergePatchType, status, metav1.PatchOptions{}, "status")))
			}

			short, cancel := context.WithTimeout(ctx, 8*time.Second) // the API server asks clients to try again after 10 s
			defer cancel()
			got := drain.Pass(short, controller, node, c.options)
			prefixed := func(names []string) (out []string) {
				for _, n := range names {
					out = append(out, "default/"+name(n))
				}

				return out
			}
			want := c.want
			want.Waiting = strings.ReplaceAll(want.Waiting, "default/", "default/"+node+"-")
			want.Refused = strings.ReplaceAll(want.Refused, "default/", "default/"+node+"-")
			has := func(text, words string) bool { return (words == "") == (text == "") && strings.Contains(text, words) }
			assert.That(t, (want.Refused != "" || got.Left == want.Left && slices.Equal(got.Pods, prefixed(want.Pods))) &&
				slices.Equal(got.Ignored, prefixed(want.Ignored)) && has(got.Waiting, want.Waiting) && has(got.Refused, want.Refused),
				"the pass reports %+v, want %+v", got, want)

			left := assert.Value(admin.CoreV1().Pods("default").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node}))(t)
			var names []string
			for _, p := range left.Items {
				names = append(names, strings.TrimPrefix(p.Name, node+"-"))
			}

			slices.Sort(names)
			assert.That(t, slices.Equal(names, c.stay), "left are %v, want %v", names, c.stay)
		})
	}
}

// podOn is a pod on a node, with a controller of this kind; empty: none.
func podOn(node, name, kind string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{
		NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none"}}, TerminationGracePeriodSeconds: new(int64(0)),
	}}
	if kind != "" {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "logs", UID: "u", Controller: new(true)}}
	}

	return p
}

func TestAPodThatEndsIsWaitedForWhateverItIs(t *testing.T) {
	bare := podOn("ends-1", "ends", "") // it would be refused
	bare.Spec.TerminationGracePeriodSeconds = new(int64(300))
	created(t, bare)
	assert.NoError(t, admin.CoreV1().Pods("default").Delete(t.Context(), "ends", metav1.DeleteOptions{}))
	report := drain.Pass(t.Context(), admin, "ends-1", v1alpha1.DrainOptions{})
	assert.That(t, report.Left == 1 && report.Refused == "" && report.Waiting == "", "the pass reports %+v", report)
}

func TestTheAdmissionPolicyLimitsTheControllerWhateverRBACAllows(t *testing.T) {
	controller := theController(t)
	givenNode(t, "limited")
	ctx := t.Context()
	meta := metav1.ObjectMeta{Name: "test-every-right-to-nodes"}
	created(t, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status", "nodes/proxy"}, Verbs: []string{"*"}},
	}})
	created(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: v1alpha1.SystemNamespace, Name: "evenkeel-controller"}},
	})

	nodes := controller.CoreV1().Nodes()
	dryRun := []string{metav1.DryRunAll}
	assert.Eventually(t, "the role and the policy take effect", func() bool {
		err := nodes.Delete(ctx, "limited", metav1.DeleteOptions{DryRun: dryRun})
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "evenkeel-node-taints")
	})
	status := []byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
	for what, err := range map[string]error{
		"CREATE Node made":           assert.Err(nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "made"}}, metav1.CreateOptions{DryRun: dryRun})),
		"DELETE Node limited":        nodes.Delete(ctx, "limited", metav1.DeleteOptions{DryRun: dryRun}),
		"UPDATE Node limited/status": assert.Err(nodes.Patch(ctx, "limited", types.StrategicMergePatchType, status, metav1.PatchOptions{}, "status")),
		"CONNECT Node limited/proxy": controller.CoreV1().RESTClient().Get().Resource("nodes").Name("limited").SubResource("proxy").Suffix("configz").Do(ctx).Error(),
	} {
		wantRefused(t, err, http.StatusForbidden, "tried to "+what+",", "it may only change taints and annotations of evenkeel.dev/ on existing Nodes")
	}

	all := func(patch string) error {
		return assert.Err(nodes.Patch(ctx, "limited", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}))
	}
	for _, tt := range []struct{ changed, patch string }{
		{"taints", `[{"op":"remove","path":"/spec/taints"}]`},
		{"taints", `[{"op":"add","path":"/spec/taints/-","value":{"key":"evenkeel.dev/draining","effect":"NoExecute"}}]`},
		{"unschedulable", `[{"op":"add","path":"/spec/taints/-","value":{"key":"evenkeel.dev/draining","effect":"NoSchedule"}},{"op":"add","path":"/spec/unschedulable","value":true}]`},
		{"podCIDRs", `[{"op":"add","path":"/spec/podCIDRs","value":["198.18.0.0/24"]},{"op":"add","path":"/spec/podCIDR","value":"198.18.0.0/24"}]`},
		{"ownerReferences", `[{"op":"add","path":"/metadata/ownerReferences","value":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}]}]`},
		{"labels", `[{"op":"remove","path":"/metadata/labels"}]`},
		{"annotation evenkeel.develop", `[{"op":"add","path":"/metadata/annotations/evenkeel.develop","value":"x"}]`},
	} {
		wantRefused(t, all(tt.patch), http.StatusForbidden, "tried to change ", tt.changed, " of Node limited")
	}

	assert.OK(t, all(`[{"op":"add","path":"/spec/taints/0","value":{"key":"evenkeel.dev/draining","effect":"NoSchedule"}}]`),
		"its own taint before another one")
}
