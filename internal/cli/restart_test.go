package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	rolloutcmd "github.com/evenkeel/evenkeel/internal/cli/rollout"
)

// createUnready creates a Node with a kubelet of a version, whose agent reports the number of pods that a restart makes unready;
// -1: an agent that does not report it.
func createUnready(t *testing.T, name, pool, version string, pods int64) {
	t.Helper()
	createNode(t, name, pool, "z1")
	createNodeConfig(t, name, nil, func(st *v1alpha1.NodeConfigStatus) {
		st.ComponentVersion = version
		if pods >= 0 {
			st.PodsUnreadyOnRestart = &pods
		}
	})
}

func TestPushAndPlanSayWhatRestartsCost(t *testing.T) {
	createUnready(t, "costs-a", "costs", "v1.33.13", 7)
	createUnready(t, "costs-b", "costs", "v1.34.4", -1)
	createUnready(t, "costs-c", "costs", "v1.36.3", 0)
	createUnready(t, "costs-d", "costs", "v1.36.3", -1)
	createUnready(t, "free-a", "free", "v1.34.4", 0)
	const note = "Note: a restart of the kubelet makes pods unready until their next probe: 7 pods on 1 node, and an unknown number on 1 node (kubelet 1.33, 1.34).\n"

	config := writeConfig(t, "costs", "maxPods: 50\n")
	evenkeel(t, "push", "costs", "-f", config, "--selector", "pool=costs", "--dry-run").wantOutput(t, note)
	if got := evenkeel(t, "push", "costs", "-f", config, "--selector", "pool=costs"); !strings.Contains(got.out, "Note: a restart") || !strings.Contains(got.err, "cannot ask for confirmation") {
		t.Errorf("before its question push prints %q, %q", got.out, got.err)
	}
	if got := evenkeel(t, "push", "free", "-f", config, "--selector", "pool=free", "--dry-run"); strings.Contains(got.out, "unready") {
		t.Errorf("a restart that costs nothing has a note:\n%s", got.out)
	}

	file := write(t, strings.ReplaceAll(planned, "planned", "costs"))
	evenkeel(t, "rollout", "plan", "-f", file).wantOutput(t, note)
	evenkeel(t, "rollout", "plan", "-f", file, "--simulate", "--fail-rate", "50%").wantOutput(t, note, "Simulated: ")
	var v rolloutcmd.PlanReport
	if err := json.Unmarshal([]byte(evenkeel(t, "rollout", "plan", "-f", file, "-o", "json").out), &v); err != nil {
		t.Fatal(err)
	}
	if c := v.RestartCost; c == nil || c.PodsUnready != 7 || c.Nodes != 1 || c.UnknownNodes != 1 || strings.Join(c.Kubelets, " ") != "1.33 1.34" {
		t.Errorf("the cost is %+v", c)
	}
	// Only nodes that the plan restarts count.
	if got := evenkeel(t, "rollout", "plan", "-f", write(t, strings.ReplaceAll(planned, "planned", "costs")+"  paused: true\n")); strings.Contains(got.out, "unready") {
		t.Errorf("a plan without restarts has a note:\n%s", got.out)
	}
	evenkeel(t, "node", "costs-a").wantOutput(t, "On restart: 7 pods unready until the next probe, as last counted\n")
	if got := evenkeel(t, "node", "free-a"); strings.Contains(got.out, "unready") {
		t.Errorf("a node whose restart costs nothing says:\n%s", got.out)
	}
	a := evenkeel(t, "assign", "costs-a", "-f", config, "--dry-run")
	if want := "note: a restart of the kubelet makes pods unready until their next probe: 7 pods on 1 node (kubelet 1.33)\n"; !strings.Contains(a.err, want) {
		t.Errorf("assign says %q, want %q", a.err, want)
	}
	if a := evenkeel(t, "assign", "free-a", "-f", config, "--dry-run"); strings.Contains(a.err+a.out, "unready") {
		t.Errorf("assign to a node whose restart costs nothing says %q", a.err)
	}
}
