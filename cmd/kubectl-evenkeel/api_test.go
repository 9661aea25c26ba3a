// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/program"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

// What needs an API server and is no transcript: rights, servers between, and
// what runs until it is interrupted.

// evenkeel runs a command line in this process.
func evenkeel(t *testing.T, kubeconfig string, args ...string) fakeapi.Result {
	t.Helper()
	return evenkeelIn(t.Context(), kubeconfig, args...)
}

func evenkeelIn(ctx context.Context, kubeconfig string, args ...string) fakeapi.Result {
	var out, errOut bytes.Buffer
	streams := genericclioptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}
	code := cli.Run(ctx, program.NewInfo("kubectl-evenkeel", "v0.0.0-test", "0123abcd"), append(args, "--kubeconfig", kubeconfig), streams)
	return fakeapi.Result{Code: code, Out: out.String(), Err: errOut.String()}
}

// create creates an object and removes it when the test ends.
func create(t *testing.T, o client.Object) {
	t.Helper()
	assert.NoError(t, admin.Create(t.Context(), o))
	t.Cleanup(func() {
		assert.OK(t, client.IgnoreNotFound(admin.Delete(context.Background(), o)))
	})
}

// The API server sends built-in kinds in protobuf, whose dump in the log would
// hide credentials from the masking.
func TestVerbosityMasksCredentialsInConfigMaps(t *testing.T) {
	create(t, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "w-1", Labels: map[string]string{v1alpha1.LabelRollout: "masked", v1alpha1.LabelRevision: "1"}},
		Data:       map[string]string{"kubelet": fakeapi.Header + "staticPodURLHeader: {Authorization: [Bearer pod-swordfish-2]}\n"},
	})
	fakeapi.Of(t, admin).AddRollout("masked", "masked", fakeapi.Pods(50), nil)
	got := evenkeel(t, cluster.AdminKubeconfig(), "rollout", "history", "masked", "-v=10")
	assert.Must(t, got.Code == 0 && strings.Contains(got.Err, "staticPodURLHeader"),
		"exit %d, and the ConfigMap is not shown: %s", got.Code, got.Err)
	for _, secret := range []string{"swordfish", "dfish-2"} {
		if i := strings.Index(got.Err, secret); i >= 0 {
			t.Errorf("the credential is shown: %s", got.Err[max(0, i-300):i+50])
		}
	}
}

// A configuration is one value: what applies a manifest after a push gives
// exactly the manifest's configuration, or conflicts.
func TestAnApplyAfterAPushGivesExactlyWhatTheManifestHas(t *testing.T) {
	const forced = "apply --server-side --force-conflicts"
	tools := map[string]string{
		"Flux":                          forced + " --field-manager=kustomize-controller",
		"Argo CD":                       "apply --field-manager=argocd-controller",
		"Argo CD with server-side":      forced + " --field-manager=argocd-controller",
		"kubectl":                       "apply",
		"kubectl with server-side":      "apply --server-side",
		"kubectl with server-side, all": forced,
		"another applier":               "apply --server-side --field-manager=ci",
	}
	const git = `{"apiVersion":"kubelet.config.k8s.io/v1beta1","evictionHard":{"memory.available":"500Mi"},"kind":"KubeletConfiguration","maxPods":101}`
	manifest := fakeapi.File(t, `{"apiVersion":"evenkeel.dev/v1alpha1","kind":"NodeConfigRollout","metadata":{"name":"taken"},"spec":{`+
		`"nodeSelector":{"matchLabels":{"team":"git"}},"strategy":{"steps":[{"nodes":"100%"}]},"template":{"kubelet":`+git+`}}}`)
	pushed := fakeapi.File(t, fakeapi.Header+
		"maxPods: 50\npodPidsLimit: 100\nevictionHard: {nodefs.available: 5%}\nshutdownGracePeriod: null\n")
	apply := func(args string) error {
		cmd := exec.CommandContext(t.Context(), "../../bin/tools/kubectl", append(strings.Fields(args), "--kubeconfig="+cluster.AdminKubeconfig(), "-f", manifest)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}

		return nil
	}
	push := func(t *testing.T, args ...string) {
		t.Helper()
		got := evenkeel(t, cluster.AdminKubeconfig(), append([]string{"push", "taken", "-f", pushed, "--yes"}, args...)...)
		assert.Must(t, got.Code == 0, "exit %d: %s%s", got.Code, got.Out, got.Err)
	}
	selected := []string{"-l", "pool=pushed,team=b", "--steps=1,pause,100%"}
	for history, before := range map[string]func(t *testing.T, args string){
		"the push created it":        func(t *testing.T, _ string) { push(t, selected...) },
		"the push created a drop-in": func(t *testing.T, _ string) { push(t, append(selected, "--drop-in")...) },
		"the push changed it":        func(t *testing.T, args string) { assert.NoError(t, apply(args)); push(t) },
		"the push changed everything": func(t *testing.T, args string) {
			assert.NoError(t, apply(args))
			push(t, append(selected, "--drop-in")...)
		},
		"the push changed what kubectl created": func(t *testing.T, _ string) {
			assert.NoError(t, apply("create --save-config=false"))
			push(t, selected...)
		},
	} {
		for tool, args := range tools {
			t.Run(tool+"/"+history, func(t *testing.T) {
				r := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "taken"}}
				t.Cleanup(func() { assert.NoError(t, admin.Delete(context.Background(), r)) })
				before(t, args)
				err := apply(args)
				if err != nil && strings.HasPrefix(args, "apply --server-side") && !strings.HasPrefix(args, forced) {
					assert.ErrorHas(t, err, ".spec.template")
					assert.ErrorHas(t, err, `"kubectl-evenkeel`)
					err = apply(strings.Replace(args, "apply --server-side", forced, 1))
				}

				assert.NoError(t, err)
				assert.NoError(t, admin.Get(t.Context(), client.ObjectKeyFromObject(r), r))
				s := r.Spec
				assert.That(t, s.Template.Kubelet != nil && s.Template.KubeletDropIn == nil && string(s.Template.Kubelet.Raw) == git, "the template is %+v", s.Template)
				assert.Equal(t, fmt.Sprint(s.NodeSelector.MatchLabels), "map[team:git]")
				assert.That(t, len(s.Strategy.Steps) == 1, "the steps are %+v", s.Strategy.Steps)
			})
		}
	}
}

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
