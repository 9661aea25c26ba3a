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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli"
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
