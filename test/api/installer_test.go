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
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// installers are the DaemonSets of config/base, as the API server keeps them.
func installers(t *testing.T) map[string]appsv1.DaemonSet {
	t.Helper()
	list := assert.Value(admin.AppsV1().DaemonSets(v1alpha1.InstallNamespace).List(t.Context(), metav1.ListOptions{}))(t)
	all := map[string]appsv1.DaemonSet{}
	for _, d := range list.Items {
		all[strings.TrimPrefix(d.Name, "evenkeel-")] = d
	}

	assert.Must(t, len(all) == 2, "there are %d DaemonSets in %s, want 2", len(all), v1alpha1.InstallNamespace)

	return all
}

func TestInstallerPodsRunOnlyOnLabeledNodes(t *testing.T) {
	for verb, d := range installers(t) {
		verb = strings.TrimSuffix(verb, "er")
		pod := d.Spec.Template.Spec
		c := pod.Containers[0]
		assert.NoDiff(t, cmp.Diff(map[string]string{"kubernetes.io/os": "linux", v1alpha1.LabelAgent: verb}, pod.NodeSelector), verb, "goes to")
		assert.That(t, d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType,
			"%s has the update strategy %s: a new image would restart kubelets by itself", verb, d.Spec.UpdateStrategy.Type)
		wantTolerated(t, pod, corev1.Taint{Key: "any", Effect: corev1.TaintEffectNoExecute})
		assert.That(t, c.LivenessProbe == nil && c.StartupProbe == nil && c.Resources.Limits == nil && pod.PriorityClassName == "",
			"%s can be ended in the middle of it, or displace others: %+v", verb, c)
		assert.That(t, !*pod.AutomountServiceAccountToken && pod.ServiceAccountName == "evenkeel-installer",
			"%s has a token, or the account %s", verb, pod.ServiceAccountName)
		want := []string{"/evenkeel-agent", "on-host", "--bin-dir=/var/lib/evenkeel-bin", "--", "/evenkeel-agent", verb, "--stay",
			"--probe-socket=$(EVENKEEL_PROBE_SOCKET)", "--attempt=$(POD_UID)"}
		if verb == "install" {
			want = append(want, "--turn=$(POD_REVISION)")
		}

		assert.NoDiff(t, cmp.Diff(want, c.Command), verb)
		for _, volume := range pod.Volumes {
			at := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume.Name })
			assert.That(t, at >= 0 && c.VolumeMounts[at].MountPath == volume.HostPath.Path,
				"%s: volume %s is not mounted under its path on the host", verb, volume.Name)
		}

		for _, path := range []string{c.ReadinessProbe.Exec.Command[0], c.Env[len(c.Env)-1].Value} {
			assert.That(t, slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.HostPath.Path == filepath.Dir(path) }),
				"%s: the directory of %s is not mounted", verb, path)
		}

		other := map[string]string{"install": "evenkeel-uninstaller", "uninstall": "evenkeel-installer"}[verb]
		anti := pod.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		assert.That(t, len(anti) == 1 && anti[0].LabelSelector.MatchLabels["app.kubernetes.io/name"] == other, "%s may run beside %s", verb, other)
	}
}

func TestPodSecurityAdmitsInstallersAndTheRestrictedController(t *testing.T) {
	create := func(namespace string, spec corev1.PodSpec) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "p-", Namespace: namespace}, Spec: *spec.DeepCopy()}
		pod.Spec.ServiceAccountName, pod.Spec.PriorityClassName = "default", ""
		return objects.Create(t.Context(), pod, client.DryRunAll)
	}
	givenServiceAccounts(t, v1alpha1.InstallNamespace, v1alpha1.SystemNamespace)
	installer := installers(t)["installer"].Spec.Template.Spec
	assert.OK(t, create(v1alpha1.InstallNamespace, installer))
	enforce := "pod-security.kubernetes.io/enforce"
	mustKubectl(t, "label", "namespace", v1alpha1.SystemNamespace, enforce+"=restricted")
	kubectlAtEnd(t, "label", "namespace", v1alpha1.SystemNamespace, enforce+"-")
	assert.ErrorHas(t, create(v1alpha1.SystemNamespace, installer),
		`violates PodSecurity "restricted`, "a privileged pod in", v1alpha1.SystemNamespace)
	deployments := admin.AppsV1().Deployments(v1alpha1.SystemNamespace)
	deployment := assert.Value(deployments.Get(t.Context(), "evenkeel-controller", metav1.GetOptions{}))(t)
	assert.OK(t, create(v1alpha1.SystemNamespace, deployment.Spec.Template.Spec), "the controller's own")
}

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
	u := d.Spec.UpdateStrategy.RollingUpdate
	assert.That(t, u != nil && u.MaxSurge.IntValue() == 1 && u.MaxUnavailable.IntValue() == 0,
		"the update strategy is %+v, want a pod more, and none less", u)
	assert.That(t, pod.HostPID && pod.HostNetwork && pod.HostIPC && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged,
		"it lacks what on-host needs: the host's processes, network and IPC, and privileges")
	assert.That(t, pod.PriorityClassName == "system-node-critical" && !*pod.AutomountServiceAccountToken,
		"priority %q, token %v", pod.PriorityClassName, *pod.AutomountServiceAccountToken)
	assert.That(t, len(c.Ports) == 0 && c.Resources.Limits == nil,
		"ports %v, which keep a second pod from the node; limits %v, which take the node's kubelet away", c.Ports, c.Resources.Limits)
	wantTolerated(t, pod, corev1.Taint{Key: "component", Value: "kubelet", Effect: corev1.TaintEffectNoSchedule})
	wantTolerated(t, pod, corev1.Taint{Key: "component", Value: "kubelet", Effect: corev1.TaintEffectNoExecute})
	wantTolerated(t, pod, corev1.Taint{Key: "anything", Value: "else", Effect: corev1.TaintEffectNoExecute})
	want := map[string]string{"kubernetes.io/os": "linux", "evenkeel.dev/kubelet": "self-hosted"}
	assert.NoDiff(t, cmp.Diff(want, pod.NodeSelector), "it would run where the host's kubelet does not give way")
}

func wantTolerated(t *testing.T, pod corev1.PodSpec, taint corev1.Taint) {
	t.Helper()
	assert.That(t, slices.ContainsFunc(pod.Tolerations, func(tol corev1.Toleration) bool {
		return (tol.Effect == "" || tol.Effect == taint.Effect) &&
			(tol.Operator == corev1.TolerationOpExists && (tol.Key == "" || tol.Key == taint.Key) ||
				tol.Key == taint.Key && tol.Value == taint.Value)
	}), "%s is not tolerated", taint.ToString())
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
