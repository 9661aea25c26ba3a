// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

var preflights = v1alpha1.GroupVersion.WithResource("nodeconfigpreflights")

func preflight(name string) *unstructured.Unstructured {
	return valid("NodeConfigPreflight", name)
}

func TestAskingIsARightOfItsOwn(t *testing.T) {
	removeAtEnd(t, preflight("granted"))
	ctx := t.Context()
	_, operator := bound(t, "oscar", "evenkeel-operator")
	mustKubectl(t, "create", "clusterrolebinding", "paul-views", "--clusterrole=evenkeel-view", "--user=paul")
	kubectlAtEnd(t, "delete", "clusterrolebinding", "paul-views")
	_, asker := bound(t, "paul", "evenkeel-preflight")
	asked := asker.Resource(preflights)
	wantAnswers(t, []answer{
		{"create one as operator", assert.Err(operator.Resource(preflights).Create(ctx, preflight("refused"), metav1.CreateOptions{})),
			`cannot create resource "nodeconfigpreflights"`},
		{"create one", assert.Err(asked.Create(ctx, preflight("granted"), metav1.CreateOptions{})), ""},
		{"get it", assert.Err(asked.Get(ctx, "granted", metav1.GetOptions{})), ""},
		{"watch all", stop(asked.Watch(ctx, metav1.ListOptions{})), ""},
		{"delete it", asked.Delete(ctx, "granted", metav1.DeleteOptions{}), ""},
		{"write its status", merge(t, asked, "granted", `{"status":{"phase":"Complete"}}`, "status"),
			`cannot patch resource "nodeconfigpreflights/status"`},
		{"create a rollout", assert.Err(asker.Resource(rollouts).Create(ctx, rollout("refused", ""), metav1.CreateOptions{})),
			`cannot create resource "nodeconfigrollouts"`},
	})
}

func TestOnlyTheControllerWritesPreflightRequests(t *testing.T) {
	given(t, "metadata: {name: self}")
	_, operator := bound(t, "oscar", "evenkeel-operator")
	patch := func(as dynamic.ResourceInterface, annotations string) error {
		o, err := as.Patch(t.Context(), "self", types.MergePatchType, []byte(`{"metadata":{"annotations":`+annotations+`}}`), metav1.PatchOptions{})
		assert.That(t, err != nil || o.GetGeneration() == 1, "a request changes the generation: %v", o)
		return err
	}
	by, controller := operator.Resource(nodeConfigs), as(asController())
	wantRefused(t, patch(by, `{"evenkeel.dev/preflight":"{}"}`), http.StatusForbidden, "ValidatingAdmissionPolicy 'evenkeel-preflight'",
		"oscar tried to write the annotation evenkeel.dev/preflight of NodeConfig self, which only the controller writes: use kubectl evenkeel preflight")
	assert.OK(t, patch(by, `{"example.com/a":"b"}`), "the operator's own annotation")
	assert.OK(t, patch(controller, `{"evenkeel.dev/preflight":"{}"}`), "the controller's request")
	assert.OK(t, patch(by, `{"example.com/a":"c"}`), "an annotation beside it")
	wantRefused(t, patch(by, `{"evenkeel.dev/preflight":"{ }"}`), http.StatusForbidden, "'evenkeel-preflight'")
	assert.OK(t, patch(by, `{"evenkeel.dev/preflight":null}`), "the request cannot be removed")
}
