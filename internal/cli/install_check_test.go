package cli

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/fleet/doctor"
)

func (c *installCluster) crd() *unstructured.Unstructured {
	c.t.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	if err := c.Get(c.t.Context(), client.ObjectKey{Name: doctor.CRDName}, crd); err != nil {
		c.t.Fatal(err)
	}
	return crd
}

func TestInstallNeedsTheCRDAndRoles(t *testing.T) {
	c := newInstallCluster(t)
	c.node("a", comesBack)
	crd := c.crd()
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	version := versions[0].(map[string]any)
	unstructured.RemoveNestedField(version, "schema", "openAPIV3Schema", "properties", "status", "properties", "runMode")
	unstructured.RemoveNestedField(version, "schema", "openAPIV3Schema", "properties", "status", "properties", "badConfigs", "items", "properties", "reason")
	if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	if err := c.Update(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.cluster.Apply(context.Background(), "../../config/api"); err != nil {
			t.Error(err)
		}
	})
	c.evenkeel("install", "a", "--yes").wantError(t,
		"the CustomResourceDefinition nodeconfigs.evenkeel.dev is older than this program, and lacks status.badConfigs.reason, status.runMode: apply evenkeel's manifests first: kubectl apply -f install.yaml")
	c.wantLabels(nil)
}

func TestInstallNeedsTheDaemonSets(t *testing.T) {
	for _, command := range []string{"install", "uninstall"} {
		evenkeel(t, command, "a", "--yes").wantError(t, "there is no DaemonSet evenkeel-install/evenkeel-"+command+"er: apply evenkeel's manifests first: kubectl apply -f install.yaml")
	}
}

func TestInstallChecksItsFlagsFirst(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"install", "a", "--all-nodes"}, "use only one of node names, --selector and --all-nodes"},
		{[]string{"install", "-l", "a=b", "--all-nodes"}, "use only one of node names, --selector and --all-nodes"},
		{[]string{"install", "a", "--max-unavailable", "0"}, `--max-unavailable: "0" is neither a number from 1 nor a percentage up to 100%`},
		{[]string{"install", "a", "--timeout", "0s"}, "--timeout must be longer than 0, not 0s"},
		{[]string{"install", "-l", "(a"}, `--selector "(a": `},
		{[]string{"uninstall", "a", "-l", "b"}, "use only one of node names, --selector and --all-nodes"},
		{[]string{"uninstall", "-l", "b", "--purge"}, "--purge cannot be used with node names or --selector"},
		{[]string{"install", "-o", "wide"}, "must be one of json, yaml"},
	} {
		evenkeel(t, tt.args...).wantError(t, tt.want)
	}
}

func TestInstallNeedsTheInstallerRole(t *testing.T) {
	c := newInstallCluster(t)
	c.controller()
	c.node("a", comesBack)
	c.node("b", comesBack)
	c.rollout("done", v1alpha1.RolloutComplete, nil)

	kubeconfig, err := c.cluster.ClientKubeconfig("ines")
	if err != nil {
		t.Fatal(err)
	}
	role := func(kind string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: "evenkeel-installer"}
	}
	ines := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "ines"}}
	give := func(binding client.Object) {
		t.Helper()
		if err := c.Create(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Delete(context.Background(), binding); err != nil {
				t.Error(err)
			}
		})
	}

	// Who may see everything, and label nothing.
	look := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "looks"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}}}}
	give(look)
	looks := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "looks"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "looks"}, Subjects: ines}
	if err := c.Create(t.Context(), looks); err != nil {
		t.Fatal(err)
	}
	c.eventually("she may look", func(context.Context) (bool, error) {
		return evenkeelAs(t, kubeconfig, "install", "a", "--dry-run").code == command.ExitComplete, nil
	})
	evenkeelAs(t, kubeconfig, "install", "a", "b", "--yes").wantExit(t, command.ExitError, []string{"in this order: a, b"},
		`begin with node a: nodes "a" is forbidden: User "ines" cannot patch resource "nodes"`, "an administrator can grant it")
	c.wantLabels(nil)
	if err := c.Delete(t.Context(), looks); err != nil {
		t.Fatal(err)
	}
	c.eventually("she may not any more", func(context.Context) (bool, error) {
		return evenkeelAs(t, kubeconfig, "install", "a", "--dry-run").code == command.ExitError, nil
	})
	evenkeelAs(t, kubeconfig, "install", "a", "--yes").wantError(t, "an administrator can grant it")

	// Who has the roles, as their comment says to give them.
	give(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "ines"}, RoleRef: role("ClusterRole"), Subjects: ines})
	for _, namespace := range []string{v1alpha1.InstallNamespace, v1alpha1.SystemNamespace, metav1.NamespaceDefault} {
		give(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "ines", Namespace: namespace}, RoleRef: role("Role"), Subjects: ines})
	}
	c.eventually("she may", func(context.Context) (bool, error) {
		return evenkeelAs(t, kubeconfig, "install", "a", "--dry-run").code == command.ExitComplete, nil
	})
	evenkeelAs(t, kubeconfig, "install", "a", "--yes").wantOutput(t, "1 of 1 node installed")
	c.plays("b", takenBack)
	failed := evenkeelAs(t, kubeconfig, "install", "b", "--yes")
	failed.wantExit(t, command.ExitHalted, []string{"b: FAILED"}, "failed on b")
	c.plays("b", comesBack)
	next := comesBack
	next.version = "v1.1.0"
	c.plays("a", next)
	c.image("evenkeel.dev/agent:v1.1.0")
	evenkeelAs(t, kubeconfig, "install", "a", "--yes").wantOutput(t, "a: installed v1.1.0")
	evenkeelAs(t, kubeconfig, "uninstall", "--yes").wantOutput(t, "a: uninstalled", "rollout done paused", "evenkeel-uninstaller deleted")
	c.wantLabels(nil)

	// And no more than that.
	config, err := restConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	hers, err := client.New(config, client.Options{Scheme: c.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.InstallNamespace, Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	for what, err := range map[string]error{
		"make a pod":        hers.Create(t.Context(), pod),
		"delete a Node":     hers.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}),
		"delete the CRD":    hers.Delete(t.Context(), c.crd()),
		"read a Secret":     hers.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.InstallNamespace, Name: "s"}, &corev1.Secret{}),
		"write NodeConfigs": hers.Delete(t.Context(), &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "a"}}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("she may %s: %v", what, err)
		}
	}
}
