// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// installers are the DaemonSets of config/base, as the API server keeps them.
func installers(t *testing.T) map[string]appsv1.DaemonSet {
	t.Helper()
	list := assert.Value(kubernetes.NewForConfigOrDie(cluster.AdminConfig()).AppsV1().DaemonSets(v1alpha1.InstallNamespace).List(t.Context(), metav1.ListOptions{}))(t)
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
		if want := map[string]string{"kubernetes.io/os": "linux", v1alpha1.LabelAgent: verb}; !cmp.Equal(pod.NodeSelector, want) {
			t.Errorf("%s goes to %v, want %v", verb, pod.NodeSelector, want)
		}

		assert.That(t, d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType,
			"%s has the update strategy %s: a new image would restart kubelets by itself", verb, d.Spec.UpdateStrategy.Type)
		if !slices.ContainsFunc(pod.Tolerations, func(tol corev1.Toleration) bool {
			return tolerates(tol, corev1.Taint{Key: "any", Effect: corev1.TaintEffectNoExecute})
		}) {
			t.Errorf("%s does not tolerate every taint", verb)
		}

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
	core := kubernetes.NewForConfigOrDie(cluster.AdminConfig())
	create := func(namespace string, spec corev1.PodSpec) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "p-", Namespace: namespace}, Spec: *spec.DeepCopy()}
		pod.Spec.ServiceAccountName, pod.Spec.PriorityClassName = "default", ""
		_, err := core.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	// No controller runs here that creates the default ServiceAccount of a
	// namespace.
	for _, namespace := range []string{v1alpha1.InstallNamespace, v1alpha1.SystemNamespace} {
		mustKubectl(t, "create", "serviceaccount", "default", "-n", namespace)
		t.Cleanup(func() {
			assert.OK(t, core.CoreV1().ServiceAccounts(namespace).Delete(context.Background(), "default", metav1.DeleteOptions{}))
		})
	}

	installer := installers(t)["installer"].Spec.Template.Spec
	assert.OK(t, create(v1alpha1.InstallNamespace, installer))
	namespaces := core.CoreV1().Namespaces()
	patch := func(value string) {
		t.Helper()
		words := `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":` + value + `}}}`
		assert.NoError(t,
			assert.Err(namespaces.Patch(context.Background(), v1alpha1.SystemNamespace, types.MergePatchType, []byte(words), metav1.PatchOptions{})))
	}
	patch(`"restricted"`)
	t.Cleanup(func() { patch(`null`) })
	assert.ErrorHas(t, create(v1alpha1.SystemNamespace, installer),
		`violates PodSecurity "restricted`, "a privileged pod in", v1alpha1.SystemNamespace)
	var deployment appsv1.Deployment
	assert.NoError(t,
		json.Unmarshal([]byte(mustKubectl(t, "get", "deployment", "evenkeel-controller", "-n", v1alpha1.SystemNamespace, "-o", "json")), &deployment))
	assert.OK(t, create(v1alpha1.SystemNamespace, deployment.Spec.Template.Spec), "the controller's own")
}
