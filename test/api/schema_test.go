// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestInvalidSpecsAreRejectedWithAMessage(t *testing.T) {
	const noSubfield = `exactly one subfield must be non-nil, but all were nil`
	long, capital := strings.Repeat("a", 254), strings.Repeat("A", 64)
	in := func(ref string) string { return "configSource: {configMapRef: {" + ref + "}}" }
	by := func(rollout string) string {
		return `configSource: {local: {}, rolloutRef: {` + rollout + `, assignedAt: "2026-01-02T03:04:05Z"}}`
	}
	after := func(previous string) string {
		return by("name: w, revision: 1, attempt: 1, previous: {" + previous + "}")
	}
	for name, said := range map[string][]string{ // the spec, and what its refusal says
		"no subfield":      {`configSource: {}`, `spec.configSource`, `invalid NodeConfigSource, ` + noSubfield},
		"a null subfield":  {`configSource: {configMapRef: null}`, `spec.configSource`, noSubfield},
		"an unknown one":   {`configSource: {secretRef: {namespace: ns, name: m, uid: u}}`, `unknown field "spec.configSource.secretRef"`},
		"no namespace":     {in(`name: m, uid: u`), `spec.configSource.configMapRef.namespace: Required value`},
		"no name":          {in(`namespace: ns, uid: u`), `spec.configSource.configMapRef.name: Required value`},
		"no uid":           {in(`namespace: ns, name: m`), `spec.configSource.configMapRef.uid: Required value`},
		"everything empty": {in(`namespace: "", name: "", uid: ""`), `namespace must be non-empty`, `name must be non-empty`, `uid must be non-empty`},
		"two subfields": {`configSource: {local: {}, configMapRef: {namespace: ns, name: m, uid: u}}`,
			`exactly one subfield must be non-nil, but 2 were set: local and configMapRef`},
		"a rollout alone, which is no source": {
			strings.Replace(by(`name: w, revision: 1, attempt: 1`), "local: {}, ", "", 1), `spec.configSource`, noSubfield},

		"a namespace that leaves its directory": {in(`namespace: ../n, name: m, uid: u`),
			`spec.configSource.configMapRef.namespace: Invalid value: "../n": namespace must be a DNS label`},
		"a name that leaves its directory": {in(`namespace: ns, name: ../../m, uid: u`),
			`spec.configSource.configMapRef.name: Invalid value: "../../m": name must be a DNS name`},
		"a uid that leaves its directory": {in(`namespace: ns, name: m, uid: ../u`),
			`spec.configSource.configMapRef.uid: Invalid value: "../u": uid must begin with a letter or digit`},
		"a uid and a newline":         {in(`namespace: ns, name: m, uid: "u\n"`), `hold only letters, digits, dots, dashes and underscores`},
		"a namespace of two labels":   {in(`namespace: n.n, name: m, uid: u`), `namespace must be a DNS label`},
		"a name with an empty label":  {in(`namespace: ns, name: m..m, uid: u`), `name must be a DNS name`},
		"a uid that is a directory":   {in(`namespace: ns, name: m, uid: ".."`), `uid must begin with a letter or digit`},
		"a uid that is too long":      {in(`namespace: ns, name: m, uid: ` + long), `uid: Too long: may not be more than 128 bytes`},
		"a name that is too long":     {in(`namespace: ns, uid: u, name: ` + long), `name: Too long: may not be more than 253 bytes`},
		"a digest that is too short":  {in(`namespace: ns, name: m, uid: u, sha256: abc`), `must be 64 lower-case hexadecimal digits`},
		"a digest in capital letters": {in(`namespace: ns, name: m, uid: u, sha256: ` + capital), `must be 64 lower-case hexadecimal digits`},

		"a rollout's name that leaves its directory": {by(`name: ../w, revision: 1, attempt: 1`),
			`spec.configSource.rolloutRef.name: Invalid value: "../w": name must be a DNS name`},
		"a rollout's revision and attempt below 1": {by(`name: w, revision: 0, attempt: 0`),
			`revision in body should be greater than or equal to 1`, `attempt in body should be greater than or equal to 1`},
		"a previous source without its object and rollout": {after(``),
			`rolloutRef.previous.configMapRef: Required value`, `rolloutRef.previous.rollout: Required value`},
		"a previous source that leaves its directory": {
			after(`configMapRef: {namespace: ns, name: m, uid: ../u}, rollout: ../w, revision: 0, attempt: 0`),
			`rolloutRef.previous.rollout: Invalid value: "../w": rollout must be a DNS name`, `uid must begin with a letter or digit`,
			`previous.revision in body should be greater than or equal to 1`,
			`previous.attempt in body should be greater than or equal to 1`},
		"a previous source of no rollout": {
			after(`configMapRef: {namespace: ns, name: m, uid: u}, rollout: "", revision: 1, attempt: 1`),
			`rolloutRef.previous.rollout: Invalid value: "": rollout must be non-empty`},

		"a trial of more than a week": {`trial: {configTrialDuration: 169h}`,
			`spec.trial.configTrialDuration: `, `must be a duration greater than 0 and at most 168h`},
		"a threshold that is never over": {`trial: {crashLoopThreshold: 11}`,
			`spec.trial.crashLoopThreshold in body should be less than or equal to 10`},
		"a revoked uid that leaves its directory": {`revoked: [../u]`,
			`spec.revoked[0]: Invalid value: "../u": uid must begin with a letter or digit`},
		"a uid revoked twice":   {`revoked: [u, u]`, `spec.revoked[1]: Duplicate value: "u"`},
		"an empty revoked uid":  {`revoked: [""]`, `spec.revoked[0]: Invalid value: "": uid must be non-empty`},
		"more than ten revoked": {`revoked: [a, b, c, d, e, f, g, h, i, j, k]`, `spec.revoked: Too many: 11: must have at most 10 items`},
	} {
		t.Run(name, func(t *testing.T) {
			o := parse("metadata: {name: invalid}\nspec: {" + said[0] + "}")
			_, err := asAdmin(t).Create(t.Context(), o, metav1.CreateOptions{FieldValidation: "Strict"})
			wantInvalid(t, err, said[1:]...)
		})
	}
}

func TestAValidSpecIsStoredUnchanged(t *testing.T) {
	for name, spec := range map[string]string{
		"nothing":         `{}`,
		"explicitly null": `{configSource: null}`,
		"local":           `{configSource: {local: {}}}`,
		"a ConfigMap":     `{configSource: {configMapRef: {namespace: ns, name: m.m, uid: 6d1e-U_.1}}}`,
		"a ConfigMap with its digest": `{configSource: {configMapRef: {namespace: ns, name: m, uid: u, sha256: ` +
			strings.Repeat("0a", 32) + `}}}`,
		"a ConfigMap that a rollout assigned": `{configSource: {configMapRef: {namespace: ns, name: m, uid: u},
			rolloutRef: {name: w, revision: 4, attempt: 1, assignedAt: "2026-01-02T03:04:05Z"}}}`,
		"a ConfigMap that a rollout assigned after another": `{configSource: {configMapRef: {namespace: ns, name: m, uid: u},
			rolloutRef: {name: w, revision: 4, attempt: 1, assignedAt: "2026-01-02T03:04:05Z", previous:
				{configMapRef: {namespace: ns, name: l, uid: t}, rollout: v, revision: 3, attempt: 2}}}}`,
		"local that a rollout assigned": `{configSource: {local: {},
			rolloutRef: {name: w, revision: 4, attempt: 2, assignedAt: "2026-01-02T03:04:05Z"}}}`,
		"terms of a trial": `{trial: {configTrialDuration: 168h, crashLoopThreshold: 0, allowPodLoss: true}}`,
		"ten revoked":      `{revoked: [a, b, c, d, e, f, g, h, i, j]}`,
	} {
		t.Run(name, func(t *testing.T) {
			o := given(t, "metadata: {name: valid}\nspec: "+spec)
			want, _, _ := unstructured.NestedMap(parse("spec: "+spec).Object, "spec")
			if source, said := want["configSource"]; said && source == nil {
				delete(want, "configSource")
			}

			got, _, _ := unstructured.NestedMap(o.Object, "spec")
			assert.NoDiff(t, cmp.Diff(want, got), "spec (- want, + got)")
		})
	}

	t.Run("no spec at all", func(t *testing.T) {
		if o := given(t, "metadata: {name: valid}"); o.GetGeneration() != 1 {
			t.Errorf("got generation %d, want 1", o.GetGeneration())
		}
	})
}

func TestNullForTheConfigSourceAssignsNothing(t *testing.T) {
	given(t, "metadata: {name: reset}\nspec: {configSource: {configMapRef: {namespace: ns, name: m, uid: u}}}")
	o := assert.Value(asAdmin(t).Patch(t.Context(), "reset", types.MergePatchType,
		[]byte(`{"spec":{"configSource":null}}`), metav1.PatchOptions{}))(t)
	if _, found, _ := unstructured.NestedMap(o.Object, "spec", "configSource"); found || o.GetGeneration() != 2 {
		t.Errorf("got generation %d and %v, want 2 and no configSource", o.GetGeneration(), o.Object["spec"])
	}
}

func TestTheMainResourceDropsAStatus(t *testing.T) {
	o := given(t, "metadata: {name: main}\nstatus: {error: by the main resource}")
	wantUnreported(t, "create", o)
	for name, o := range map[string]*unstructured.Unstructured{
		"update": update(t, "main", func(o *unstructured.Unstructured) {
			o.Object["status"] = map[string]any{"error": "by the main resource"}
		}),
		"get": get(t, "main"),
	} {
		wantUnreported(t, name, o)
	}
}

// wantUnreported expects the status of an object that nobody has reported on:
// tools that read observedGeneration do not take the object for a current one.
func wantUnreported(t *testing.T, what string, o *unstructured.Unstructured) {
	t.Helper()
	if diff := cmp.Diff(map[string]any{"observedGeneration": int64(-1)}, o.Object["status"]); diff != "" {
		t.Errorf("%s: the status (- want, + got):\n%s", what, diff)
	}
}

func update(t *testing.T, name string, change func(*unstructured.Unstructured)) *unstructured.Unstructured {
	t.Helper()
	o := get(t, name)
	change(o)
	o = assert.Value(asAdmin(t).Update(t.Context(), o, metav1.UpdateOptions{}))(t)

	return o
}

func TestEveryFieldOfAStatusSurvives(t *testing.T) {
	given(t, "metadata: {name: full}")
	want := fullStatus()
	content := assert.Value(runtime.DefaultUnstructuredConverter.ToUnstructured(want))(t)
	o := get(t, "full")
	o.Object["status"] = content
	o = assert.Value(asNode(t, "full").UpdateStatus(t.Context(), o, metav1.UpdateOptions{FieldValidation: "Strict"}))(t)
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
	status := &v1alpha1.NodeConfigStatus{
		ObservedGeneration: 1,
		Assigned:           &revision,
		Active:             &revision,
		LastKnownGood:      &v1alpha1.LastKnownGoodConfig{ConfigRevision: revision, Since: &at},

		Error: strings.Repeat("ä", v1alpha1.MaxErrorLength/2),
		Trial: &v1alpha1.Trial{
			StartTime: &at, HealthySeconds: 5, DurationSeconds: 600, Restarts: 1, CrashLoopThreshold: 10,
		},
		RemoteConfig:     v1alpha1.RemoteConfigNodeConfig,
		RunMode:          v1alpha1.RunModeHost,
		ComponentVersion: "v1.36.3",
		AgentVersion:     "v0.1.0",
		Drift: &v1alpha1.Drift{
			NotCompared: strings.Repeat("ä", v1alpha1.MaxDriftNotCompared/2),
		},
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionConfigOK, Status: metav1.ConditionTrue, ObservedGeneration: 1,
			Reason: v1alpha1.ReasonAllChecksPassed, Message: "using current (UID: 6d1e): all checks passed",
			LastTransitionTime: at,
		}},
	}
	for range v1alpha1.MaxBadConfigs {
		status.BadConfigs = append(status.BadConfigs, v1alpha1.BadConfig{
			UID: "77aa", Revision: "77aa", Namespace: "evenkeel-system", Name: "bad", Time: &at,
			Reason: strings.Repeat("ä", v1alpha1.MaxBadReasonLength/4), Provisional: true,
		})
	}

	for range v1alpha1.MaxOverriddenFields {
		status.OverriddenFields = append(status.OverriddenFields, strings.Repeat("a", 200))
	}

	for range v1alpha1.MaxResolvedValues {
		status.ResolvedValues = append(status.ResolvedValues, v1alpha1.ResolvedValue{
			Path: "kubeReserved.ephemeral-storage", Value: "1843Mi", From: strings.Repeat("a", 250),
		})
	}

	for range v1alpha1.MaxDriftFiles {
		status.Drift.Files = append(status.Drift.Files, "/var/lib/kubelet/config.yaml")
	}

	for range v1alpha1.MaxDriftFields {
		status.Drift.Fields = append(status.Drift.Fields, "evictionHard[memory.available]")
	}

	return status
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
			patch, err := json.Marshal(map[string]any{"status": test.status})
			assert.NoError(t, err)
			_, err = asNode(t, "bounds").Patch(t.Context(), "bounds", types.MergePatchType, patch, metav1.PatchOptions{}, "status")
			wantRefused(t, err, http.StatusUnprocessableEntity, test.want)
		})
	}
}

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
			assert.That(t, hasEmptySpec(o) && o.GetGeneration() == 1,
				"it is stored with generation %d and %v, want 1 and an empty spec", o.GetGeneration(), o.Object["spec"])

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
