package api_test

import (
	"encoding/json"
	"path/filepath"
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
		// kubectl always sends the selector of a PodDisruptionBudget again, changed or not.
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
		Assigned:         &v1alpha1.AssignedConfig{ConfigRevision: v1alpha1.ConfigRevision{Name: "workers-3"}},
		Active:           &v1alpha1.ConfigRevision{Name: "workers-2", Revision: "6d1e"},
		LastKnownGood:    &v1alpha1.LastKnownGoodConfig{ConfigRevision: v1alpha1.ConfigRevision{Name: "workers-1"}},
		Local:            v1alpha1.LocalConfigInit,
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
		"NAME ASSIGNED ACTIVE LAST-KNOWN-GOOD CONFIGOK TRIAL AGE REASON REVISION LOCAL VERSION",
		"shown workers-3 workers-2 workers-1 False 100m (age) ValidationFailed 6d1e Init v1.36.3")
}

// wantTable runs kubectl, which must print a header and one row, whose seventh column is an age.
func wantTable(t *testing.T, args, header, row string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(mustKubectl(t, strings.Fields(args)...)), "\n")
	assert.Must(t, len(lines) == 2, "got %d lines, want 2: %q", len(lines), lines)
	got := strings.Fields(lines[1])
	if len(got) > 6 {
		got[6] = "(age)"
	}
	assert.Equal(t, strings.Join(strings.Fields(lines[0]), " "), header, "kubectl", args)
	assert.Equal(t, strings.Join(got, " "), row, "kubectl", args)
}

func TestKubectlExplainsEveryFieldAndSaysWhoWritesIt(t *testing.T) {
	for path, want := range map[string][]string{
		"nodeconfig":      {"It has the name of the node."},
		"nodeconfig.spec": {"Written by a person or a controller; writes by a node are refused."},
		"nodeconfig.spec.configSource": {
			"Exactly one of its fields local and configMapRef must be set.", "configMapRef <Object>",
			"Written by a person or a controller.",
		},
		"nodeconfig.spec.configSource.configMapRef": {"uid is the metadata.uid of the ConfigMap."},
		"nodeconfig.status":                         {"Only the node's evenkeel-agent writes it,"},
		"nodeconfig.status.lastKnownGood": {
			"Absent if it is the local configuration. Written by the agent.", "since is the time when the configuration passed its trial.",
		},
		"ncr": {"rolls out one kubelet configuration to all nodes that a selector matches", "People write the spec."},
		"ncr.spec": {
			"An empty selector is refused unless allNodes is true.", "soakSeconds <integer>", "A node that takes longer has failed. Defaults to 900.",
			"newNodes <string> enum: LastSucceeded, Target",
		},
		"ncr.spec.strategy": {
			"maxUnavailable <Object>", "rounded down and at least 1. 0 stops the rollout.", "steps <[]Object>", "After the last step, all remaining nodes are updated. Defaults to three steps: 1 node, 10%, 100%.",
			"topologyKey is the key of the node label whose value is the node's domain,",
		},
		"ncr.spec.strategy.steps":       {"Each has exactly one of nodes and pause. After", "neither numbers nor percentages may decrease."},
		"ncr.spec.strategy.steps.pause": {"such as 10m or 1h30m. If it is absent, the rollout waits for an approval."},
		"ncr.spec.template":             {"Exactly one of kubelet, kubeletDropIn and configMapRef must be set.", "kubeletDropIn is a partial KubeletConfiguration."},
		"ncr.status":                    {"Only evenkeel-controller writes it.", "halt describes the stop of updateRevision."},
		"ncr.status.nodes":              {"unavailable is the number of nodes that count against maxUnavailable."},
	} {
		out := strings.Join(strings.Fields(mustKubectl(t, "explain", path)), " ")
		for _, w := range want {
			assert.That(t, strings.Contains(out, w), "kubectl explain %s lacks %q:\n%s", path, w, out)
		}
	}
}
