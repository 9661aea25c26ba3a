// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func mustKubectl(t *testing.T, args ...string) string {
	t.Helper()
	return assert.Value(kubectl(t.Context(), args...))(t)
}

// kubectlAtEnd runs kubectl when the test ends.
func kubectlAtEnd(t *testing.T, args ...string) {
	t.Helper()
	t.Cleanup(func() { assert.OK(t, assert.Err(kubectl(context.Background(), args...))) })
}

// applied applies manifests until the test ends.
func applied(t *testing.T, manifests ...string) {
	t.Helper()
	mustKubectl(t, append([]string{"apply"}, manifests...)...)
	kubectlAtEnd(t, append([]string{"delete"}, manifests...)...)
}

func TestApplyingConfigBaseAgainChangesNothing(t *testing.T) {
	out := mustKubectl(t, "apply", "-k", filepath.Join(root, "config/base"))
	lines := strings.Split(strings.TrimSpace(out), "\n")
	rendered := mustKubectl(t, "kustomize", filepath.Join(root, "config/base"))
	want := strings.Count("\n"+rendered, "\napiVersion:")
	assert.That(t, len(lines) == want && want >= 14, "got %d objects, want %d, and at least the 14 of config/api", len(lines), want)
	for _, line := range lines {
		// kubectl always sends the selector of a PodDisruptionBudget again,
		// changed or not.
		assert.That(t, strings.HasSuffix(line, " unchanged") || line == "poddisruptionbudget.policy/evenkeel-controller configured",
			"got %q, want it unchanged", line)
	}
}

func TestConfigDefaultIsRefusedWithAnExplanation(t *testing.T) {
	const want = "no registry serves the images of these manifests, so apply install.yaml of a release"
	assert.ErrorHas(t, assert.Err(kubectl(t.Context(), "apply", "-k", filepath.Join(root, "config/default"))), want)
}

func TestServerSideApplyAfterClientSideApplyNeedsForceConflicts(t *testing.T) {
	manifests := filepath.Join(t.TempDir(), "release.yaml")
	mustKubectl(t, "kustomize", filepath.Join(root, "config/base"), "--output="+manifests)
	apply := []string{"apply", "--server-side", "--dry-run=server", "-f", manifests}
	assert.ErrorHas(t, assert.Err(kubectl(t.Context(), apply...)), `conflict with "kubectl-client-side-apply"`)
	mustKubectl(t, append(apply, "--force-conflicts")...)
}

func TestKubectlGetShowsWhatANodeRuns(t *testing.T) {
	given(t, "metadata: {name: shown}")
	started := metav1.NewTime(time.Now().Add(-100 * time.Minute))
	assert.NoError(t, assert.Err(reportAs(t, "shown", v1alpha1.NodeConfigStatus{
		Assigned:      &v1alpha1.ConfigRevision{Name: "workers-3"},
		Active:        &v1alpha1.ConfigRevision{Name: "workers-2", UID: "6d1e"},
		LastKnownGood: &v1alpha1.LastKnownGoodConfig{ConfigRevision: v1alpha1.ConfigRevision{Name: "workers-1"}},

		Trial:            &v1alpha1.Trial{StartTime: &started},
		ComponentVersion: "v1.36.3",
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionConfigOK, Status: metav1.ConditionFalse, LastTransitionTime: started,
			Reason: v1alpha1.ReasonValidationFailed,
		}},
	})))
	wantTable(t, "get nc shown", "NAME ASSIGNED ACTIVE LAST-KNOWN-GOOD CONFIGOK TRIAL AGE",
		"shown workers-3 workers-2 workers-1 False 100m (age)")
	wantTable(t, "get nodeconfigs.evenkeel.dev shown -o wide",
		"NAME ASSIGNED ACTIVE LAST-KNOWN-GOOD CONFIGOK TRIAL AGE REASON UID VERSION",
		"shown workers-3 workers-2 workers-1 False 100m (age) ValidationFailed 6d1e v1.36.3")
}

// wantTable runs kubectl, which must print a header and one row, whose seventh
// column is an age.
func wantTable(t *testing.T, args, header, row string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(mustKubectl(t, strings.Fields(args)...)), "\n")
	assert.Must(t, len(lines) == 2, "got %d lines, want 2: %q", len(lines), lines)
	got := strings.Fields(lines[1])
	if age := slices.Index(strings.Fields(lines[0]), "AGE"); age >= 0 && age < len(got) {
		got[age] = "(age)"
	}

	assert.Equal(t, strings.Join(strings.Fields(lines[0]), " "), header, "kubectl", args)
	assert.Equal(t, strings.Join(got, " "), row, "kubectl", args)
}

func TestKubectlGetShowsTheProgressOfARollout(t *testing.T) {
	givenRollout(t, "shown", "")
	writeStatus(t, "shown", v1alpha1.NodeConfigRolloutStatus{
		Phase: v1alpha1.RolloutAwaitingApproval, Message: "waits for an approval", Step: 2,
		UpdateRevision: fullRolloutStatus().UpdateRevision, Nodes: v1alpha1.RolloutCounts{Selected: 5000, Updated: 812, Failed: 3},
	})
	wantTable(t, "get ncr shown", "NAME REVISION STATUS STEP NODES UPDATED FAILED AGE", "shown 4 AwaitingApproval 2 5000 812 3 (age)")
	wantTable(t, "get nodeconfigrollouts.evenkeel.dev shown -o wide", "NAME REVISION STATUS STEP NODES UPDATED FAILED AGE MESSAGE",
		"shown 4 AwaitingApproval 2 5000 812 3 (age) waits for an approval")
}

func writeStatus(t *testing.T, name string, status v1alpha1.NodeConfigRolloutStatus) *v1alpha1.NodeConfigRollout {
	t.Helper()
	patch := assert.Value(json.Marshal(map[string]any{"status": status}))(t)
	o := assert.Value(rolloutsAsAdmin().Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{FieldValidation: "Strict"}, "status"))(t)
	got := &v1alpha1.NodeConfigRollout{}
	assert.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, got))

	return got
}

// fullRolloutStatus has every field set, and every list and text as long as it
// may be.
func fullRolloutStatus() v1alpha1.NodeConfigRolloutStatus {
	at := metav1.NewTime(time.Date(2026, 3, 4, 5, 6, 7, 0, time.Local))
	long := func(n int) string { return strings.Repeat("ä", n) }
	revision := &v1alpha1.RolloutRevision{Number: 4, ConfigMapRef: v1alpha1.ConfigMapReference{
		Namespace: "evenkeel-system", Name: "shown-0123456789", UID: "6d1e", SHA256: strings.Repeat("0a", 32),
	}}
	s := v1alpha1.NodeConfigRolloutStatus{
		ObservedGeneration: 7, Phase: v1alpha1.RolloutHalted, Message: long(v1alpha1.MaxRolloutMessage),
		CurrentRevision: revision, UpdateRevision: revision, Attempt: 2, StartTime: &at, Step: 30, StepTime: &at,
		ProgressTime: &at,
		Nodes: v1alpha1.RolloutCounts{
			Selected: 1, Pending: 2, Assigned: 3, Trial: 4, Soaking: 5, Updated: 6, Failed: 7, Skipped: 8, Stale: 9, Conflicted: 10,
			Manual: 11, Unavailable: 12, RollingBack: 13,
		},
		Halt: &v1alpha1.RolloutHalt{
			Attempt: 2, Reason: "TooManyFailures", Message: long(v1alpha1.MaxRolloutMessage), Time: at, Rollback: true,
		},
		History: slices.Repeat([]v1alpha1.RolloutOutcome{{
			Revision: 3, ConfigMap: "shown-1", Outcome: v1alpha1.OutcomeRolledBack, Reason: v1alpha1.HaltTooManyFailures, Message: long(v1alpha1.MaxOutcomeMessage), StartTime: &at, EndTime: &at,
			Updated: 1, Failed: 2,
		}}, v1alpha1.MaxHistory),
		Conditions: conditions(5, "said"),
	}
	for i := range v1alpha1.MaxFailedNodes {
		s.FailedNodes = append(s.FailedNodes, v1alpha1.FailedNode{
			Name: "node-" + string(rune('a'+i)), Reason: v1alpha1.ReasonCrashLooped, Message: long(v1alpha1.MaxFailedMessage),
		})
	}

	return s
}

func TestTheStatusOfARolloutIsASubresourceAndSurvives(t *testing.T) {
	before := givenRollout(t, "full", "")
	want := fullRolloutStatus()
	written := writeStatus(t, "full", want)
	assert.NoDiff(t, cmp.Diff(want, written.Status), "status")

	// Whoever writes the status changes nothing else.
	o := assert.Value(rolloutsAsAdmin().Get(t.Context(), "full", metav1.GetOptions{}))(t)
	o.SetLabels(map[string]string{"by": "status"})
	o.Object["spec"].(map[string]any)["paused"] = true
	o = assert.Value(rolloutsAsAdmin().UpdateStatus(t.Context(), o, metav1.UpdateOptions{}))(t)
	assert.NoDiff(t, cmp.Diff(before.Object["spec"], o.Object["spec"]), "writing the status changed the spec")
	assert.That(t, o.GetGeneration() == 1 && len(o.GetLabels()) == 0,
		"writing the status changed the generation to %d, the labels to %v", o.GetGeneration(), o.GetLabels())

	// Whoever writes the spec leaves the status as it is.
	status := o.DeepCopy().Object["status"]
	o.Object["spec"].(map[string]any)["paused"] = true
	o.Object["status"] = map[string]any{"phase": "Complete"}
	o = assert.Value(rolloutsAsAdmin().Update(t.Context(), o, metav1.UpdateOptions{}))(t)
	assert.NoDiff(t, cmp.Diff(status, o.Object["status"]), "writing the spec changed the status")
	assert.Equal(t, o.GetGeneration(), 2, "after writing the spec, the generation is")
}

func TestARolloutStatusBeyondItsBoundsIsRejected(t *testing.T) {
	givenRollout(t, "bounds", "")
	for name, test := range map[string]struct{ status, want string }{
		"failed nodes":         {`{"failedNodes":[` + strings.Repeat(`{"name":"a"},`, 10) + `{"name":"b"}]}`, `status.failedNodes: Too many: 11`},
		"a failed node, twice": {`{"failedNodes":[{"name":"a"},{"name":"a"}]}`, `status.failedNodes[1]: Duplicate value`},
		"history":              {`{"history":[` + strings.Repeat(`{"revision":1,"outcome":"Halted"},`, 50) + `{"revision":1,"outcome":"Halted"}]}`, `status.history: Too many: 51`},
		"message":              {`{"message":"` + strings.Repeat("a", 4097) + `"}`, `status.message: Too long`},
		"revision":             {`{"updateRevision":{"number":1}}`, `status.updateRevision.configMapRef: Required value`},
	} {
		t.Run(name, func(t *testing.T) {
			wantRefused(t, merge(t, rolloutsAsAdmin(), "bounds", `{"status":`+test.status+`}`, "status"), 422, test.want)
		})
	}
}

func TestTheExamplesAreValid(t *testing.T) {
	examples, err := filepath.Glob(filepath.Join(root, "config/examples/*.yaml"))
	assert.Must(t, err == nil && len(examples) == 3, "got examples %q, error %v, want 3", examples, err)
	for _, file := range examples {
		out := mustKubectl(t, "apply", "--server-side", "--validate=strict", "--dry-run=server", "-o", "yaml", "-f", file)
		var applied v1alpha1.NodeConfigRollout
		assert.NoError(t, yaml.Unmarshal([]byte(out), &applied))
		template := applied.Spec.Template
		key, raw := payload.KeyKubelet, template.Kubelet
		if raw == nil {
			key, raw = payload.KeyKubeletDropin, template.KubeletDropIn
		}

		assert.OK(t, assert.Err(payload.Decode(key, raw.Raw)), file)
		// The server stores exactly the content of the file: no field is
		// misspelt or has another meaning.
		data := assert.Value(os.ReadFile(file))(t)
		var written v1alpha1.NodeConfigRollout
		assert.OK(t, yaml.UnmarshalStrict(data, &written), file)
		assert.NoDiff(t, cmp.Diff(written.Spec.Strategy.Steps, applied.Spec.Strategy.Steps), file, "steps (- file, + server)")
	}
}

// The ServiceAccount has the rights that the page grants, and no others.
func TestAGitOpsControllerMayApplyEveryBlockOfItsPage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "applied.yaml")
	flux := []string{"apply", "--server-side", "--force-conflicts", "--field-manager=kustomize-controller", "--validate=strict",
		"--as=system:serviceaccount:flux-system:kubelets", "-f", file}
	givenRollout(t, "fluxed", "")
	var fields []string
	page := string(assert.Value(os.ReadFile(filepath.Join(root, "docs/gitops.md")))(t))
	for _, text := range strings.Split(page, "```yaml\n")[1:] {
		text, _, _ = strings.Cut(text, "```")
		block := &unstructured.Unstructured{}
		assert.NoError(t, yaml.Unmarshal([]byte(text), &block.Object), text)
		if block.GetKind() != "" {
			created(t, block)
			continue
		}

		o := rollout("fluxed", "strategy: {steps: [{nodes: 1}, {pause: {}}, {nodes: 100%}]}")
		spec := block.Object["spec"].(map[string]any)
		for name, value := range spec {
			assert.NoError(t, unstructured.SetNestedField(o.Object, value, "spec", name))
			fields = append(fields, name)
		}

		assert.NoError(t, os.WriteFile(file, assert.Value(yaml.Marshal(o.Object))(t), 0o600))
		err := wait.PollUntilContextTimeout(t.Context(), pollInterval, timeout, true, func(ctx context.Context) (bool, error) {
			_, err := kubectl(ctx, flux...) // a role counts after a short delay
			if err != nil && strings.Contains(err.Error(), "(Forbidden)") && strings.Contains(err.Error(), "cannot ") {
				return false, nil
			}

			return true, err
		})
		assert.Must(t, err == nil, "%v is refused: %v", spec, err)
		got := assert.Value(rolloutsAsAdmin().Get(t.Context(), "fluxed", metav1.GetOptions{}))(t)
		for name, value := range spec {
			assert.Equal(t, fmt.Sprint(got.Object["spec"].(map[string]any)[name]), fmt.Sprint(value), name)
		}
	}

	slices.Sort(fields)
	assert.Equal(t, strings.Join(fields, " "), "abort approval frozen frozenReason paused pausedReason pin retry")
}
