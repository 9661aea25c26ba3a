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
)

// installers are the DaemonSets of config/base, as the API server keeps them.
func installers(t *testing.T) map[string]appsv1.DaemonSet {
	t.Helper()
	list, err := kubernetes.NewForConfigOrDie(cluster.AdminConfig()).AppsV1().DaemonSets(v1alpha1.InstallNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]appsv1.DaemonSet{}
	for _, d := range list.Items {
		all[strings.TrimPrefix(d.Name, "evenkeel-")] = d
	}
	if len(all) != 2 {
		t.Fatalf("there are %d DaemonSets in %s, want 2", len(all), v1alpha1.InstallNamespace)
	}
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
		if d.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType {
			t.Errorf("%s has the update strategy %s: a new image would restart kubelets by itself", verb, d.Spec.UpdateStrategy.Type)
		}
		if !slices.ContainsFunc(pod.Tolerations, func(tol corev1.Toleration) bool {
			return tolerates(tol, corev1.Taint{Key: "any", Effect: corev1.TaintEffectNoExecute})
		}) {
			t.Errorf("%s does not tolerate every taint", verb)
		}
		if c.LivenessProbe != nil || c.StartupProbe != nil || c.Resources.Limits != nil || pod.PriorityClassName != "" {
			t.Errorf("%s can be ended in the middle of it, or displace others: %+v", verb, c)
		}
		if *pod.AutomountServiceAccountToken || pod.ServiceAccountName != "evenkeel-installer" {
			t.Errorf("%s has a token, or the account %s", verb, pod.ServiceAccountName)
		}
		want := []string{"/evenkeel-agent", "on-host", "--bin-dir=/var/lib/evenkeel-bin", "--", "/evenkeel-agent", verb, "--stay",
			"--probe-socket=$(EVENKEEL_PROBE_SOCKET)", "--attempt=$(POD_UID)"}
		if verb == "install" {
			want = append(want, "--turn=$(POD_REVISION)")
		}
		if diff := cmp.Diff(want, c.Command); diff != "" {
			t.Errorf("%s: %s", verb, diff)
		}
		for _, volume := range pod.Volumes {
			at := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume.Name })
			if at < 0 || c.VolumeMounts[at].MountPath != volume.HostPath.Path {
				t.Errorf("%s: volume %s is not mounted under its path on the host", verb, volume.Name)
			}
		}
		for _, path := range []string{c.ReadinessProbe.Exec.Command[0], c.Env[len(c.Env)-1].Value} {
			if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.HostPath.Path == filepath.Dir(path) }) {
				t.Errorf("%s: the directory of %s is not mounted", verb, path)
			}
		}
		other := map[string]string{"install": "evenkeel-uninstaller", "uninstall": "evenkeel-installer"}[verb]
		if anti := pod.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution; len(anti) != 1 || anti[0].LabelSelector.MatchLabels["app.kubernetes.io/name"] != other {
			t.Errorf("%s may run beside %s", verb, other)
		}
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
	// No controller runs here that creates the default ServiceAccount of a namespace.
	for _, namespace := range []string{v1alpha1.InstallNamespace, v1alpha1.SystemNamespace} {
		mustKubectl(t, "create", "serviceaccount", "default", "-n", namespace)
		t.Cleanup(func() {
			if err := core.CoreV1().ServiceAccounts(namespace).Delete(context.Background(), "default", metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	installer := installers(t)["installer"].Spec.Template.Spec
	if err := create(v1alpha1.InstallNamespace, installer); err != nil {
		t.Error(err)
	}
	namespaces := core.CoreV1().Namespaces()
	patch := func(value string) {
		t.Helper()
		words := `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":` + value + `}}}`
		if _, err := namespaces.Patch(context.Background(), v1alpha1.SystemNamespace, types.MergePatchType, []byte(words), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	patch(`"restricted"`)
	t.Cleanup(func() { patch(`null`) })
	if err := create(v1alpha1.SystemNamespace, installer); err == nil || !strings.Contains(err.Error(), `violates PodSecurity "restricted`) {
		t.Errorf("a privileged pod in %s: %v", v1alpha1.SystemNamespace, err)
	}
	var deployment appsv1.Deployment
	if err := json.Unmarshal([]byte(mustKubectl(t, "get", "deployment", "evenkeel-controller", "-n", v1alpha1.SystemNamespace, "-o", "json")), &deployment); err != nil {
		t.Fatal(err)
	}
	if err := create(v1alpha1.SystemNamespace, deployment.Spec.Template.Spec); err != nil {
		t.Errorf("the controller's own: %v", err)
	}
}
