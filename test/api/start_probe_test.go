// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	decision "github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/internal/startprobe"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheControllerMakesAStartProbeWithItsOwnRights(t *testing.T) {
	ctx, pods := t.Context(), admin.CoreV1().Pods("evenkeel-system")
	c := assert.Value(client.New(asController(), client.Options{}))(t)
	givenServiceAccounts(t, "evenkeel-system")
	probe := startprobe.Probe{Namespace: "evenkeel-system", Node: "probed", Key: "a/1/1", For: "workers", Image: "registry.k8s.io/pause:3.10",
		Config: &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "probed", UID: "u"}}}
	now := time.Now()
	report := startprobe.Pass(ctx, c, probe, decision.ProbeReport{}, now)
	assert.Equal(t, report, decision.ProbeReport{Key: "a/1/1", Began: now, Message: "its pod was created"}, "the first pass")
	made := assert.Value(pods.List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelStartProbe + "=workers"}))(t).Items
	assert.Must(t, len(made) == 1, "there are %d pods", len(made))
	name := made[0].Name
	report = startprobe.Pass(ctx, c, probe, report, now)
	assert.Equal(t, report.Message, "its kubelet has not started it yet", "the second pass")
	ready := `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`
	assert.NoError(t, assert.Err(pods.Patch(ctx, name, types.MergePatchType, []byte(ready), metav1.PatchOptions{}, "status")))
	report = startprobe.Pass(ctx, c, probe, report, now)
	assert.Equal(t, report, decision.ProbeReport{Key: "a/1/1", Began: now, Stopping: true, Message: "its pod was Ready, and stops"}, "a Ready pod")
	report = startprobe.Pass(ctx, c, probe, report, now)
	assert.Equal(t, report.Message, "it stops", "a pod within its grace period")
	assert.NoError(t, pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	report = startprobe.Pass(ctx, c, probe, report, now)
	assert.Equal(t, report, decision.ProbeReport{Key: "a/1/1", Began: now, Result: decision.ProbePassed}, "a pod that is gone")

	// One that is left behind is removed by its age, whatever rollout it was
	// for.
	startprobe.Pass(ctx, c, probe, decision.ProbeReport{}, now)
	removeAtEnd(t, &made[0])
	assert.NoError(t, startprobe.RemoveOld(ctx, c, "evenkeel-system", now))
	assert.NoError(t, assert.Err(pods.Get(ctx, name, metav1.GetOptions{})), "a young pod")
	assert.NoError(t, startprobe.RemoveOld(ctx, c, "evenkeel-system", now.Add(time.Hour)))
	pod, err := pods.Get(ctx, name, metav1.GetOptions{})
	assert.That(t, apierrors.IsNotFound(err) || pod.DeletionTimestamp != nil, "an old pod is still there: %v", err)
}

// givenServiceAccounts creates what kube-controller-manager would, until the
// test ends.
func givenServiceAccounts(t *testing.T, namespaces ...string) {
	t.Helper()
	for _, namespace := range namespaces {
		created(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}})
	}
}

func TestTheControllerCreatesNoOtherPods(t *testing.T) {
	ctx := t.Context()
	givenServiceAccounts(t, "evenkeel-system")
	// Whatever RBAC grants it: here, everything.
	created(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "test-start-probe"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "evenkeel-system", Name: "evenkeel-controller"}},
	})
	controller := kubernetes.NewForConfigOrDie(asController())
	create := func(namespace, changes string) error { // of the pod, as a strategic merge patch
		config := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "probed", UID: "u"}}
		probe := &startprobe.Probe{Namespace: namespace, Node: "probed", Key: "k", For: "workers", Config: config}
		pod := probe.Pod("evenkeel.dev/agent:v1")
		original, patch := assert.Value(json.Marshal(pod))(t), assert.Value(yaml.YAMLToJSON([]byte(changes)))(t)
		changed := &corev1.Pod{}
		assert.NoError(t, json.Unmarshal(assert.Value(strategicpatch.StrategicMergePatch(original, patch, pod))(t), changed))

		return assert.Err(controller.CoreV1().Pods(namespace).Create(ctx, changed, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}))
	}
	assert.Eventually(t, "it may make a start probe", func() bool { return create("evenkeel-system", "{}") == nil })
	class := created(t, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "test-start-probe"}, Value: 999_999_999})
	assert.Eventually(t, "it may have the priority that a default PriorityClass may set", func() bool {
		return create("evenkeel-system", "spec: {priorityClassName: "+class.Name+"}") == nil
	})
	for what, spec := range map[string]string{
		"hostNetwork":                  "{hostNetwork: true}",
		"hostPID":                      "{hostPID: true}",
		"hostIPC":                      "{hostIPC: true}",
		"initContainers":               "{initContainers: [{name: init, image: i}]}",
		"hostAliases":                  "{hostAliases: [{ip: 1.1.1.1}]}",
		"nodeName":                     "{nodeName: null}",
		"automountServiceAccountToken": "{automountServiceAccountToken: true}",
		"serviceAccountName":           "{serviceAccountName: evenkeel-controller}",
		"priority":                     "{priorityClassName: system-node-critical}",
		"activeDeadlineSeconds":        "{activeDeadlineSeconds: null}",
		"securityContext":              "{securityContext: {runAsUser: 0}}",
		"volumes":                      "{volumes: [{name: root, hostPath: {path: /}}]}",
		"containers":                   "{containers: [{name: b, image: i}]}",
		"containers with args":         "{containers: [{name: start-probe, args: [run]}]}",
		"containers with env":          "{containers: [{name: start-probe, env: [{name: A, value: b}]}]}",
		"containers with ports":        "{containers: [{name: start-probe, ports: [{containerPort: 1}]}]}",
		"imagePullPolicy":              "{containers: [{name: start-probe, imagePullPolicy: IfNotPresent}]}",
		"command":                      "{containers: [{name: start-probe, command: [/bin/sh]}]}",
		"resources":                    "{containers: [{name: start-probe, resources: {limits: {example.com/gpu: 1}, requests: {example.com/gpu: 1}}}]}",
		"securityContext of the container": "{containers: [{name: start-probe, " +
			"securityContext: {privileged: true, allowPrivilegeEscalation: null}}]}",
	} {
		wantRefused(t, create("evenkeel-system", "spec: "+spec), http.StatusForbidden, "another shape than that of a start probe", what)
	}

	only := "it may only create and delete start probes in evenkeel-system"
	wantRefused(t, create("evenkeel-system", "metadata: {labels: {evenkeel.dev/start-probe: null}}"), http.StatusForbidden, only)
	wantRefused(t, create("default", "{}"), http.StatusForbidden, only)

	pods := controller.CoreV1().Pods("evenkeel-system")
	created(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: "evenkeel-system"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}})
	label := []byte(`{"metadata":{"labels":{"evenkeel.dev/start-probe":"x"}}}`)
	to := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}
	for _, err := range []error{
		pods.Delete(ctx, "other", metav1.DeleteOptions{}),
		assert.Err(pods.Patch(ctx, "other", types.MergePatchType, label, metav1.PatchOptions{})),
		pods.Bind(ctx, to, metav1.CreateOptions{}),
	} {
		wantRefused(t, err, http.StatusForbidden, only)
	}
}
