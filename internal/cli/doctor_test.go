package cli

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	cmddoctor "github.com/evenkeel/evenkeel/internal/cli/doctor"
	"github.com/evenkeel/evenkeel/internal/fleet/doctor"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// createLease creates the controller's lease, last renewed an hour ago.
func createLease(t *testing.T, c client.Client, holder string, seconds int32) *coordinationv1.Lease {
	t.Helper()
	renewed := metav1.NewMicroTime(time.Now().Add(-time.Hour))
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.ControllerLease},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &renewed, LeaseDurationSeconds: &seconds},
	}
	if err := c.Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Delete(context.Background(), lease); err != nil {
			t.Error(err)
		}
	})
	return lease
}

// findings runs doctor, which must end with this code, and returns what it found, by check.
func findings(t *testing.T, code int) map[string][]doctor.Finding {
	t.Helper()
	a := evenkeel(t, "doctor", "-o", "json")
	if a.code != code || a.err != "" {
		t.Fatalf("exit %d, want %d: %s%s", a.code, code, a.out, a.err)
	}
	var d doctor.Report
	if err := json.Unmarshal([]byte(a.out), &d); err != nil {
		t.Fatal(err)
	}
	out := map[string][]doctor.Finding{}
	for _, f := range d.Findings {
		if f.Check != "controller-rights" { // config/controller is not installed here
			out[f.Check] = append(out[f.Check], f)
		}
	}
	return out
}

// diagnose returns the last finding of each check.
func diagnose(t *testing.T, code int) map[string]doctor.Finding {
	t.Helper()
	out := map[string]doctor.Finding{}
	for check, all := range findings(t, code) {
		out[check] = all[len(all)-1]
	}
	return out
}

func TestDoctorDistinguishesADeadControllerFromAWrongClock(t *testing.T) {
	scheme := admin.Scheme()
	if err := coordinationv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	lease := createLease(t, admin, "pod-1_42", 1)
	if f := diagnose(t, cmddoctor.ExitProblems)["controller"]; f.Severity != doctor.Error || !strings.HasPrefix(f.Wrong, "pod-1_42 has not renewed it since ") {
		t.Errorf("of a lease that nobody renews: %+v", f)
	}

	// Somebody renews it whose clock is an hour behind.
	thirty := int32(30)
	lease.Spec.LeaseDurationSeconds = &thirty
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		for {
			next := metav1.NewMicroTime(lease.Spec.RenewTime.Add(time.Second))
			lease.Spec.RenewTime = &next
			err := admin.Update(ctx, lease)
			select {
			case <-ctx.Done():
				ended <- nil
				return
			case <-time.After(100 * time.Millisecond):
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	f, found := diagnose(t, cmddoctor.ExitProblems)["controller"] // its rights are missing
	if found {
		t.Errorf("of a controller that works: %+v", f)
	}
	cancel()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestDoctorListsSilentAgentsAndRecreatedConfigMaps(t *testing.T) {
	cm := createRevision(t, "doctored", 1, "maxPods: 7\n")
	createNode(t, "patient-1", "doctored", "")
	createNodeConfig(t, "patient-1", byPerson(cm), nil)
	if f := diagnose(t, cmddoctor.ExitHealthy); f["sources"].Nodes != 0 || f["silent"].Nodes != 0 || f["no-agent"].Nodes != 0 {
		t.Errorf("of a node that is well: %v", f)
	}
	createNode(t, "patient-2", "doctored", "")
	other := byPerson(cm)
	other.ConfigMapRef.UID, other.ConfigMapRef.SHA256 = "another", ""
	createNodeConfig(t, "patient-2", other, nil)
	failed := createNode(t, "patient-3", "doctored", "")
	failed.Labels[v1alpha1.LabelAgent], failed.Annotations = v1alpha1.AgentInstallFailed, map[string]string{v1alpha1.AnnotationAgentFailed: "no systemd"}
	if err := admin.Update(t.Context(), failed); err != nil {
		t.Fatal(err)
	}
	found := diagnose(t, cmddoctor.ExitProblems)
	if f := found["sources"]; f.Nodes != 1 || f.Names[0] != "patient-2" || !strings.Contains(f.Wrong, "was deleted and created again") {
		t.Errorf("of a ConfigMap that was created again: %+v", f)
	}
	if f := found["install"]; f.Severity != doctor.Warning || f.Names[0] != "patient-3" || f.Wrong != "kubectl evenkeel install failed: no systemd" {
		t.Errorf("of an installation that failed: %+v", f)
	}
	if f := found["no-agent"]; f.Severity != doctor.Note || f.Names[0] != "patient-3" {
		t.Errorf("of a node without an agent: %+v", f)
	}
	waits := createNode(t, "patient-4", "doctored", "")
	waits.Labels[v1alpha1.LabelAgent] = v1alpha1.AgentUninstall
	if err := admin.Update(t.Context(), waits); err != nil {
		t.Fatal(err)
	}
	if f := findings(t, cmddoctor.ExitProblems)["install"]; len(f) != 2 || f[1].Names[0] != "patient-4" || f[1].Wrong != "is labelled evenkeel.dev/agent=uninstall, but DaemonSet evenkeel-install/evenkeel-uninstaller does not exist" {
		t.Errorf("of a node that waits for what is not there: %+v", f)
	}
	createRollout(t, "doctored", "doctored", pods(7), nil)
	if f := diagnose(t, cmddoctor.ExitProblems)["no-agent"]; f.Severity != doctor.Warning || f.Names[0] != "patient-3" {
		t.Errorf("of a node without an agent that a rollout selects: %+v", f)
	}
}

// newCluster starts an API server without anything of evenkeel, and returns its administrator.
func newCluster(t *testing.T) (*localcluster.Cluster, client.Client) {
	t.Helper()
	c, err := localcluster.Start(t.Context(), localcluster.Options{Manifests: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	out, err := client.New(c.AdminConfig(), client.Options{Scheme: admin.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c, out
}

// From an empty cluster to a halted rollout: each report starts with what matters, and lists what explains the rest.
func TestDoctorStartsWithAHeadline(t *testing.T) {
	if err := coordinationv1.AddToScheme(admin.Scheme()); err != nil {
		t.Fatal(err)
	}
	own, administrator := newCluster(t)
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	// doctor runs the command, and returns the lines of the findings without what to do.
	doctor := func(kubeconfig string, code int, headline, checked string, args ...string) []string {
		t.Helper()
		a := evenkeelAs(t, kubeconfig, append([]string{"doctor"}, args...)...)
		lines := strings.Split(strings.TrimSuffix(a.out, "\n"), "\n")
		if a.code != code || a.err != "" || lines[0] != headline || !regexp.MustCompile("^"+checked+"$").MatchString(lines[len(lines)-1]) {
			t.Fatalf("exit %d, want %d, %q and %q:\n%s%s", a.code, code, headline, checked, a.out, a.err)
		}
		var found []string
		for _, line := range lines[1 : len(lines)-1] {
			if line != "" && !strings.HasPrefix(line, " ") {
				found = append(found, line)
			}
		}
		return found
	}
	list := func(args ...string) []string {
		return doctor(own.AdminKubeconfig(), cmddoctor.ExitProblems, args[0], args[1], args[2:]...)
	}

	found := list("evenkeel is not installed in this cluster", "checked 0 nodes, 0 agents, 0 rollouts: [0-9]+ errors, [0-9]+ notes")
	if len(found) != 2 || !strings.HasPrefix(found[0], "error    evenkeel: is not installed: none of its ") || !strings.HasSuffix(found[1], " more findings follow from these: -o wide lists everything") {
		t.Errorf("of an empty cluster: %q", found)
	}
	if found := list("evenkeel is not installed in this cluster", "checked 0 nodes, 0 agents, 0 rollouts: [0-9]+ errors, [0-9]+ notes", "-o", "wide"); len(found) < 20 || !slices.Contains(found, "error    Namespace evenkeel-system: is missing: revisions and the controller have no namespace") {
		t.Errorf("of an empty cluster, with -o wide: %q", found)
	}

	must(own.Apply(t.Context(), "../../config/api/crd"))
	found = list("evenkeel is installed incompletely", "checked 0 nodes, 0 agents, 0 rollouts: [0-9]+ errors, [0-9]+ notes")
	if len(found) != 2 || !strings.HasPrefix(found[0], "error    evenkeel: is installed incompletely: ") {
		t.Errorf("with only CRDs: %q", found)
	}

	must(own.Apply(t.Context(), "../../config/api"), own.Apply(t.Context(), "../../config/controller"))
	seconds, holder, renewed := int32(3600), "pod-1_42", metav1.NewMicroTime(time.Now())
	must(administrator.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.ControllerLease},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &renewed, LeaseDurationSeconds: &seconds},
	}))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"node-restriction.kubernetes.io/pool": "a"}}}
	nc := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	must(administrator.Create(t.Context(), node), administrator.Create(t.Context(), nc))
	nc.Status = v1alpha1.NodeConfigStatus{ObservedGeneration: nc.Generation, AgentVersion: "v0.1.0", RemoteConfig: v1alpha1.RemoteConfigNodeConfig, Conditions: []metav1.Condition{{
		Type: v1alpha1.ConditionConfigOK, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllChecksPassed, LastTransitionTime: metav1.Now(),
	}}}
	must(administrator.Status().Update(t.Context(), nc))
	if found := doctor(own.AdminKubeconfig(), cmddoctor.ExitHealthy, "no problems", "checked 1 node, 1 agent, 0 rollouts"); len(found) > 0 {
		t.Errorf("of a cluster that is well: %q", found)
	}

	nc.Status.Conditions[0].Status, nc.Status.Conditions[0].Reason = metav1.ConditionFalse, v1alpha1.ReasonCrashLooped
	r := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "workers"}, Spec: v1alpha1.NodeConfigRolloutSpec{
		NodeSelector: metav1.LabelSelector{MatchLabels: node.Labels}, Template: v1alpha1.RolloutTemplate{Kubelet: &runtime.RawExtension{Raw: []byte(pods(7))}},
	}}
	must(administrator.Status().Update(t.Context(), nc), administrator.Create(t.Context(), r))
	r.Status.Phase, r.Status.Message = v1alpha1.RolloutHalted, "1 node failed (limit 1)"
	must(administrator.Status().Update(t.Context(), r))
	found = list("1 rollout is halted, 1 node failed", "checked 1 node, 1 agent, 1 rollout: 2 warnings")
	if len(found) != 2 || !strings.HasPrefix(found[0], "warning  node a: went back to last-known-good (CrashLooped)") || found[1] != "warning  NodeConfigRollout workers: is Halted: 1 node failed (limit 1)" {
		t.Errorf("of a halted rollout: %q", found)
	}

	stranger, err := own.ClientKubeconfig("stranger")
	must(err)
	found = doctor(stranger, cmddoctor.ExitUnknown, "nothing could be checked: you are not allowed to read evenkeel's objects", "checked 0 nodes, 0 agents, 0 rollouts: [0-9]+ unknown")
	if len(found) < 5 || slices.ContainsFunc(found, func(line string) bool { return !strings.HasPrefix(line, "unknown  ") }) {
		t.Errorf("of a forbidden user: %q", found)
	}
}
