// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

// The roles evenkeel-installer are enough to install, to upgrade and to
// uninstall, and not for more.
func TestInstallNeedsTheInstallerRole(t *testing.T) {
	assert.NoError(t, empty(t.Context()))
	assert.NoError(t, cluster.Apply(t.Context(), "../../config/installer"))
	t.Cleanup(func() {
		for _, o := range []client.Object{&appsv1.ControllerRevision{}, &corev1.Pod{}, &appsv1.DaemonSet{}} {
			assert.OK(t, admin.DeleteAllOf(context.Background(), o, client.InNamespace(v1alpha1.InstallNamespace), client.GracePeriodSeconds(0)))
		}
	})
	installers := &fakeapi.Installers{Client: admin}
	image := func(version string) {
		t.Helper()
		assert.NoError(t, installers.Image(t.Context(), "evenkeel.dev/agent:"+version))
	}
	image("v1.0.0")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- installers.Run(ctx, 50*time.Millisecond) }()
	defer func() {
		stop()
		assert.OK(t, <-ended)
	}()
	for _, name := range []string{"a", "b"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		create(t, node)
		installers.Plays(name, fakeapi.ComesBack)
	}

	fakeapi.Of(t, admin).AddRollout("done", "workers", fakeapi.Pods(120), func(r *v1alpha1.NodeConfigRollout) { r.Status.Phase = v1alpha1.RolloutComplete })
	create(t, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "evenkeel-controller"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"is": "controller"}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"is": "controller"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
	}})

	kubeconfig := assert.Value(cluster.ClientKubeconfig("ines"))(t)
	evenkeel(t, kubeconfig, "install", "a", "--yes").WantError(t, "an administrator can grant it")
	ines := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "ines"}}
	create(t, bindingOf("ines", "evenkeel-installer"))
	for _, namespace := range []string{v1alpha1.InstallNamespace, v1alpha1.SystemNamespace, metav1.NamespaceDefault} {
		create(t, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "ines", Namespace: namespace}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "evenkeel-installer"}, Subjects: ines})
	}

	assert.NoError(t, wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return evenkeel(t, kubeconfig, "install", "a", "--dry-run").Code == command.ExitComplete, nil
	}), "the roles are not enough for a dry run")

	evenkeel(t, kubeconfig, "install", "a", "--yes").WantOutput(t, "1 of 1 node installed")
	installers.Plays("b", fakeapi.TakenBack)
	evenkeel(t, kubeconfig, "install", "b", "--yes").Want(t, command.ExitHalted, []string{"b: FAILED"}, "failed on b")
	installers.Plays("b", fakeapi.ComesBack)
	next := fakeapi.ComesBack
	next.Version = "v1.1.0"
	installers.Plays("a", next)
	image("v1.1.0")
	evenkeel(t, kubeconfig, "install", "a", "--yes").WantOutput(t, "a: installed v1.1.0")
	evenkeel(t, kubeconfig, "uninstall", "--yes").WantOutput(t, "a: uninstalled", "rollout done paused", "evenkeel-uninstaller deleted")

	config := assert.Value(clientcmd.BuildConfigFromFlags("", kubeconfig))(t)
	hers := assert.Value(client.New(config, client.Options{Scheme: admin.Scheme()}))(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.InstallNamespace, Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	crd := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}, ObjectMeta: metav1.ObjectMeta{Name: "nodeconfigs.evenkeel.dev"}}
	for what, err := range map[string]error{
		"make a pod":        hers.Create(t.Context(), pod),
		"delete a Node":     hers.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}),
		"delete the CRD":    hers.Delete(t.Context(), crd),
		"read a Secret":     hers.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.InstallNamespace, Name: "s"}, &corev1.Secret{}),
		"write NodeConfigs": hers.Delete(t.Context(), &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "a"}}),
	} {
		assert.That(t, apierrors.IsForbidden(err), "she may %s: %v", what, err)
	}
}
