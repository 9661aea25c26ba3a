// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// selfHosted is the DaemonSet that the API server makes of a kustomization; it
// is not kept.
func selfHosted(t *testing.T, dir string) *appsv1.DaemonSet {
	t.Helper()
	out := mustKubectl(t, "apply", "--dry-run=server", "--validate=strict", "-o", "json", "-k", filepath.Join(root, dir))
	var list struct{ Items []json.RawMessage }
	assert.NoError(t, json.Unmarshal([]byte(out), &list))
	for _, item := range list.Items {
		d := &appsv1.DaemonSet{}
		assert.NoError(t, json.Unmarshal(item, d))
		if d.Kind == "DaemonSet" {
			return d
		}
	}

	t.Fatalf("%s has no DaemonSet:\n%s", dir, out)

	return nil
}

func TestTheAPIServerAcceptsTheSelfHostedKubelet(t *testing.T) {
	d := selfHosted(t, "config/self-hosted")
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	if u := d.Spec.UpdateStrategy.RollingUpdate; u == nil || u.MaxSurge.IntValue() != 1 || u.MaxUnavailable.IntValue() != 0 {
		t.Errorf("the update strategy is %+v, want a pod more, and none less", u)
	}

	assert.That(t, pod.HostPID && pod.HostNetwork && pod.HostIPC && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged,
		"it lacks what on-host needs: the host's processes, network and IPC, and privileges")
	if pod.PriorityClassName != "system-node-critical" || *pod.AutomountServiceAccountToken {
		t.Errorf("priority %q, token %v", pod.PriorityClassName, *pod.AutomountServiceAccountToken)
	}

	assert.That(t, len(c.Ports) == 0 && c.Resources.Limits == nil,
		"ports %v, which keep a second pod from the node; limits %v, which take the node's kubelet away", c.Ports, c.Resources.Limits)
	for _, taint := range []corev1.Taint{
		{Key: "component", Value: "kubelet", Effect: corev1.TaintEffectNoSchedule},
		{Key: "component", Value: "kubelet", Effect: corev1.TaintEffectNoExecute},
		{Key: "anything", Value: "else", Effect: corev1.TaintEffectNoExecute},
	} {
		if !slices.ContainsFunc(pod.Tolerations, func(tol corev1.Toleration) bool { return tolerates(tol, taint) }) {
			t.Errorf("%s is not tolerated", taint.ToString())
		}
	}

	if want := map[string]string{"kubernetes.io/os": "linux", "evenkeel.dev/kubelet": "self-hosted"}; !cmp.Equal(pod.NodeSelector, want) {
		t.Errorf("it runs on %v, want %v: not where the host's kubelet does not give way", pod.NodeSelector, want)
	}
}

func tolerates(tol corev1.Toleration, taint corev1.Taint) bool {
	return (tol.Effect == "" || tol.Effect == taint.Effect) &&
		(tol.Operator == corev1.TolerationOpExists && (tol.Key == "" || tol.Key == taint.Key) || tol.Key == taint.Key && tol.Value == taint.Value)
}

func TestTheSelfHostedKubeletUsesTheImageOfTheRelease(t *testing.T) {
	mod := assert.Value(os.ReadFile(filepath.Join(root, "tools/go.mod")))(t)
	pinned := regexp.MustCompile(`k8s\.io/kubernetes (v[0-9.]+)`).FindSubmatch(mod)
	assert.Must(t, pinned != nil, "tools/go.mod names no k8s.io/kubernetes")
	got, want := selfHosted(t, "config/self-hosted").Spec.Template.Spec.Containers[0].Image, "evenkeel.dev/kubelet:"+string(pinned[1])
	assert.That(t, got == want, "the image is %s, make image makes %s", got, want)
}

func TestTheSelfHostedKubeletRunsOnlyOnBootstrapNodes(t *testing.T) {
	c := localcluster.StartForTest(t, localcluster.Options{Manifests: filepath.Join(root, "config/self-hosted")})
	assert.NoError(t, c.StartControllers(t.Context()))
	client := kubernetes.NewForConfigOrDie(c.AdminConfig())
	for _, name := range []string{"stays", "pivots"} {
		labels := map[string]string{"kubernetes.io/os": "linux"}
		if name == "pivots" {
			labels["evenkeel.dev/kubelet"] = "self-hosted"
		}

		// As a bootstrap kubelet registers it.
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: "component", Value: "kubelet", Effect: corev1.TaintEffectNoSchedule},
			{Key: "component", Value: "kubelet", Effect: corev1.TaintEffectNoExecute},
		}}}
		assert.NoError(t, assert.Err(client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})))
		// A patch, because controllers change the Node at the same time.
		const room = `{"cpu":"1","memory":"1Gi","pods":"10"}`
		status := fmt.Appendf(nil, `{"status":{"capacity":%[1]s,"allocatable":%[1]s}}`, room)
		assert.NoError(t, assert.Err(client.CoreV1().Nodes().PatchStatus(t.Context(), name, status)))
	}

	err := wait.PollUntilContextTimeout(t.Context(), pollInterval, timeout, true, func(ctx context.Context) (bool, error) {
		d, err := client.AppsV1().DaemonSets("kube-system").Get(ctx, "evenkeel-kubelet", metav1.GetOptions{})
		if err != nil {
			return false, err
		}

		pods, err := client.CoreV1().Pods("kube-system").List(ctx, metav1.ListOptions{})
		if err != nil || len(pods.Items) == 0 || pods.Items[0].Spec.NodeName == "" || d.Status.CurrentNumberScheduled == 0 {
			return false, err
		}
		if at := pods.Items[0].Spec.NodeName; len(pods.Items) != 1 || at != "pivots" || d.Status.DesiredNumberScheduled != 1 {
			t.Errorf("%d pods, the first on %s, %d are wanted; want one on pivots", len(pods.Items), at, d.Status.DesiredNumberScheduled)
		}

		return true, nil
	})
	assert.OK(t, err)
}

func TestTheExampleReplacesTheKubeletsCommandLineAndKeepsTheAgents(t *testing.T) {
	base := selfHosted(t, "config/self-hosted").Spec.Template.Spec.Containers[0]
	example := selfHosted(t, "config/examples/self-hosted").Spec.Template.Spec.Containers[0]
	assert.NoDiff(t, cmp.Diff(base.Command, example.Command))
	want := []string{
		"/kubelet", "--kubeconfig=/var/lib/kubelet/kubeconfig", "--config=/etc/kubernetes/kubelet.yaml",
		"--config-dir=/etc/kubernetes/kubelet.conf.d", "--hostname-override=$(NODE_NAME)", "--node-ip=$(HOST_IP)",
	}
	assert.NoDiff(t, cmp.Diff(want, example.Args))
	assert.That(t, example.Image == "registry.example.com/evenkeel/kubelet:v1.37.2" && len(example.Env) == len(base.Env)+1,
		"image %s, environment %v", example.Image, example.Env)
}
