// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func mustKubectl(t *testing.T, args ...string) string {
	t.Helper()
	out := assert.Value(kubectl(t.Context(), args...))(t)
	return out
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
	status := assert.Value(json.Marshal(map[string]any{"status": v1alpha1.NodeConfigStatus{
		Assigned:      &v1alpha1.ConfigRevision{Name: "workers-3"},
		Active:        &v1alpha1.ConfigRevision{Name: "workers-2", UID: "6d1e"},
		LastKnownGood: &v1alpha1.LastKnownGoodConfig{ConfigRevision: v1alpha1.ConfigRevision{Name: "workers-1"}},

		Trial:            &v1alpha1.Trial{StartTime: &started},
		ComponentVersion: "v1.36.3",
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionConfigOK, Status: metav1.ConditionFalse, LastTransitionTime: started,
			Reason: v1alpha1.ReasonValidationFailed,
		}},
	}}))(t)
	assert.NoError(t, assert.Err(asNode(t, "shown").Patch(t.Context(), "shown", types.MergePatchType, status, metav1.PatchOptions{}, "status")))
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
