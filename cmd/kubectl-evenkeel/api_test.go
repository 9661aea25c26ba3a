// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
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
