// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/controller/drain"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// replicatedPod creates a running pod of a ReplicaSet on a node, until the test
// ends.
func replicatedPod(t *testing.T, node, name string, change func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	pods := kubernetes.NewForConfigOrDie(cluster.AdminConfig()).CoreV1().Pods(metav1.NamespaceDefault)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "u", Controller: new(true)}}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none"}}, TerminationGracePeriodSeconds: new(int64(0))},
	}
	if change != nil {
		change(pod)
	}

	pod = assert.Value(pods.Create(t.Context(), pod, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		err := pods.Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		assert.That(t, err == nil || apierrors.IsNotFound(err), "%v", err)
	})

	return pod
}

// afterList calls a function once, after the first answer to a list of pods.
type afterList struct {
	http.RoundTripper
	once sync.Once
	call func()
}

func (a *afterList) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := a.RoundTripper.RoundTrip(r)
	if err != nil || r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/pods") {
		return response, err
	}

	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}

	response.Body = io.NopCloser(bytes.NewReader(raw))
	a.once.Do(a.call)

	return response, nil
}

func TestAPodThatTookTheNameOfAnEvictedOneStays(t *testing.T) {
	t.Parallel() // the API server repeats a deletion whose precondition fails for 10 s
	replicatedPod(t, "same-name-1", "same-name", nil)
	pods := kubernetes.NewForConfigOrDie(cluster.AdminConfig()).CoreV1().Pods(metav1.NamespaceDefault)
	var other *corev1.Pod
	config := cluster.AdminConfig()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &afterList{RoundTripper: next, call: func() {
			assert.OK(t, pods.Delete(t.Context(), "same-name", metav1.DeleteOptions{}))
			other = replicatedPod(t, "same-name-2", "same-name", nil)
		}}
	})
	report := drain.Pass(t.Context(), kubernetes.NewForConfigOrDie(config), "same-name-1", v1alpha1.DrainOptions{})
	assert.That(t, other != nil && report.Left == 1 && report.Waiting == "" && report.Refused == "", "the pass reports %+v", report)
	if now, err := pods.Get(t.Context(), "same-name", metav1.GetOptions{}); err != nil || now.UID != other.UID || now.DeletionTimestamp != nil {
		t.Errorf("the pod on the other node was evicted: %+v, %v", now, err)
	}
	if report := drain.Pass(t.Context(), kubernetes.NewForConfigOrDie(cluster.AdminConfig()), "same-name-1", v1alpha1.DrainOptions{}); report.Left != 0 {
		t.Errorf("the next pass reports %+v", report)
	}
}

func TestAPodThatEndsIsWaitedForWhateverItIs(t *testing.T) {
	pods := kubernetes.NewForConfigOrDie(cluster.AdminConfig()).CoreV1().Pods(metav1.NamespaceDefault)
	replicatedPod(t, "ends-1", "ends", func(p *corev1.Pod) {
		p.OwnerReferences = nil // it would be refused
		p.Spec.TerminationGracePeriodSeconds = new(int64(300))
	})
	assert.NoError(t, pods.Delete(t.Context(), "ends", metav1.DeleteOptions{}))
	report := drain.Pass(t.Context(), kubernetes.NewForConfigOrDie(cluster.AdminConfig()), "ends-1", v1alpha1.DrainOptions{})
	assert.That(t, report.Left == 1 && report.Refused == "" && report.Waiting == "", "the pass reports %+v", report)
}

func TestTheAdmissionPolicyLimitsTheControllerWhateverRBACAllows(t *testing.T) {
	controller := theController(t)
	givenNode(t, "limited")
	ctx := t.Context()
	roles := kubernetes.NewForConfigOrDie(cluster.AdminConfig()).RbacV1()
	meta := metav1.ObjectMeta{Name: "test-every-right-to-nodes"}
	assert.NoError(t, assert.Err(roles.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status", "nodes/proxy"}, Verbs: []string{"*"}},
	}}, metav1.CreateOptions{})))
	assert.NoError(t, assert.Err(roles.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: v1alpha1.SystemNamespace, Name: "evenkeel-controller"}},
	}, metav1.CreateOptions{})))
	t.Cleanup(func() {
		for _, err := range []error{
			roles.ClusterRoleBindings().Delete(context.Background(), meta.Name, metav1.DeleteOptions{}),
			roles.ClusterRoles().Delete(context.Background(), meta.Name, metav1.DeleteOptions{}),
		} {
			assert.OK(t, err)
		}
	})

	nodes := controller.CoreV1().Nodes()
	dryRun := []string{metav1.DryRunAll}
	err := wait.PollUntilContextTimeout(ctx, pollInterval, timeout, true, func(context.Context) (bool, error) { // role and policy take effect a moment later
		err := nodes.Delete(ctx, "limited", metav1.DeleteOptions{DryRun: dryRun})
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "evenkeel-node-taints"), nil
	})
	assert.NoError(t, err, "the policy does not take effect")
	status := []byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
	for what, err := range map[string]error{
		"CREATE Node made":           errorOf(nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "made"}}, metav1.CreateOptions{DryRun: dryRun})),
		"DELETE Node limited":        nodes.Delete(ctx, "limited", metav1.DeleteOptions{DryRun: dryRun}),
		"UPDATE Node limited/status": errorOf(nodes.Patch(ctx, "limited", types.StrategicMergePatchType, status, metav1.PatchOptions{}, "status")),
		"CONNECT Node limited/proxy": controller.CoreV1().RESTClient().Get().Resource("nodes").Name("limited").SubResource("proxy").Suffix("configz").Do(ctx).Error(),
	} {
		wantRefused(t, err, http.StatusForbidden, "tried to "+what+",", "it may only change taints and annotations of evenkeel.dev/ on existing Nodes")
	}

	all := func(patch string) error {
		return errorOf(nodes.Patch(ctx, "limited", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}))
	}
	for changed, patch := range map[string]string{
		"taints":                      `[{"op":"remove","path":"/spec/taints"}]`,
		"podCIDRs":                    `[{"op":"add","path":"/spec/podCIDRs","value":["198.18.0.0/24"]},{"op":"add","path":"/spec/podCIDR","value":"198.18.0.0/24"}]`,
		"ownerReferences":             `[{"op":"add","path":"/metadata/ownerReferences","value":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}]}]`,
		"labels":                      `[{"op":"remove","path":"/metadata/labels"}]`,
		"annotation evenkeel.develop": `[{"op":"add","path":"/metadata/annotations/evenkeel.develop","value":"x"}]`,
	} {
		wantRefused(t, all(patch), http.StatusForbidden, "tried to change ", changed, " of Node limited")
	}

	noExecute := `[{"op":"add","path":"/spec/taints/-","value":{"key":"evenkeel.dev/draining","effect":"NoExecute"}}]`
	wantRefused(t, all(noExecute), http.StatusForbidden, "tried to change taints of Node limited")
	mixed := `[{"op":"add","path":"/spec/taints/-","value":{"key":"evenkeel.dev/draining","effect":"NoSchedule"}},{"op":"add","path":"/spec/unschedulable","value":true}]`
	wantRefused(t, all(mixed), http.StatusForbidden, "tried to change unschedulable of Node limited")
	assert.OK(t, all(`[{"op":"add","path":"/spec/taints/0","value":{"key":"evenkeel.dev/draining","effect":"NoSchedule"}}]`),
		"its own taint before another one")
}
