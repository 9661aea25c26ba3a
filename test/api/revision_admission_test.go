// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// configMapWriter may do with the ConfigMaps of evenkeel-system what it likes,
// as far as RBAC goes.
const configMapWriter = "wilma"

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

// revision is a ConfigMap that is labelled as a revision.
func revision(name string) *unstructured.Unstructured {
	cm := plain(name)
	cm.SetLabels(map[string]string{v1alpha1.LabelRollout: "workers", v1alpha1.LabelRevision: "1"})
	return cm
}

func plain(name string) *unstructured.Unstructured {
	cm := parse("metadata: {name: " + name + "}\ndata: {kubelet: 'a: b'}")
	cm.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	return cm
}

func revisionsAs(t *testing.T, config *rest.Config) dynamic.ResourceInterface {
	t.Helper()
	client := assert.Value(dynamic.NewForConfig(config))(t)
	return client.Resource(configMaps).Namespace(v1alpha1.SystemNamespace)
}

// revisionsOf is for a service account, in what an administrator may
// impersonate.
func revisionsOf(t *testing.T, namespace, account string) dynamic.ResourceInterface {
	t.Helper()
	config := cluster.AdminConfig()
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":" + account,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}

	return revisionsAs(t, config)
}

func TestOnlyTheControllerWritesRevisionConfigMaps(t *testing.T) {
	config := assert.Value(configFor(configMapWriter))(t)
	config.QPS = -1
	writer, admin := revisionsAs(t, config), revisionsAs(t, cluster.AdminConfig())
	controller := revisionsOf(t, v1alpha1.SystemNamespace, "evenkeel-controller")
	ctx := t.Context()
	label := func(value string) []byte {
		return []byte(`{"metadata":{"labels":{"evenkeel.dev/rollout":` + value + `}}}`)
	}
	patch := func(c dynamic.ResourceInterface, name string, data []byte) error {
		return errorOf(c.Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{}))
	}

	assert.NoError(t, assert.Err(controller.Create(ctx, revision("revision-1"), metav1.CreateOptions{})), "the controller cannot write a revision")
	assert.OK(t, patch(controller, "revision-1", []byte(`{"metadata":{"labels":{"evenkeel.dev/revision":"2"}}}`)),
		"the controller cannot number a revision")
	assert.NoError(t, assert.Err(writer.Create(ctx, plain("mine"), metav1.CreateOptions{})))
	for what, send := range map[string]func() error{
		"create one":          func() error { return errorOf(writer.Create(ctx, revision("planted"), metav1.CreateOptions{})) },
		"label one's own":     func() error { return patch(writer, "mine", label(`"workers"`)) },
		"take the label away": func() error { return patch(writer, "revision-1", label("null")) },
		"give it to another":  func() error { return patch(writer, "revision-1", label(`"others"`)) },
		"change what it says": func() error { return patch(writer, "revision-1", []byte(`{"data":{"kubelet":"c: d"}}`)) },
		"delete it":           func() error { return writer.Delete(ctx, "revision-1", metav1.DeleteOptions{}) },
		"delete all": func() error {
			return writer.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: v1alpha1.LabelRollout})
		},
	} {
		t.Run(what, func(t *testing.T) {
			wantRefused(t, send(), http.StatusForbidden, "ValidatingAdmissionPolicy 'evenkeel-revision'", configMapWriter+" tried to ", "hold the revisions of rollouts, which the controller writes", "on nodeconfigrollouts/revisions in evenkeel.dev")
		})
	}

	assert.OK(t, assert.Err(admin.Get(ctx, "revision-1", metav1.GetOptions{})), "the revision is gone")
	// The policy accepts every write to ConfigMaps that are not revisions.
	for what, send := range map[string]func() error{
		"change one's own": func() error { return patch(writer, "mine", []byte(`{"data":{"kubelet":"c: d"}}`)) },
		"another label": func() error {
			return patch(writer, "mine", []byte(`{"metadata":{"labels":{"evenkeel.dev/revision":"7"}}}`))
		},
	} {
		assert.OK(t, send(), what)
	}

	assert.OK(t, writer.Delete(ctx, "mine", metav1.DeleteOptions{}), "delete one's own")
	// Who cleans up after others may go on doing so.
	for _, account := range []string{"generic-garbage-collector", "namespace-controller"} {
		assert.NoError(t, assert.Err(admin.Create(ctx, revision("to-clean-up"), metav1.CreateOptions{})), "an administrator cannot write a revision")
		assert.OK(t, revisionsOf(t, "kube-system", account).Delete(ctx, "to-clean-up", metav1.DeleteOptions{}),
			"the", account, "cannot delete a revision")
	}

	assert.OK(t, controller.Delete(ctx, "revision-1", metav1.DeleteOptions{}), "the controller cannot collect a revision")
}

func TestATrialDurationOfCenturiesIsRejected(t *testing.T) {
	given(t, "metadata: {name: patient}")
	report := func(seconds string) error {
		return errorOf(asNode(t, "patient").Patch(t.Context(), "patient", types.MergePatchType,
			[]byte(`{"status":{"trial":{"healthySeconds":0,"restarts":0,"crashLoopThreshold":3,"durationSeconds":`+seconds+`}}}`), metav1.PatchOptions{}, "status"))
	}
	for _, seconds := range []string{"9000000000", "31536001", "-1"} {
		wantRefused(t, report(seconds), http.StatusUnprocessableEntity, "trial.durationSeconds in body should be")
	}

	for _, seconds := range []string{"0", "600", "604800", "31536000"} {
		assert.OK(t, report(seconds), seconds)
	}
}
