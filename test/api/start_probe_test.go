// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"maps"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	decision "github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/internal/startprobe"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// controllerClient returns a client with the rights of the controller.
func controllerClient(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	assert.NoError(t, corev1.AddToScheme(scheme))
	return assert.Value(client.New(asController(), client.Options{Scheme: scheme}))(t)
}

func TestTheControllerMakesAStartProbeWithItsOwnRights(t *testing.T) {
	ctx, c := t.Context(), controllerClient(t)
	admin := kubernetes.NewForConfigOrDie(cluster.AdminConfig())
	givenServiceAccounts(t, admin)
	probe := startprobe.Probe{Namespace: "evenkeel-system", Node: "probed", Key: "a/1/1", For: "workers", Image: "registry.k8s.io/pause:3.10",
		Config: &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "probed", UID: "u"}}}
	now := time.Now()
	report := startprobe.Pass(ctx, c, probe, decision.ProbeReport{}, now)
	assert.Equal(t, report, decision.ProbeReport{Key: "a/1/1", Began: now, Message: "its pod was created"}, "the first pass")
	pods := assert.Value(admin.CoreV1().Pods("evenkeel-system").List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelStartProbe + "=workers"}))(t)
	assert.Equal(t, len(pods.Items), 1, "pods")
	report = startprobe.Pass(ctx, c, probe, report, now)
	assert.Equal(t, report.Message, "its kubelet has not started it yet", "the second pass")
	ready := `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`
	assert.NoError(t, assert.Err(admin.CoreV1().Pods("evenkeel-system").Patch(ctx, pods.Items[0].Name, types.MergePatchType, []byte(ready), metav1.PatchOptions{}, "status")))
	report = startprobe.Pass(ctx, c, probe, report, now)
	assert.Equal(t, report, decision.ProbeReport{Key: "a/1/1", Began: now, Stopping: true, Message: "its pod was Ready, and stops"}, "a Ready pod")
	report = startprobe.Pass(ctx, c, probe, report, now)
	assert.Equal(t, report.Message, "it stops", "a pod within its grace period")
	assert.NoError(t, admin.CoreV1().Pods("evenkeel-system").Delete(ctx, pods.Items[0].Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	report = startprobe.Pass(ctx, c, probe, report, now)
	assert.Equal(t, report, decision.ProbeReport{Key: "a/1/1", Began: now, Result: decision.ProbePassed}, "a pod that is gone")

	// One that is left behind is removed by its age, whatever rollout it was
	// for.
	startprobe.Pass(ctx, c, probe, decision.ProbeReport{}, now)
	assert.NoError(t, startprobe.RemoveOld(ctx, c, "evenkeel-system", now))
	get := func() (*corev1.Pod, error) {
		return admin.CoreV1().Pods("evenkeel-system").Get(ctx, pods.Items[0].Name, metav1.GetOptions{})
	}
	assert.NoError(t, assert.Err(get()), "a young pod")
	assert.NoError(t, startprobe.RemoveOld(ctx, c, "evenkeel-system", now.Add(time.Hour)))
	pod, err := get()
	assert.That(t, apierrors.IsNotFound(err) || pod.DeletionTimestamp != nil, "an old pod is still there: %v", err)
	assert.OK(t, client.IgnoreNotFound(admin.CoreV1().Pods("evenkeel-system").Delete(ctx, pods.Items[0].Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})))
}

// givenServiceAccounts creates what kube-controller-manager would.
func givenServiceAccounts(t *testing.T, admin kubernetes.Interface) {
	t.Helper()
	for _, namespace := range []string{"evenkeel-system", "default"} {
		_, err := admin.CoreV1().ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
		assert.That(t, err == nil || apierrors.IsAlreadyExists(err), "create a ServiceAccount: %v", err)
	}
}

func TestTheControllerCreatesNoOtherPods(t *testing.T) {
	ctx := t.Context()
	admin := kubernetes.NewForConfigOrDie(cluster.AdminConfig())
	givenServiceAccounts(t, admin)
	// Whatever RBAC grants it: here, everything.
	binding := assert.Value(admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "test-start-probe"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "evenkeel-system", Name: "evenkeel-controller"}},
	}, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		assert.OK(t, admin.RbacV1().ClusterRoleBindings().Delete(context.Background(), binding.Name, metav1.DeleteOptions{}))
	})
	controller := kubernetes.NewForConfigOrDie(asController())
	create := func(namespace string, change func(*corev1.Pod)) error {
		probe := startprobe.Probe{Namespace: namespace, Node: "probed", Key: "k", For: "workers", Config: &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "probed", UID: "u"}}}
		pod := probe.Pod("evenkeel.dev/agent:v1")
		if change != nil {
			change(pod)
		}

		_, err := controller.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})

		return err
	}
	err := wait.PollUntilContextTimeout(ctx, pollInterval, timeout, true, func(context.Context) (bool, error) {
		return create("evenkeel-system", nil) == nil, nil
	})
	assert.NoError(t, err, "a start probe: %v", create("evenkeel-system", nil))
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "test-start-probe"}, Value: 999_999_999}
	assert.NoError(t, assert.Err(admin.SchedulingV1().PriorityClasses().Create(ctx, class, metav1.CreateOptions{})))
	t.Cleanup(func() {
		assert.OK(t, admin.SchedulingV1().PriorityClasses().Delete(context.Background(), class.Name, metav1.DeleteOptions{}))
	})
	err = wait.PollUntilContextTimeout(ctx, pollInterval, timeout, true, func(context.Context) (bool, error) {
		return create("evenkeel-system", func(p *corev1.Pod) { p.Spec.PriorityClassName = class.Name }) == nil, nil
	})
	assert.NoError(t, err, "with the priority that a default PriorityClass may set")
	yes := true
	for what, change := range map[string]func(*corev1.Pod){
		"hostNetwork": func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		"hostPID":     func(p *corev1.Pod) { p.Spec.HostPID = true },
		"hostIPC":     func(p *corev1.Pod) { p.Spec.HostIPC = true },
		"initContainers": func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{*p.Spec.Containers[0].DeepCopy()}
			p.Spec.InitContainers[0].Name = "init"
		},
		"hostAliases":                  func(p *corev1.Pod) { p.Spec.HostAliases = []corev1.HostAlias{{IP: "1.1.1.1"}} },
		"nodeName":                     func(p *corev1.Pod) { p.Spec.NodeName = "" },
		"automountServiceAccountToken": func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = &yes },
		"serviceAccountName":           func(p *corev1.Pod) { p.Spec.ServiceAccountName = "evenkeel-controller" },
		"priority":                     func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" },
		"activeDeadlineSeconds":        func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = nil },
		"securityContext":              func(p *corev1.Pod) { p.Spec.SecurityContext.RunAsUser = new(int64(0)) },
		"containers": func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, p.Spec.Containers[0])
			p.Spec.Containers[1].Name = "b"
		},
		"securityContext of the container": func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext.Privileged = &yes
			p.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil
		},
		"volumes": func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "root", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		},
		"imagePullPolicy": func(p *corev1.Pod) { p.Spec.Containers[0].ImagePullPolicy = corev1.PullIfNotPresent },
		"command":         func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"/bin/sh"} },
		"resources": func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits["example.com/gpu"] = resource.MustParse("1")
			p.Spec.Containers[0].Resources.Requests["example.com/gpu"] = resource.MustParse("1")
		},
		"containers with args":  func(p *corev1.Pod) { p.Spec.Containers[0].Args = []string{"run"} },
		"containers with env":   func(p *corev1.Pod) { p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "b"}} },
		"containers with ports": func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 1}} },
	} {
		wantRefused(t, create("evenkeel-system", change), http.StatusForbidden, "another shape than that of a start probe", what)
	}

	only := "it may only create and delete start probes in evenkeel-system"
	wantRefused(t, create("evenkeel-system", func(p *corev1.Pod) { p.Labels = maps.Clone(p.Labels); delete(p.Labels, v1alpha1.LabelStartProbe) }), http.StatusForbidden, only)
	wantRefused(t, create("default", nil), http.StatusForbidden, only)

	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: "evenkeel-system"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	assert.NoError(t, assert.Err(admin.CoreV1().Pods(other.Namespace).Create(ctx, other, metav1.CreateOptions{})))
	t.Cleanup(func() {
		assert.OK(t, admin.CoreV1().Pods(other.Namespace).Delete(context.Background(), other.Name, metav1.DeleteOptions{}))
	})
	wantRefused(t, controller.CoreV1().Pods(other.Namespace).Delete(ctx, other.Name, metav1.DeleteOptions{}), http.StatusForbidden, only)
	_, err = controller.CoreV1().Pods(other.Namespace).Patch(ctx, other.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"evenkeel.dev/start-probe":"x"}}}`), metav1.PatchOptions{})
	wantRefused(t, err, http.StatusForbidden, only)
	err = controller.CoreV1().Pods(other.Namespace).Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: other.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}, metav1.CreateOptions{})
	wantRefused(t, err, http.StatusForbidden, only)
}
