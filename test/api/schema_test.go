// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// A specCase is a spec, and what the API server says of it or adds to it.
type specCase struct {
	Spec, Adds json.RawMessage
	Says       []string
}

// specCases reads the cases of testdata/KIND.yaml.
func specCases(t *testing.T, kind string) (cases struct{ Rejected, Stored, Refused, Admitted map[string]specCase }) {
	t.Helper()
	assert.NoError(t, yaml.UnmarshalStrict(assert.Value(os.ReadFile("testdata/"+kind+".yaml"))(t), &cases))
	return cases
}

// kinds have the specs that testdata lists.
var kinds = map[string]schema.GroupVersionResource{
	"NodeConfig": nodeConfigs, "NodeConfigRollout": rollouts, "NodeConfigPreflight": preflights,
}

// tried makes an object of a kind with these fields of its spec, of which the
// API server keeps nothing.
func tried(t *testing.T, kind string, fields ...json.RawMessage) (*unstructured.Unstructured, error) {
	t.Helper()
	client := dynamic.NewForConfigOrDie(configFor("admin", "system:masters")).Resource(kinds[kind])
	return client.Create(t.Context(), valid(kind, "tried", fields...), dryRun)
}

func TestInvalidSpecsAreRejectedWithAMessage(t *testing.T) {
	for kind := range kinds {
		for name, c := range specCases(t, kind).Rejected {
			t.Run(kind+", "+name, func(t *testing.T) {
				_, err := tried(t, kind, c.Spec)
				wantInvalid(t, err, c.Says...)
				assert.That(t, err == nil || !strings.Contains(err.Error(), "rule evaluation") && !strings.Contains(err.Error(), "failed rule"),
					"got %q, which is not in words", err)
			})
		}
	}
}

func TestAValidSpecIsStoredWithItsDefaults(t *testing.T) {
	for kind := range kinds {
		for name, c := range specCases(t, kind).Stored {
			t.Run(kind+", "+name, func(t *testing.T) {
				o := assert.Value(tried(t, kind, c.Spec))(t)
				assert.NoDiff(t, cmp.Diff(valid(kind, "tried", c.Spec, c.Adds).Object["spec"], o.Object["spec"]), "spec (- want, + got)")
			})
		}
	}

	assert.Equal(t, given(t, "metadata: {name: bare}").GetGeneration(), 1, "without a spec, the generation is")
	_, found, _ := unstructured.NestedFieldNoCopy(given(t, "metadata: {name: reset}\nspec: {configSource: null}").Object, "spec", "configSource")
	assert.That(t, !found, "null is stored")
}

func TestNullForTheConfigSourceAssignsNothing(t *testing.T) {
	given(t, "metadata: {name: reset}\nspec: {configSource: {configMapRef: {namespace: ns, name: m, uid: u}}}")
	o := assert.Value(asAdmin().Patch(t.Context(), "reset", types.MergePatchType,
		[]byte(`{"spec":{"configSource":null}}`), metav1.PatchOptions{}))(t)
	_, found, _ := unstructured.NestedMap(o.Object, "spec", "configSource")
	assert.That(t, !found && o.GetGeneration() == 2,
		"got generation %d and %v, want 2 and no configSource", o.GetGeneration(), o.Object["spec"])
}

func TestTheMainResourceDropsAStatus(t *testing.T) {
	o := given(t, "metadata: {name: main}\nstatus: {error: by the main resource}")
	wantUnreported(t, "create", o)
	o.Object["status"] = map[string]any{"error": "by the main resource"}
	wantUnreported(t, "update", assert.Value(asAdmin().Update(t.Context(), o, metav1.UpdateOptions{}))(t))
	wantUnreported(t, "get", get(t, "main"))
}

// wantUnreported expects the status of an object that nobody has reported on:
// tools that read observedGeneration do not take the object for a current one.
func wantUnreported(t *testing.T, what string, o *unstructured.Unstructured) {
	t.Helper()
	assert.NoDiff(t, cmp.Diff(map[string]any{"observedGeneration": int64(-1)}, o.Object["status"]), what)
}

func TestEveryFieldOfAStatusSurvives(t *testing.T) {
	given(t, "metadata: {name: full}")
	want := fullStatus()
	content := assert.Value(runtime.DefaultUnstructuredConverter.ToUnstructured(want))(t)
	o := get(t, "full")
	o.Object["status"] = content
	o = assert.Value(asNode("full").UpdateStatus(t.Context(), o, metav1.UpdateOptions{FieldValidation: "Strict"}))(t)
	got := &v1alpha1.NodeConfig{}
	assert.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, got))
	assert.NoDiff(t, cmp.Diff(want, &got.Status), "status")
}

// fullStatus has every field set, every list as long as it may be, and some
// text of two bytes a character.
func fullStatus() *v1alpha1.NodeConfigStatus {
	at := metav1.NewTime(time.Date(2026, 3, 4, 5, 6, 7, 0, time.Local))
	revision := v1alpha1.ConfigRevision{
		Namespace: "evenkeel-system", Name: "workers", UID: "6d1e", SHA256: strings.Repeat("a", 64),
		ResolvedSHA256: strings.Repeat("b", 64),
	}
	return &v1alpha1.NodeConfigStatus{
		ObservedGeneration: 1,
		Assigned:           &revision,
		Active:             &revision,
		LastKnownGood:      &v1alpha1.LastKnownGoodConfig{ConfigRevision: revision, Since: &at},
		BadConfigs: slices.Repeat([]v1alpha1.BadConfig{{
			UID: "77aa", Revision: "77aa", Namespace: "evenkeel-system", Name: "bad", Time: &at,
			Reason: strings.Repeat("ä", v1alpha1.MaxBadReasonLength/4), Provisional: true,
		}}, v1alpha1.MaxBadConfigs),

		Error: strings.Repeat("ä", v1alpha1.MaxErrorLength/2),
		Trial: &v1alpha1.Trial{
			StartTime: &at, HealthySeconds: 5, DurationSeconds: 600, Restarts: 1, CrashLoopThreshold: 10,
		},
		RemoteConfig:     v1alpha1.RemoteConfigNodeConfig,
		RunMode:          v1alpha1.RunModeHost,
		ComponentVersion: "v1.36.3",
		AgentVersion:     "v0.1.0",
		OverriddenFields: slices.Repeat([]string{strings.Repeat("a", 200)}, v1alpha1.MaxOverriddenFields),
		ResolvedValues: slices.Repeat([]v1alpha1.ResolvedValue{{
			Path: "kubeReserved.ephemeral-storage", Value: "1843Mi", From: strings.Repeat("a", 250),
		}}, v1alpha1.MaxResolvedValues),
		Drift: &v1alpha1.Drift{
			Files:       slices.Repeat([]string{"/var/lib/kubelet/config.yaml"}, v1alpha1.MaxDriftFiles),
			Fields:      slices.Repeat([]string{"evictionHard[memory.available]"}, v1alpha1.MaxDriftFields),
			NotCompared: strings.Repeat("ä", v1alpha1.MaxDriftNotCompared/2),
		},
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionConfigOK, Status: metav1.ConditionTrue, ObservedGeneration: 1,
			Reason: v1alpha1.ReasonAllChecksPassed, Message: "using current (UID: 6d1e): all checks passed",
			LastTransitionTime: at,
		}},
	}
}

func TestAStatusBeyondItsBoundsIsRejected(t *testing.T) {
	given(t, "metadata: {name: bounds}")
	for name, test := range map[string]struct {
		status v1alpha1.NodeConfigStatus
		want   string
	}{
		"bad configs":       {v1alpha1.NodeConfigStatus{BadConfigs: make([]v1alpha1.BadConfig, 11)}, "status.badConfigs: Too many: 11"},
		"overridden fields": {v1alpha1.NodeConfigStatus{OverriddenFields: make([]string, 101)}, "status.overriddenFields: Too many: 101"},
		"conditions":        {v1alpha1.NodeConfigStatus{Conditions: conditions(9, "")}, "status.conditions: Too many: 9"},
		"drifted files":     {v1alpha1.NodeConfigStatus{Drift: &v1alpha1.Drift{Files: make([]string, 6)}}, "status.drift.files: Too many: 6"},
		"drifted fields":    {v1alpha1.NodeConfigStatus{Drift: &v1alpha1.Drift{Fields: make([]string, 11)}}, "status.drift.fields: Too many: 11"},
		"drifted field":     {v1alpha1.NodeConfigStatus{Drift: &v1alpha1.Drift{Fields: []string{strings.Repeat("a", 513)}}}, "status.drift.fields[0]: Too long"},
		"not compared":      {v1alpha1.NodeConfigStatus{Drift: &v1alpha1.Drift{NotCompared: strings.Repeat("a", 201)}}, "status.drift.notCompared: Too long"},
		"remoteConfig":      {v1alpha1.NodeConfigStatus{RemoteConfig: "Other"}, `supported values: "NodeConfig", "ConfigMap", "Disabled"`},
		"runMode":           {v1alpha1.NodeConfigStatus{RunMode: "Other"}, `supported values: "Host", "Bootstrap", "SelfHosted"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := reportAs(t, "bounds", test.status)
			wantRefused(t, err, http.StatusUnprocessableEntity, test.want)
		})
	}
}

// addSource is the JSON patch that assigns a ConfigMap, as the documentation
// has it.
const addSource = `[{"op": "add", "path": "/spec/configSource", "value": {"configMapRef": {"namespace": "evenkeel-system", "name": "m", "uid": "u"}}}]`

func TestAJSONPatchCanAddToEveryPartOfADefaultedRollout(t *testing.T) {
	for _, patch := range []string{
		`{"op": "add", "path": "/spec/strategy/topologyKey", "value": "zone"}, {"op": "add", "path": "/spec/strategy/maxDomainsInFlight", "value": 1}`,
		`{"op": "add", "path": "/spec/strategy/steps", "value": [{"nodes": 1}]}`,
		`{"op": "add", "path": "/spec/strategy/maxUnavailable", "value": 5}`,
		`{"op": "add", "path": "/spec/failurePolicy/action", "value": "Rollback"}`,
		`{"op": "add", "path": "/spec/rollback/maxUnavailable", "value": 1}`,
		`{"op": "add", "path": "/spec/paused", "value": true}`,
	} {
		t.Run(patch, func(t *testing.T) {
			givenRollout(t, "patched", "")
			mustKubectl(t, "patch", "ncr", "patched", "--type=json", "-p", "["+patch+"]")
		})
	}
}
