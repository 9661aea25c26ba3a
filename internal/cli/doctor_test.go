package cli

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	cmddoctor "github.com/evenkeel/evenkeel/internal/cli/doctor"
	"github.com/evenkeel/evenkeel/internal/fleet/doctor"
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
