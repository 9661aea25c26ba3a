package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/describe"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/fleet/rollout"
)

// createRolledOut creates a rollout for a pool with the same name, whose target is revision 1.
func createRolledOut(t *testing.T, name string, change func(*v1alpha1.NodeConfigRollout)) *corev1.ConfigMap {
	t.Helper()
	rev := createRevision(t, name, 1, "maxPods: 110\n")
	createRollout(t, name, name, "", func(r *v1alpha1.NodeConfigRollout) {
		r.Spec.Template = v1alpha1.RolloutTemplate{ConfigMapRef: &v1alpha1.TemplateConfigMap{Namespace: rev.Namespace, Name: rev.Name}}
		r.Status.UpdateRevision = &v1alpha1.RolloutRevision{Number: 1, ConfigMapRef: refTo(rev)}
		begun := metav1.NewTime(time.Now().Add(-10 * time.Minute))
		r.Status.Attempt, r.Status.StartTime, r.Status.StepTime, r.Status.ProgressTime = 1, &begun, &begun, &begun
		if change != nil {
			change(r)
		}
	})
	return rev
}

func TestNodeOnTrialShowsTheEndOfTheTrial(t *testing.T) {
	rev := createRolledOut(t, "trying", nil)
	createRollout(t, "other", "trying", pods(1), nil)
	createNode(t, "trying-a", "trying", "z1")
	start := metav1.NewTime(time.Now().Add(-7 * time.Minute))
	createNodeConfig(t, "trying-a", byRollout("trying", 1, rev, nil), func(st *v1alpha1.NodeConfigStatus) {
		st.Active = runs(rev)
		st.Trial = &v1alpha1.Trial{StartTime: &start, HealthySeconds: 60, DurationSeconds: 600, Restarts: 1, CrashLoopThreshold: 3}
		st.OverriddenFields = []string{"maxPods", "podsPerCore"}
	})
	evenkeel(t, "rollout", "plan", "trying").wantOutput(t, "1 node selected, 0 updated, 1 in flight, 0 to come, 0 excluded\n", "No node is assigned the revision: Progressing: ")
	evenkeel(t, "node", "trying-a").wantOutput(t,
		"Node: trying-a\nZone: z1\n",
		"Assigned: revision 1 of rollout trying, attempt 1, 12m ago: ConfigMap evenkeel-system/"+rev.Name+"\n",
		"Runs: trying/1: ConfigMap evenkeel-system/"+rev.Name,
		"Last-known-good: local: its own file (init)\n",
		"ConfigOK: True, AllChecksPassed, since 120m ago: using current: all checks passed\n",
		"Trial: 7m", "of 10m, healthy for 1m as last reported, 1 of 3 restarts\n",
		"Overridden: maxPods, podsPerCore\n",
		"Agent: v0.1.0, kubelet v1.36.3, source NodeConfig, run mode Host\n",
		"Problems: 2 fields have no effect: command-line flags of the kubelet override them\n",
		"Rollout: trying\nPosition: InFlight/Trial: on trial\nAlso selected by: other (without effect)\n",
		"What happens next:\n",
		"- the trial ends in about ", " if the kubelet stays healthy; then trying/1 is last-known-good\n",
		"- if the trial fails, the node rolls back to local\n",
		"- rollout trying waits for the node: on trial\n")
}

func TestFailedNodeShowsHowToRetry(t *testing.T) {
	halted := metav1.NewTime(time.Now().Add(-12*time.Minute - 30*time.Second))
	rev := createRolledOut(t, "broken", func(r *v1alpha1.NodeConfigRollout) {
		r.Status.Halt = &v1alpha1.RolloutHalt{Revision: 1, Attempt: 1, Reason: "TooManyFailures", Message: "failed on 1 node", Time: halted}
	})
	createNode(t, "broken-a", "broken", "z1")
	createNode(t, "broken-b", "broken", "z1")
	createNodeConfig(t, "broken-a", byRollout("broken", 1, rev, nil), func(st *v1alpha1.NodeConfigStatus) {
		failing(st, v1alpha1.ReasonCrashLooped, "the kubelet exited:\n\x1b[31m4 times")
		st.BadConfigs = []v1alpha1.BadConfig{{UID: rev.UID, Revision: string(rev.UID), Namespace: rev.Namespace, Name: rev.Name, Time: &halted, Reason: "crash-looped"}}
	})
	createNodeConfig(t, "broken-b", nil, nil)
	evenkeel(t, "node", "broken-a").wantOutput(t,
		"Runs: local: its own file (init)\n",
		"ConfigOK: False, CrashLooped,",
		"Error: the kubelet exited: \\x1b[31m4 times\n",
		"Bad: evenkeel-system/"+rev.Name+", 12m ago: crash-looped\n",
		"Position: Blocked/Failed\n",
		"- rollout broken does not change the node; to retry, while other nodes wait: kubectl evenkeel rollout retry broken broken-a\n",
		"- rollout broken is Halted: ")
	evenkeel(t, "node", "broken-b").wantOutput(t,
		"Assigned: local (nothing is assigned)\n", "Position: Waiting: the revision is stopped\n",
		"- rollout broken does not assign revision 1 while it is Halted\n", "- rollout broken is Halted: ")

	var v describe.Node
	if err := json.Unmarshal([]byte(evenkeel(t, "node", "broken-a", "-o", "json").out), &v); err != nil {
		t.Fatal(err)
	}
	if v.Name != "broken-a" || v.Rollout != "broken" || v.State != "Failed" || v.Phase != "Halted" || v.Spec == nil || v.Status == nil || len(v.Next) != 2 {
		t.Errorf("as JSON: %+v", v)
	}
	evenkeel(t, "node", "broken-a", "-o", "yaml").wantOutput(t, "name: broken-a\n", "position: Blocked\n", "rollout: broken\n", "state: Failed\n")
}

func TestNodeShowsItsDrain(t *testing.T) {
	since := metav1.NewTime(time.Now().Add(-3*time.Minute - 30*time.Second).Truncate(time.Second))
	rev := createRevision(t, "drained", 1, "maxPods: 110\n")
	r := createRollout(t, "drained", "drained", "", func(r *v1alpha1.NodeConfigRollout) {
		r.Spec.Template = v1alpha1.RolloutTemplate{ConfigMapRef: &v1alpha1.TemplateConfigMap{Namespace: rev.Namespace, Name: rev.Name}}
		r.Spec.Strategy.Drain = v1alpha1.DrainWhenBlocked
		r.Status.UpdateRevision = &v1alpha1.RolloutRevision{Number: 1, ConfigMapRef: refTo(rev)}
		r.Status.Attempt = 1
		r.Status.DrainingNodes = []v1alpha1.DrainingNode{{Name: "drained-a", Since: since, Message: "1 pod to evict (shop/web-1): its budget\x1b[2J allows no disruption"}}
		r.Status.Controller = &v1alpha1.RolloutController{Namespace: v1alpha1.SystemNamespace, AgentTimeout: metav1.Duration{Duration: time.Minute}, Drain: new(true)}
	})
	for _, name := range []string{"drained-a", "drained-b"} {
		n := createNode(t, name, "drained", "z1")
		taint := corev1.Taint{Key: v1alpha1.TaintDraining, Value: "by-hand", Effect: corev1.TaintEffectNoSchedule}
		if name == "drained-a" {
			taint = policy.DrainTaint(rollout.Drain{Rollout: policy.DrainID(r.UID), Revision: 1, Attempt: 1, Since: time.Now()}) // not before the Node was created
		}
		n.Spec.Taints = append(n.Spec.Taints, taint)
		if err := admin.Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		createNodeConfig(t, name, byRollout("drained", 1, rev, nil), func(st *v1alpha1.NodeConfigStatus) { failing(st, v1alpha1.ReasonNeedsDrain, "why") })
	}
	why := "1 pod to evict (shop/web-1): its budget\\x1b[2J allows no disruption"
	got := evenkeel(t, "node", "drained-a")
	got.wantOutput(t, "Taint: evenkeel.dev/draining, since ", "s ago: keeps new pods away while the node is drained and updated\n",
		"Position: InFlight/Draining: "+why, "- rollout drained drains the node for revision 1: "+why)
	if strings.Contains(got.out, "kubectl drain") {
		t.Errorf("a person is asked to drain the node: %s", got.out)
	}
	evenkeel(t, "node", "drained-b").wantOutput(t, "Taint: evenkeel.dev/draining, which no rollout of this controller wrote", "Position: Blocked\n")
	evenkeel(t, "nodes", "--rollout", "drained", "-o", "wide").wantOutput(t, "Draining", why)
	evenkeel(t, "rollout", "status", "drained").wantOutput(t, "drained-a draining for 3m", why)
}

func TestNodeShowsWhatHappensNext(t *testing.T) {
	rev := createRolledOut(t, "cases", nil)
	report := func(reason string) func(*v1alpha1.NodeConfigStatus) {
		return func(st *v1alpha1.NodeConfigStatus) { failing(st, reason, "why") }
	}
	fine := func(st *v1alpha1.NodeConfigStatus) { st.Active, st.LastKnownGood = runs(rev), proven(rev) }
	for _, tt := range []struct {
		name, pool string
		source     *v1alpha1.NodeConfigSource
		report     func(*v1alpha1.NodeConfigStatus)
		want       string
	}{
		{"updated", "cases", byRollout("cases", 1, rev, nil), fine, "- nothing: the node runs the target of rollout cases (revision 1)\n"},
		{"by-hand", "cases", byPerson(rev), fine, "- rollout cases skips the node: a person set its configuration; remove spec.configSource"},
		{"alone", "nobody", byPerson(rev), fine, "- no rollout selects the node; to assign a configuration: kubectl evenkeel assign "},
		{"explicit", "nobody", &v1alpha1.NodeConfigSource{Local: &v1alpha1.LocalSource{}}, nil, "Assigned: local, by a person\n"},
		{"opted-out", "cases", nil, func(st *v1alpha1.NodeConfigStatus) { st.RemoteConfig = v1alpha1.RemoteConfigDisabled }, "- nothing: remote configuration is disabled on the node"},
		{"its-own", "cases", nil, func(st *v1alpha1.NodeConfigStatus) { st.RemoteConfig = v1alpha1.RemoteConfigConfigMap }, "- the node follows its own ConfigMap, kubelet-its-own; rollouts skip it\n"},
		{"too-full", "cases", byRollout("cases", 1, rev, nil), report(v1alpha1.ReasonWouldEvictPods), "- refused while the kubelet would end pods with the configuration"},
		{"undrained", "cases", byRollout("cases", 1, rev, nil), report(v1alpha1.ReasonNeedsDrain), "- refused until the node is cordoned and drained: kubectl drain undrained\n"},
		{"protected", "cases", byRollout("cases", 1, rev, nil), report(v1alpha1.ReasonProtectedFields), "- refused while the configuration changes fields that this node protects"},
		{"revoked", "cases", byRollout("cases", 1, rev, nil), report(v1alpha1.ReasonRevoked), "- nothing until another configuration is assigned: this one is revoked on the node\n"},
		{"dead-end", "cases", byRollout("cases", 1, rev, nil), report(v1alpha1.ReasonDeadEnd), "- repair this node"},
		{"unclear", "cases", byRollout("cases", 1, rev, nil), report(v1alpha1.ReasonSyncFailed), "- the agent tries again by itself when something changes\n"},
		{"behind", "cases", byRollout("cases", 1, rev, nil), func(st *v1alpha1.NodeConfigStatus) { st.ObservedGeneration-- }, "- the agent answers the newest spec; a running agent needs a few seconds\n"},
		{"never-healthy", "cases", byRollout("cases", 1, rev, nil), func(st *v1alpha1.NodeConfigStatus) {
			start := metav1.NewTime(time.Now().Add(-time.Hour))
			st.Active, st.Trial = runs(rev), &v1alpha1.Trial{StartTime: &start, DurationSeconds: 600}
		}, "- the trial ends when the kubelet has been healthy for 10m in total\n"},
		{"forgettable", "nobody", byPerson(rev), func(st *v1alpha1.NodeConfigStatus) {
			failing(st, v1alpha1.ReasonCrashLooped, "why")
			st.BadConfigs = []v1alpha1.BadConfig{{UID: rev.UID, Revision: "r1"}}
		}, "- the node keeps local until another configuration is assigned; to retry this one, run on the node: evenkeel-agent forget r1\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			createNode(t, tt.name, tt.pool, "z1")
			createNodeConfig(t, tt.name, tt.source, tt.report)
			evenkeel(t, "node", tt.name).wantOutput(t, tt.want)
		})
	}
	t.Run("no agent", func(t *testing.T) {
		createNode(t, "bare", "cases", "z1")
		evenkeel(t, "node", "bare").wantOutput(t, "Assigned: nothing: there is no NodeConfig\n", "Problems: no agent yet: no NodeConfig\n",
			"Position: Skipped/Stale", "- nothing until evenkeel-agent runs on the node and reports\n", "- rollout cases skips the node: no NodeConfig")
	})
	t.Run("no Node", func(t *testing.T) {
		createNodeConfig(t, "left", nil, nil)
		evenkeel(t, "node", "left").wantOutput(t, "Problems: the Node does not exist\n", "- nothing: the Node does not exist.")
	})
	t.Run("a rollout without its template", func(t *testing.T) {
		createRollout(t, "hollow", "hollow", "", func(r *v1alpha1.NodeConfigRollout) {
			r.Spec.Template = v1alpha1.RolloutTemplate{ConfigMapRef: &v1alpha1.TemplateConfigMap{Namespace: "evenkeel-system", Name: "nowhere"}}
		})
		createNode(t, "hollow-a", "hollow", "z1")
		createNodeConfig(t, "hollow-a", nil, nil)
		evenkeel(t, "node", "hollow-a").wantOutput(t, "- rollout hollow does not assign a revision while it is Invalid\n", "- rollout hollow is Invalid: spec.template.configMapRef: ConfigMap evenkeel-system/nowhere does not exist")
	})
}

func TestNodeErrors(t *testing.T) {
	evenkeel(t, "node", "nowhere").wantError(t, `node "nowhere" does not exist`, "kubectl evenkeel nodes")
	evenkeel(t, "node").wantError(t, "needs the name of one node")
	evenkeel(t, "node", "x", "-o", "wide").wantError(t, "json")
	evenkeelAs(t, userOf(t, "nobody"), "node", "x").wantError(t, "get NodeConfig x", "forbidden")
	grant(t, "sees-nodes-only", "nodes", "")
	evenkeelAs(t, userOf(t, "sees-nodes-only"), "node", "x").wantError(t, "get NodeConfig x", "forbidden")
	createNode(t, "seen", "seen", "z1")
	createNodeConfig(t, "seen", nil, nil)
	grant(t, "sees-configs", "nodeconfigs", v1alpha1.GroupVersion.Group)
	bind(t, "sees-configs", "sees-nodes-only", "nodes", "")
	evenkeelAs(t, userOf(t, "sees-configs"), "node", "seen").wantError(t, "list rollouts", "forbidden")
}
