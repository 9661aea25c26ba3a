// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheAdmissionPolicyRejectsRolloutsThatTheSchemaAccepts(t *testing.T) {
	cases := specCases(t, "NodeConfigRollout")
	for name, c := range cases.Refused {
		t.Run(name, func(t *testing.T) {
			_, err := tried(t, "NodeConfigRollout", c.Spec)
			wantRefused(t, err, http.StatusUnprocessableEntity, append(c.Says, `ValidatingAdmissionPolicy 'evenkeel-rollout'`)...)
			own := fleet.CheckAdmission(typed(t, c.Spec))
			assert.That(t, own != nil && (err == nil || strings.Contains(err.Error(), own.Error())),
				"the policy says %v, the controller %v", err, own)
		})
	}

	for name, c := range cases.Admitted {
		t.Run(name, func(t *testing.T) {
			assert.OK(t, assert.Err(tried(t, "NodeConfigRollout", c.Spec)))
			assert.OK(t, fleet.CheckAdmission(typed(t, c.Spec)), "the controller refuses it")
		})
	}
}

// typed is a rollout as the controller reads it.
func typed(t *testing.T, spec json.RawMessage) *v1alpha1.NodeConfigRollout {
	t.Helper()
	out := &v1alpha1.NodeConfigRollout{}
	assert.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(valid("NodeConfigRollout", "typed", spec).Object, out))
	return out
}

func TestAnApprovalIsValidatedOnlyWhenItIsWritten(t *testing.T) {
	givenRollout(t, "approved", `strategy: {steps: [{nodes: 1}, {pause: {}}, {nodes: 100%}, {pause: {}}]}, approval: {revision: 1, step: 3}`)
	patch := func(body string) error { return merge(t, rolloutsAsAdmin(), "approved", body) }
	assert.OK(t, patch(`{"spec":{"strategy":{"steps":[{"nodes":1}]}}}`), "fewer steps beside an old approval")
	wantRefused(t, patch(`{"spec":{"approval":{"revision":2}}}`), http.StatusUnprocessableEntity, `spec.approval.step is 3, but the last step is 0`)
	assert.OK(t, patch(`{"spec":{"approval":{"revision":2,"step":0}}}`))
	assert.OK(t, patch(`{"spec":{"approval":null}}`))
}

func TestANodeCannotReadOrWriteRollouts(t *testing.T) {
	givenRollout(t, "guarded", "")
	node := rolloutsAs(nodeConfig("self"))
	ctx := t.Context()
	const patch = `{"spec":{"paused":true},"status":{"phase":"Complete"}}`
	type write struct {
		operation string
		err       error
	}
	writes := func() []write {
		return []write{
			{"CREATE NodeConfigRollout guarded", assert.Err(node.Create(ctx, rollout("guarded", ""), metav1.CreateOptions{}))},
			{"UPDATE NodeConfigRollout guarded", merge(t, node, "guarded", patch)},
			{"UPDATE NodeConfigRollout guarded", merge(t, node, "guarded", patch, "status")},
			{"DELETE NodeConfigRollout guarded", node.Delete(ctx, "guarded", metav1.DeleteOptions{})},
			{"DELETE NodeConfigRollout *", node.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})},
		}
	}
	for _, w := range writes() {
		wantRefused(t, w.err, http.StatusForbidden, `User "system:node:self" cannot `)
	}

	wantRefused(t, assert.Err(node.List(ctx, metav1.ListOptions{})), http.StatusForbidden,
		`User "system:node:self" cannot list resource "nodeconfigrollouts"`)
	grantNodesEverything(t)
	for _, w := range writes() {
		wantRefused(t, w.err, http.StatusForbidden, `ValidatingAdmissionPolicy 'evenkeel-rollout'`,
			"system:node:self tried to "+w.operation+", but a node never writes a rollout: a person or the controller does")
	}

	o := assert.Value(rolloutsAsAdmin().Get(ctx, "guarded", metav1.GetOptions{}))(t)
	assert.Equal(t, o.GetGeneration(), 1, "the generation is")
}
