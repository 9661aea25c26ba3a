package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/fleet/steer"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// writeConfig writes a configuration to a file. The test removes the ConfigMap that assign makes of it.
func writeConfig(t *testing.T, name, config string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".yaml")
	if err := os.WriteFile(path, []byte(header+config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cm := &corev1.ConfigMap{}
		cm.Namespace, cm.Name = v1alpha1.SystemNamespace, steer.ContentName(path, payload.Digest(payload.KeyKubelet, []byte(header+config)))
		if err := client.IgnoreNotFound(admin.Delete(context.Background(), cm)); err != nil {
			t.Error(err)
		}
	})
	return path
}

// whileAssigning runs assign, calls do when the assignment is written, and returns the result.
func whileAssigning(t *testing.T, node, file string, do func(*v1alpha1.NodeConfig)) result {
	t.Helper()
	said := make(chan result, 1)
	go func() { said <- evenkeel(t, "assign", node, "-f", file, "--yes") }()
	nc := &v1alpha1.NodeConfig{}
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err := admin.Get(ctx, client.ObjectKey{Name: node}, nc)
		return err == nil && nc.Spec.ConfigSource != nil && nc.Spec.ConfigSource.ConfigMapRef != nil, err
	})
	if err != nil {
		t.Fatalf("the assignment was not written: %v", err)
	}
	do(nc)
	select {
	case a := <-said:
		return a
	case <-time.After(time.Minute):
		t.Fatal("the command did not end")
		return result{}
	}
}

func TestAssignStopsWaitingWhenTheAssignmentIsReplaced(t *testing.T) {
	createNode(t, "replaced-a", "replaced", "z1")
	createNodeConfig(t, "replaced-a", nil, nil)
	a := whileAssigning(t, "replaced-a", writeConfig(t, "replaced", "maxPods: 50\n"), func(nc *v1alpha1.NodeConfig) {
		nc.Spec.ConfigSource = &v1alpha1.NodeConfigSource{Local: &v1alpha1.LocalSource{}}
		if err := admin.Update(t.Context(), nc); err != nil {
			t.Error(err)
		}
	})
	a.wantExit(t, command.ExitError, []string{"node replaced-a is assigned ConfigMap evenkeel-system/replaced."}, "error: node replaced-a was assigned another configuration in the meantime; for details: kubectl evenkeel node replaced-a")
}

func TestAssignStopsWaitingWhenTheNodeConfigIsDeleted(t *testing.T) {
	createNode(t, "deleted-a", "deleted", "z1")
	createNodeConfig(t, "deleted-a", nil, nil)
	a := whileAssigning(t, "deleted-a", writeConfig(t, "deleted", "maxPods: 50\n"), func(nc *v1alpha1.NodeConfig) {
		if err := admin.Delete(t.Context(), nc); err != nil {
			t.Error(err)
		}
	})
	a.wantExit(t, command.ExitError, nil, "error: NodeConfig deleted-a was deleted: the node keeps its configuration")
}

func TestAssignShowsWhatToDoWhenTheNodeRefuses(t *testing.T) {
	createNode(t, "guarded-a", "guarded", "z1")
	createNodeConfig(t, "guarded-a", nil, nil)
	a := whileAssigning(t, "guarded-a", writeConfig(t, "guarded", "maxPods: 50\n"), func(nc *v1alpha1.NodeConfig) {
		nc.Status.ObservedGeneration = nc.Generation
		failing(&nc.Status, v1alpha1.ReasonNeedsDrain, "it contradicts cpu_manager_state")
		if err := admin.Status().Update(t.Context(), nc); err != nil {
			t.Error(err)
		}
	})
	a.wantExit(t, command.ExitHalted, nil, "error: node guarded-a refused the configuration (NeedsDrain): it contradicts cpu_manager_state; its kubelet was not stopped: it runs its local configuration\n",
		"refused until the node is cordoned and drained: kubectl drain guarded-a\n", "the assignment stays until you assign another configuration, or --local")
}

// createAnswering creates a node whose agent can answer a preflight.
func createAnswering(t *testing.T, name string) {
	t.Helper()
	node := createNode(t, name, "answering", "z1")
	node.Labels[corev1.LabelHostname] = name
	if err := admin.Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	createNodeConfig(t, name, nil, func(st *v1alpha1.NodeConfigStatus) { st.Capabilities = []string{v1alpha1.CapabilityPreflight} })
}

func TestAssignWithoutAControllerContinuesWithoutAPreflight(t *testing.T) {
	createAnswering(t, "unasked-a")
	createLease(t, admin, "pod-1_42", 15) // renewed an hour ago
	file := writeConfig(t, "unasked", "maxPods: 50\n")
	got := evenkeel(t, "assign", "unasked-a", "-f", file, "--dry-run")
	got.wantExit(t, command.ExitComplete, []string{"dry run: nothing was assigned\n"},
		"note: it is not known whether node unasked-a would accept this: evenkeel-controller has not renewed its lease for 60m: is it running? kubectl -n evenkeel-system get pods\n")
	if all, err := preflights(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%d preflights were created, which nobody answers: %v", len(all), err)
	}
}

func TestAssignWithoutTheRightToAskContinuesWithoutAPreflight(t *testing.T) {
	createAnswering(t, "unasked-b")
	operator := userOf(t, "asks-nobody")
	create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "asks-nobody"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "evenkeel-operator"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "asks-nobody"}},
	})
	bind(t, "asks-nobody", "evenkeel-operator", "nodeconfigs", v1alpha1.GroupName)
	got := evenkeelAs(t, operator, "assign", "unasked-b", "-f", writeConfig(t, "unasked", "maxPods: 50\n"), "--dry-run")
	got.wantExit(t, command.ExitComplete, []string{"dry run: nothing was assigned\n"},
		"note: it is not known whether node unasked-b would accept this: you may not create NodeConfigPreflights (the ClusterRole evenkeel-preflight grants it)\n")
	if strings.Contains(got.out, "Preflight:") {
		t.Errorf("an answer although nobody was asked:\n%s", got.out)
	}
}

func TestAssignDoesNotOverwriteAConcurrentChangeOfTheSpec(t *testing.T) {
	createNode(t, "raced-a", "raced", "z1")
	known := createNodeConfig(t, "raced-a", nil, nil)
	assign := func(nc *v1alpha1.NodeConfig, c client.Client) error {
		_, err := steer.Assign(t.Context(), c, nc, &v1alpha1.NodeConfigSource{Local: &v1alpha1.LocalSource{}}, nil)
		return err
	}
	revoked := known.DeepCopy()
	revoked.Spec.Revoked = append(revoked.Spec.Revoked, "u")
	if err := admin.Update(t.Context(), revoked); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"the dry run": assign(known, client.NewDryRunClient(admin)), "the write": assign(known, admin)} {
		if !errors.Is(err, steer.ErrChanged) || !strings.Contains(err.Error(), "nothing was assigned; run the command again") {
			t.Errorf("%s: the error is %v", what, err)
		}
	}
	now := &v1alpha1.NodeConfig{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: "raced-a"}, now); err != nil || now.Spec.ConfigSource != nil || len(now.Spec.Revoked) != 1 {
		t.Errorf("the spec is %+v, error %v", now.Spec, err)
	}
	known = now.DeepCopy()
	now.Status.Error = "a notice"
	if err := admin.Status().Update(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if err := assign(known, admin); err != nil {
		t.Errorf("after a change of the status alone: %v", err)
	}
}
