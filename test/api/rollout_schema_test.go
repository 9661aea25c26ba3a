// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

var (
	rollouts = v1alpha1.GroupVersion.WithResource("nodeconfigrollouts")
	dryRun   = metav1.CreateOptions{FieldValidation: "Strict", DryRun: []string{metav1.DryRunAll}}
)

func rolloutsAs(config *rest.Config) dynamic.ResourceInterface {
	return dynamic.NewForConfigOrDie(config).Resource(rollouts)
}

func rolloutsAsAdmin() dynamic.ResourceInterface {
	return rolloutsAs(configFor("admin", "system:masters"))
}

// rollout is a valid one, but for the fields of the spec that the text sets;
// null leaves one out.
func rollout(name, spec string) *unstructured.Unstructured {
	return valid("NodeConfigRollout", name, []byte("{"+spec+"}"))
}

// valid is a valid object of a kind, but for these fields of its spec; null
// leaves one out.
func valid(kind, name string, fields ...json.RawMessage) *unstructured.Unstructured {
	o := parse(`metadata: {name: ` + name + `}
spec:
  nodeSelector: {matchLabels: {pool: workers}}
  template: {kubeletDropIn: {apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, maxPods: 100}}`)
	o.SetKind(kind)
	spec := o.Object["spec"].(map[string]any)
	if kind == "NodeConfig" {
		clear(spec)
	}

	for _, text := range fields {
		more, _ := parse("spec: " + string(text)).Object["spec"].(map[string]any)
		maps.Copy(spec, more)
	}

	maps.DeleteFunc(spec, func(_ string, v any) bool { return v == nil })

	return o
}

// givenRollout creates a rollout as administrator and removes it when the test
// ends.
func givenRollout(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	return created(t, rollout(name, spec))
}

func TestThePercentageOfAStepIsValidated(t *testing.T) {
	for nodes, valid := range map[string]bool{
		"1%": true, "9%": true, "10%": true, "19%": true, "55%": true, "90%": true, "99%": true, "100%": true,
		"": false, "%": false, "0%": false, "00%": false, "01%": false, "101%": false, "150%": false, "-1%": false, "1": false,
		"10": false, "100": false, "ten": false, "1x%": false, "x1%": false, "1%%": false, " 1%": false, "1/%": false,
		"1:%": false, "1a": false, "9\x7f%": false, "５%": false, "10%\n": false, "1000%": false,
	} {
		o := rollout("percentages", "")
		steps := []any{map[string]any{"nodes": nodes}}
		assert.NoError(t, unstructured.SetNestedSlice(o.Object, steps, "spec", "strategy", "steps"))
		_, err := rolloutsAsAdmin().Create(t.Context(), o, dryRun)
		assert.That(t, !valid || err == nil, "%q: %v", nodes, err)
		if !valid {
			wantRefused(t, err, http.StatusUnprocessableEntity, `spec.strategy.steps[0].nodes: `, `must be a number from 1 to 1000000, without quotes, or a percentage from 1% to 100%`)
		}
	}
}

func TestTheNameOfARolloutMustFitInALabel(t *testing.T) {
	const want = `metadata.name must have at most 63 characters and no dots, because revisions have it as a label: choose another name`
	for name, valid := range map[string]bool{
		strings.Repeat("a", v1alpha1.MaxRolloutNameLength): true, "4-workers": true, strings.Repeat("a", 64): false, "workers.v2": false,
	} {
		_, err := rolloutsAsAdmin().Create(t.Context(), rollout(name, ""), dryRun)
		assert.That(t, !valid || err == nil, "%s: %v", name, err)
		if !valid {
			wantRefused(t, err, http.StatusUnprocessableEntity, want)
		}
	}
}
