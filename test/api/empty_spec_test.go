// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// addSource is the JSON patch that assigns a ConfigMap, as the documentation
// has it.
const addSource = `[{"op": "add", "path": "/spec/configSource", "value": {"configMapRef": {"namespace": "evenkeel-system", "name": "m", "uid": "u"}}}]`

// hasEmptySpec reports whether an object has a spec, and nothing in it.
func hasEmptySpec(o *unstructured.Unstructured) bool {
	spec, found, err := unstructured.NestedMap(o.Object, "spec")
	return err == nil && found && len(spec) == 0
}

// assignable fails unless a JSON patch can assign a ConfigMap to a NodeConfig,
// which then has the generation.
func assignable(t *testing.T, name string, generation int64) {
	t.Helper()
	o := assert.Value(asAdmin(t).Patch(t.Context(), name, types.JSONPatchType, []byte(addSource), metav1.PatchOptions{FieldValidation: "Strict"}))(t)
	if uid, _, _ := unstructured.NestedString(o.Object, "spec", "configSource", "configMapRef", "uid"); uid != "u" || o.GetGeneration() != generation {
		t.Errorf("generation %d and %v, want %d and the source", o.GetGeneration(), o.Object["spec"], generation)
	}
}

func TestANodeConfigWithoutASpecGetsAnEmptyOne(t *testing.T) {
	for who, body := range map[string]string{
		"a node":              "metadata: {name: bare}",
		"a node that says so": "metadata: {name: bare}\nspec: {}",
	} {
		t.Run(who, func(t *testing.T) {
			o := assert.Value(asNode(t, "bare").Create(t.Context(), parse(body), metav1.CreateOptions{FieldValidation: "Strict"}))(t)
			removeAtEnd(t, "bare")
			if !hasEmptySpec(o) || o.GetGeneration() != 1 {
				t.Errorf("it is stored with generation %d and %v, want 1 and an empty spec", o.GetGeneration(), o.Object["spec"])
			}

			assignable(t, "bare", 2)
		})
	}
}

func TestAJSONPatchCanAddToEveryPartOfADefaultedRollout(t *testing.T) {
	for path, value := range map[string]string{
		"/spec/strategy/maxDomainsInFlight": `1`,
		"/spec/strategy/steps":              `[{"nodes": 1}]`,
		"/spec/strategy/maxUnavailable":     `5`,
		"/spec/failurePolicy/action":        `"Rollback"`,
		"/spec/rollback/maxUnavailable":     `1`,
		"/spec/paused":                      `true`,
	} {
		t.Run(path, func(t *testing.T) {
			givenRollout(t, "patched", "")
			patch := fmt.Sprintf(`[{"op": "add", "path": %q, "value": %s}]`, path, value)
			if path == "/spec/strategy/maxDomainsInFlight" {
				patch = `[{"op": "add", "path": "/spec/strategy/topologyKey", "value": "zone"}, ` + patch[1:]
			}

			mustKubectl(t, "patch", "ncr", "patched", "--type=json", "-p", patch)
		})
	}
}
