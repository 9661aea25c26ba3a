// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheAdmissionPolicyRejectsRolloutsThatTheSchemaAccepts(t *testing.T) {
	const (
		labels = ` has a key or a value that no label of a node can have: a key is such as topology.kubernetes.io/zone, a value has at most 63 letters`
		down   = `: a step says how many nodes shall be updated when it is done, not how many more`
	)
	for name, test := range map[string]struct{ spec, want string }{
		"a key with a space":             {`nodeSelector: {matchLabels: {"my pool": a}}`, `spec.nodeSelector` + labels},
		"a key with an empty prefix":     {`nodeSelector: {matchLabels: {/pool: a}}`, `spec.nodeSelector` + labels},
		"a value with a space":           {`nodeSelector: {matchLabels: {pool: "a b"}}`, `spec.nodeSelector` + labels},
		"a key of an expression":         {`nodeSelector: {matchExpressions: [{key: pool=a, operator: Exists}]}`, `spec.nodeSelector` + labels},
		"a value of an expression":       {`nodeSelector: {matchExpressions: [{key: pool, operator: In, values: [a, "b,c"]}]}`, `spec.nodeSelector` + labels},
		"canaries":                       {`strategy: {canarySelector: {a/b/c: d}}`, `spec.strategy.canarySelector` + labels},
		"both":                           {`nodeSelector: {matchLabels: {"": a}}, strategy: {canarySelector: {a: -}}`, `spec.nodeSelector, spec.strategy.canarySelector` + labels},
		"percentages that go down":       {`strategy: {steps: [{nodes: 1}, {nodes: 20%}, {pause: {}}, {nodes: 10%}, {nodes: 100%}]}`, `spec.strategy.steps must not go down, but go 20%, 10%, 100%` + down},
		"numbers that go down":           {`strategy: {steps: [{nodes: 10}, {nodes: 100%}, {nodes: 9}]}`, `spec.strategy.steps must not go down, but go 10, 9` + down},
		"an approval beyond the steps":   {`strategy: {steps: [{nodes: 1}, {pause: {}}]}, approval: {revision: 1, step: 2}`, `spec.approval.step is 2, but the last step is 1, counted from 0: set it to the step that waits, status.step`},
		"an approval beyond the default": {`approval: {revision: 1, step: 3}`, `spec.approval.step is 3, but the last step is 2, counted from 0`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := rolloutsAsAdmin(t).Create(t.Context(), rollout("refused", test.spec), dryRun)
			wantRefused(t, err, http.StatusUnprocessableEntity, `ValidatingAdmissionPolicy 'evenkeel-rollout'`, test.want)
			own := fleet.CheckAdmission(typed(t, test.spec))
			assert.That(t, own != nil && (err == nil || strings.Contains(err.Error(), own.Error())),
				"the policy says %v, the controller %v", err, own)
		})
	}

	for name, spec := range map[string]string{
		"labels as nodes have them": `nodeSelector: {matchLabels: {topology.kubernetes.io/zone: a.B_c-1, node-role.kubernetes.io/worker: ""},
			matchExpressions: [{key: A_b, operator: NotIn, values: [x, ""]}]}`,
		"steps that stay":           `strategy: {steps: [{nodes: 1}, {nodes: 1}, {nodes: 9%}, {nodes: 10%}, {nodes: 10%}, {nodes: 2}, {nodes: 100%}]}`,
		"an approval of the last":   `strategy: {steps: [{nodes: 1}, {pause: {}}]}, approval: {revision: 1, step: 1}`,
		"an approval of a default":  `approval: {revision: 1, step: 2}`,
		"no strategy and canaries ": `strategy: {canarySelector: {}}`,
	} {
		t.Run(name, func(t *testing.T) {
			assert.OK(t, assert.Err(rolloutsAsAdmin(t).Create(t.Context(), rollout("accepted", spec), dryRun)))
			assert.OK(t, fleet.CheckAdmission(typed(t, spec)), "the controller refuses it")
		})
	}
}

// typed is a rollout as the controller reads it.
func typed(t *testing.T, spec string) *v1alpha1.NodeConfigRollout {
	t.Helper()
	out := &v1alpha1.NodeConfigRollout{}
	assert.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(rollout("typed", spec).Object, out))
	return out
}

func TestAnApprovalIsValidatedOnlyWhenItIsWritten(t *testing.T) {
	givenRollout(t, "approved", `strategy: {steps: [{nodes: 1}, {pause: {}}, {nodes: 100%}, {pause: {}}]}, approval: {revision: 1, step: 3}`)
	patch := func(body string) error {
		_, err := rolloutsAsAdmin(t).Patch(t.Context(), "approved", types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	assert.OK(t, patch(`{"spec":{"strategy":{"steps":[{"nodes":1}]}}}`), "fewer steps beside an old approval")
	wantRefused(t, patch(`{"spec":{"approval":{"revision":2}}}`), http.StatusUnprocessableEntity, `spec.approval.step is 3, but the last step is 0`)
	assert.OK(t, patch(`{"spec":{"approval":{"revision":2,"step":0}}}`))
	assert.OK(t, patch(`{"spec":{"approval":null}}`))
}

func TestANodeCannotReadOrWriteRollouts(t *testing.T) {
	givenRollout(t, "guarded", "")
	node := rolloutsAs(t, "system:node:self", "system:nodes")
	ctx := t.Context()
	writes := func() map[string]error {
		patch := []byte(`{"spec":{"paused":true},"status":{"phase":"Complete"}}`)
		return map[string]error{
			"CREATE": errorOf(node.Create(ctx, rollout("guarded", ""), metav1.CreateOptions{})),
			"UPDATE": errorOf(node.Patch(ctx, "guarded", types.MergePatchType, patch, metav1.PatchOptions{})),
			"status": errorOf(node.Patch(ctx, "guarded", types.MergePatchType, patch, metav1.PatchOptions{}, "status")),
			"DELETE": node.Delete(ctx, "guarded", metav1.DeleteOptions{}),
		}
	}
	for _, err := range writes() {
		wantRefused(t, err, http.StatusForbidden, `User "system:node:self" cannot `)
	}

	_, err := node.List(ctx, metav1.ListOptions{})
	wantRefused(t, err, http.StatusForbidden, `User "system:node:self" cannot list resource "nodeconfigrollouts"`)

	grantNodesEverything(t)
	refused := writes()
	refused["DELETE *"] = node.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	for operation, err := range refused {
		words := map[string]string{"status": "UPDATE NodeConfigRollout guarded", "DELETE *": "DELETE NodeConfigRollout *"}[operation]
		if words == "" {
			words = operation + " NodeConfigRollout guarded"
		}

		wantRefused(t, err, http.StatusForbidden, `ValidatingAdmissionPolicy 'evenkeel-rollout'`,
			"system:node:self tried to "+words+", but a node never writes a rollout: a person or the controller does")
	}

	if o, err := rolloutsAsAdmin(t).Get(ctx, "guarded", metav1.GetOptions{}); err != nil || o.GetGeneration() != 1 {
		t.Errorf("got %v, error %v, want it as it was", o, err)
	}
}
