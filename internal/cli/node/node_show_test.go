// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

func TestNodeOnTrialShowsTheEndOfTheTrial(t *testing.T) {
	api := newAPI(t)
	rev := api.AddRolledOut("trying", nil)
	api.AddRollout("other", "trying", fakeapi.Pods(1), nil)
	start := metav1.NewTime(time.Now().Add(-7 * time.Minute))
	api.AddAgent("trying-a", "trying", fakeapi.ByRollout("trying", 1, rev, nil), func(st *v1alpha1.NodeConfigStatus) {
		st.Active = fakeapi.Runs(rev)
		st.Trial = &v1alpha1.Trial{StartTime: &start, HealthySeconds: 60, DurationSeconds: 600, Restarts: 1, CrashLoopThreshold: 3}
		st.OverriddenFields = []string{"maxPods", "podsPerCore"}
	})
	api.Run("node", "trying-a").WantOutput(t,
		"Node: trying-a\nZone: z1\n",
		"Assigned: revision 1 of rollout trying, attempt 1, 12m ago: ConfigMap evenkeel-system/"+rev.Name+"\n",
		"Runs: trying/1: ConfigMap evenkeel-system/"+rev.Name,
		"Last-known-good: local\n",
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

func TestANodeShowsWhenItsAssignmentEnds(t *testing.T) {
	api := newAPI(t)
	start := metav1.NewTime(time.Now().Add(-7 * time.Minute))
	source := &v1alpha1.NodeConfigSource{
		ConfigMapRef: &v1alpha1.ConfigMapReference{Namespace: "evenkeel-system", Name: "debug", UID: "uid"},
		Temporary:    &v1alpha1.TemporaryAssignment{Duration: metav1.Duration{Duration: 15 * time.Minute}, RequestedAt: start},
	}
	api.AddAgent("debugged", "debugging", source, func(st *v1alpha1.NodeConfigStatus) {
		st.Active = &v1alpha1.ConfigRevision{Namespace: "evenkeel-system", Name: "debug", UID: "uid"}
		st.Trial = &v1alpha1.Trial{StartTime: &start, HealthySeconds: 180, DurationSeconds: 180, CrashLoopThreshold: 3}
	})
	api.Run("node", "debugged").WantOutput(t,
		"Assigned: ConfigMap evenkeel-system/debug, by a person, ends 15m after the node adopts it\n",
		"Trial: 7m", "of 15m, healthy for 3m as last reported, 0 of 3 restarts\n",
		"- the assignment ends in about ", "; the node then returns to local\n",
		"- if the trial fails, the node rolls back to local\n")
	api.Run("node", "debugged", "-o", "wide").WantError(t, "json")
}

func TestFailedNodeShowsHowToRetry(t *testing.T) {
	api := newAPI(t)
	halted := metav1.NewTime(time.Now().Add(-12*time.Minute - 30*time.Second))
	rev := api.AddRolledOut("broken", func(r *v1alpha1.NodeConfigRollout) {
		r.Status.Halt = &v1alpha1.RolloutHalt{Attempt: 1, Reason: "TooManyFailures", Message: "failed on 1 node", Time: halted}
	})
	api.AddAgent("broken-a", "broken", fakeapi.ByRollout("broken", 1, rev, nil), func(st *v1alpha1.NodeConfigStatus) {
		fakeapi.Failing(st, v1alpha1.ReasonCrashLooped, "the kubelet exited:\n\x1b[31m4 times")
		st.BadConfigs = []v1alpha1.BadConfig{{UID: rev.UID, Revision: string(rev.UID), Namespace: rev.Namespace, Name: rev.Name, Time: &halted, Reason: "crash-looped"}}
	})
	api.AddAgent("broken-b", "broken", nil, nil)
	api.Run("node", "broken-a").WantOutput(t,
		"Runs: local\n",
		"ConfigOK: False, CrashLooped,",
		"Error: the kubelet exited: \\x1b[31m4 times\n",
		"Bad: evenkeel-system/"+rev.Name+", 12m ago: crash-looped\n",
		"Position: Failed\n",
		"- rollout broken does not change the node; to retry, while other nodes wait: kubectl evenkeel rollout retry broken broken-a\n",
		"- rollout broken is Halted: ")
	api.Run("node", "broken-b").WantOutput(t,
		"Assigned: local (nothing is assigned)\n", "Position: Waiting: the revision is stopped\n",
		"- rollout broken does not assign revision 1 while it is Halted\n", "- rollout broken is Halted: ")

	v := fakeapi.Decoded[describe.Node](t, api.Run("node", "broken-a", "-o", "json"))
	assert.That(t, v.Name == "broken-a" && v.Rollout == "broken" && v.State == "Failed" && v.Phase == "Halted" && v.Spec != nil &&
		v.Status != nil && len(v.Next) == 2, "as JSON: %+v", v)

	api.Run("node", "broken-a", "-o", "yaml").WantOutput(t, "name: broken-a\n", "position: Failed\n", "rollout: broken\n", "state: Failed\n")
}

func TestNodeShowsItsDrain(t *testing.T) {
	api := newAPI(t)
	since := metav1.NewTime(time.Now().Add(-3*time.Minute - 30*time.Second).Truncate(time.Second))
	rev := api.AddRevision("drained", 1, "maxPods: 110\n")
	r := api.AddRollout("drained", "drained", nil, func(r *v1alpha1.NodeConfigRollout) {
		r.Spec.Template = fakeapi.Follow(rev.Namespace, rev.Name)
		r.Spec.Strategy.Drain = v1alpha1.DrainWhenBlocked
		r.Status.UpdateRevision = &v1alpha1.RolloutRevision{Number: 1, ConfigMapRef: fakeapi.RefTo(rev)}
		r.Status.Attempt = 1
		r.Status.DrainingNodes = []v1alpha1.DrainingNode{{Name: "drained-a", Since: since, Message: "1 pod to evict (shop/web-1): its budget\x1b[2J allows no disruption"}}
		r.Status.Controller = &v1alpha1.RolloutController{Namespace: v1alpha1.SystemNamespace, AgentTimeout: metav1.Duration{Duration: time.Minute}, Drain: new(true)}
	})
	for _, name := range []string{"drained-a", "drained-b"} {
		n := api.AddNode(name, "drained", "z1")
		taint := corev1.Taint{Key: v1alpha1.TaintDraining, Value: "by-hand", Effect: corev1.TaintEffectNoSchedule}
		if name == "drained-a" {
			taint = fleet.DrainTaint(rollout.Drain{Rollout: fleet.DrainID(r.UID), Revision: 1, Attempt: 1, Since: time.Now()}) // not before the Node was created
		}

		n.Spec.Taints = append(n.Spec.Taints, taint)
		api.Write(n)
		api.AddNodeConfig(name, fakeapi.ByRollout("drained", 1, rev, nil), fakeapi.Failed(v1alpha1.ReasonNeedsDrain, "why"))
	}

	why := "1 pod to evict (shop/web-1): its budget\\x1b[2J allows no disruption"
	got := api.Run("node", "drained-a")
	got.WantOutput(t, "Taint: evenkeel.dev/draining, since ", "s ago: keeps new pods away while the node is drained and updated\n",
		"Position: InFlight/Draining: "+why, "- rollout drained drains the node for revision 1: "+why)
	assert.That(t, !strings.Contains(got.Out, "kubectl drain"), "a person is asked to drain the node: %s", got.Out)
	api.Run("node", "drained-b").WantOutput(t, "Taint: evenkeel.dev/draining, which no rollout of this controller wrote", "Position: Blocked\n")
	api.Run("nodes", "--rollout", "drained", "-o", "wide").WantOutput(t, "Draining", why)
}

func TestNodeShowsWhatHappensNext(t *testing.T) {
	api := newAPI(t)
	rev := api.AddRolledOut("cases", nil)
	report := func(reason string) func(*v1alpha1.NodeConfigStatus) { return fakeapi.Failed(reason, "why") }
	fine := fakeapi.Proved(rev)
	for _, tt := range []struct {
		name, pool string
		source     *v1alpha1.NodeConfigSource
		report     func(*v1alpha1.NodeConfigStatus)
		want       string
	}{
		{"updated", "cases", fakeapi.ByRollout("cases", 1, rev, nil), fine, "- nothing: the node runs the target of rollout cases (revision 1)\n"},
		{"by-hand", "cases", fakeapi.ByPerson(rev), fine, "- rollout cases skips the node: a person set its configuration; to return it to the rollout: kubectl evenkeel assign by-hand --release"},
		{"alone", "nobody", fakeapi.ByPerson(rev), fine, "- no rollout selects the node; to assign a configuration: kubectl evenkeel assign "},
		{"explicit", "nobody", &v1alpha1.NodeConfigSource{Local: &v1alpha1.LocalSource{}}, nil, "Assigned: local, by a person\n"},
		{"opted-out", "cases", nil, func(st *v1alpha1.NodeConfigStatus) { st.RemoteConfig = v1alpha1.RemoteConfigDisabled }, "- nothing: remote configuration is disabled on the node"},
		{"its-own", "cases", nil, func(st *v1alpha1.NodeConfigStatus) { st.RemoteConfig = v1alpha1.RemoteConfigConfigMap }, "- the node follows its own ConfigMap, kubelet-its-own; rollouts skip it\n"},
		{"too-full", "cases", fakeapi.ByRollout("cases", 1, rev, nil), report(v1alpha1.ReasonWouldEvictPods), "- refused while the kubelet would end pods with the configuration"},
		{"undrained", "cases", fakeapi.ByRollout("cases", 1, rev, nil), report(v1alpha1.ReasonNeedsDrain), "- refused until the node is cordoned and drained: kubectl drain undrained\n"},
		{"protected", "cases", fakeapi.ByRollout("cases", 1, rev, nil), report(v1alpha1.ReasonProtectedFields), "- refused while the configuration changes fields that this node protects"},
		{"revoked", "cases", fakeapi.ByRollout("cases", 1, rev, nil), report(v1alpha1.ReasonRevoked), "- nothing until another configuration is assigned: this one is revoked on the node\n"},
		{"dead-end", "cases", fakeapi.ByRollout("cases", 1, rev, nil), report(v1alpha1.ReasonDeadEnd), "- repair this node"},
		{"unclear", "cases", fakeapi.ByRollout("cases", 1, rev, nil), report(v1alpha1.ReasonSyncFailed), "- the agent tries again by itself when something changes\n"},
		{"behind", "cases", fakeapi.ByRollout("cases", 1, rev, nil), func(st *v1alpha1.NodeConfigStatus) { st.ObservedGeneration-- }, "- the agent answers the newest spec; a running agent needs a few seconds\n"},
		{"never-healthy", "cases", fakeapi.ByRollout("cases", 1, rev, nil), func(st *v1alpha1.NodeConfigStatus) {
			start := metav1.NewTime(time.Now().Add(-time.Hour))
			st.Active, st.Trial = fakeapi.Runs(rev), &v1alpha1.Trial{StartTime: &start, DurationSeconds: 600}
		}, "- the trial ends when the kubelet has been healthy for 10m in total\n"},
		{"forgettable", "nobody", fakeapi.ByPerson(rev), func(st *v1alpha1.NodeConfigStatus) {
			fakeapi.Failing(st, v1alpha1.ReasonCrashLooped, "why")
			st.BadConfigs = []v1alpha1.BadConfig{{UID: rev.UID, Revision: "r1"}}
		}, "- the node keeps local until another configuration is assigned; to retry this one, run on the node: evenkeel-agent forget r1\n"},
	} {
		api.AddAgent(tt.name, tt.pool, tt.source, tt.report)
		api.Run("node", tt.name).WantOutput(t, tt.want)
	}

	api.AddNode("bare", "cases", "z1")
	api.Run("node", "bare").WantOutput(t, "Assigned: nothing: there is no NodeConfig\n", "Problems: no agent yet: no NodeConfig\n",
		"Position: Skipped/Stale", "- nothing until evenkeel-agent runs on the node and reports\n", "- rollout cases skips the node: no NodeConfig")

	api.AddNodeConfig("left", nil, nil)
	api.Run("node", "left").WantOutput(t, "Problems: the Node does not exist\n", "- nothing: the Node does not exist.")

	api.AddRollout("hollow", "hollow", nil, func(r *v1alpha1.NodeConfigRollout) {
		r.Spec.Template = fakeapi.Follow("evenkeel-system", "nowhere")
	})
	api.AddAgent("hollow-a", "hollow", nil, nil)
	api.Run("node", "hollow-a").WantOutput(t, "- rollout hollow does not assign a revision while it is Invalid\n",
		"- rollout hollow is Invalid: spec.template.configMapRef: ConfigMap evenkeel-system/nowhere does not exist")
}
