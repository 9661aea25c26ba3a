// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"maps"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

var preflights = v1alpha1.GroupVersion.WithResource("nodeconfigpreflights")

// preflight is a valid one, but for the fields of the spec that the text sets;
// null leaves one out.
func preflight(name, spec string) *unstructured.Unstructured {
	o := rollout(name, "")
	o.SetKind("NodeConfigPreflight")
	into := o.Object["spec"].(map[string]any)
	maps.Copy(into, parse("spec: {" + spec + "}").Object["spec"].(map[string]any))
	maps.DeleteFunc(into, func(_ string, v any) bool { return v == nil })

	return o
}

func TestInvalidPreflightsAreRejectedWithAMessage(t *testing.T) {
	config := assert.Value(configFor("admin", "system:masters"))(t)
	client := dynamic.NewForConfigOrDie(config).Resource(preflights)
	for name, tt := range map[string]struct{ spec, want string }{
		"no nodes":           {"nodeSelector: null", "nodeSelector is empty and would select every node"},
		"two selections":     {"allNodes: true", "allNodes: true and a nodeSelector contradict each other"},
		"no configuration":   {"template: {}", "template must have exactly one of kubelet and kubeletDropIn"},
		"two configurations": {"template: {kubelet: {" + upstream + "}, kubeletDropIn: {" + upstream + "}}", "template must have exactly one of kubelet and kubeletDropIn"},
		"another kind":       {"template: {kubelet: {apiVersion: v1, kind: Pod}}", "kind must be KubeletConfiguration"},
		"a ConfigMap":        {"template: {configMapRef: {namespace: a, name: b}}", `unknown field "spec.template.configMapRef"`},
		"too long":           {"ttlSecondsAfterFinished: 604801", "should be less than or equal to 604800"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := client.Create(t.Context(), preflight("wrong", tt.spec), dryRun)
			code := int32(http.StatusUnprocessableEntity)
			if apierrors.IsBadRequest(err) {
				code = http.StatusBadRequest
			}

			wantRefused(t, err, code, tt.want)
		})
	}
}

func TestAskingIsARightOfItsOwn(t *testing.T) {
	admin, err := configFor("admin", "system:masters")
	assert.NoError(t, err)
	t.Cleanup(func() {
		err := dynamic.NewForConfigOrDie(admin).Resource(preflights).Delete(context.Background(), "granted", metav1.DeleteOptions{})
		assert.That(t, err == nil || apierrors.IsNotFound(err), "%v", err)
	})
	ctx := t.Context()
	_, operator := bound(t, "oscar", "evenkeel-operator")
	_, err = operator.Resource(preflights).Create(ctx, preflight("refused", ""), metav1.CreateOptions{})
	wantRefused(t, err, http.StatusForbidden, `cannot create resource "nodeconfigpreflights"`)

	mustKubectl(t, "create", "clusterrolebinding", "paul-views", "--clusterrole=evenkeel-view", "--user=paul")
	t.Cleanup(func() {
		assert.OK(t, assert.Err(kubectl(context.Background(), "delete", "clusterrolebinding", "paul-views")))
	})
	_, asker := bound(t, "paul", "evenkeel-preflight")
	asked := asker.Resource(preflights)
	assert.NoError(t, assert.Err(asked.Create(ctx, preflight("granted", ""), metav1.CreateOptions{})))
	for what, err := range map[string]error{
		"get":    errorOf(asked.Get(ctx, "granted", metav1.GetOptions{})),
		"watch":  stop(asked.Watch(ctx, metav1.ListOptions{})),
		"delete": asked.Delete(ctx, "granted", metav1.DeleteOptions{}),
	} {
		assert.OK(t, err, what)
	}

	_, err = asked.Patch(ctx, "granted", types.MergePatchType, []byte(`{"status":{"phase":"Complete"}}`), metav1.PatchOptions{}, "status")
	wantRefused(t, err, http.StatusForbidden, `cannot patch resource "nodeconfigpreflights/status"`)
	_, err = asker.Resource(rollouts).Create(ctx, rollout("refused", ""), metav1.CreateOptions{})
	wantRefused(t, err, http.StatusForbidden, `cannot create resource "nodeconfigrollouts"`)
}

func TestOnlyTheControllerWritesPreflightRequests(t *testing.T) {
	given(t, "metadata: {name: self}")
	_, operator := bound(t, "oscar", "evenkeel-operator")
	controller := dynamic.NewForConfigOrDie(asController()).Resource(nodeConfigs)
	patch := func(as dynamic.NamespaceableResourceInterface, annotations string) error {
		o, err := as.Patch(t.Context(), "self", types.MergePatchType, []byte(`{"metadata":{"annotations":`+annotations+`}}`), metav1.PatchOptions{})
		if err == nil && o.GetGeneration() != 1 {
			t.Errorf("a request changes the generation to %d", o.GetGeneration())
		}

		return err
	}
	by := operator.Resource(nodeConfigs)
	wantRefused(t, patch(by, `{"evenkeel.dev/preflight":"{}"}`), http.StatusForbidden, "ValidatingAdmissionPolicy 'evenkeel-preflight'",
		"oscar tried to write the annotation evenkeel.dev/preflight of NodeConfig self, which only the controller writes: use kubectl evenkeel preflight")
	for _, step := range []struct {
		what string
		err  error
	}{
		{"the operator's own annotation", patch(by, `{"example.com/a":"b"}`)},
		{"the controller's request", patch(controller, `{"evenkeel.dev/preflight":"{}"}`)},
		{"an annotation beside it", patch(by, `{"example.com/a":"c"}`)},
	} {
		assert.OK(t, step.err, step.what)
	}

	wantRefused(t, patch(by, `{"evenkeel.dev/preflight":"{ }"}`), http.StatusForbidden, "'evenkeel-preflight'")
	assert.OK(t, patch(by, `{"evenkeel.dev/preflight":null}`), "the request cannot be removed")
}
