// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

func newAPI(t *testing.T) *fakeapi.API {
	t.Helper()
	return fakeapi.New(t, NodesCommand, Command, AssignCommand)
}

type rows struct{ Items []describe.Row }

func TestNodesListsConfigurations(t *testing.T) {
	api := newAPI(t)
	const pool = "table"
	old, current := api.AddRevision("table", 1, "maxPods: 110\n"), api.AddRevision("table", 2, "maxPods: 120\n")
	manual := api.AddRevision("by-hand", 1, "maxPods: 130\n")
	start := metav1.NewTime(time.Now().Add(-3*time.Minute - 12*time.Second))
	api.AddAgent("table-a", pool, fakeapi.ByRollout("table", 2, current, old), func(st *v1alpha1.NodeConfigStatus) {
		st.Active, st.LastKnownGood = fakeapi.Runs(current), fakeapi.Proven(old)
		st.Trial = &v1alpha1.Trial{StartTime: &start, HealthySeconds: 180, DurationSeconds: 600, CrashLoopThreshold: 3}
	})
	api.AddAgent("table-b", pool, fakeapi.ByPerson(manual), func(st *v1alpha1.NodeConfigStatus) {
		st.Active, st.LastKnownGood = fakeapi.Runs(old), fakeapi.Proven(old)
		fakeapi.Failing(st, v1alpha1.ReasonCrashLooped, "the kubelet exited 4 times")
	})
	api.AddNode("table-c", pool, "z1")
	api.AddAgent("table-d", pool, nil, nil)
	api.AddNode("table-e", pool, "z1")
	fakeapi.Add(api, &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "table-e"}})

	got := api.Run("nodes", "-l", "pool="+pool)
	got.WantOutput(t,
		"NAME HEALTH ASSIGNED ACTIVE LAST-KNOWN-GOOD CONFIGOK TRIAL SINCE\n",
		"table-a OnTrial table/2 table/2 table/1 True/AllChecksPassed 3m1",
		"s/10m 120m\n",
		"table-b Failed "+manual.Name+" "+old.Name+" "+old.Name+" False/CrashLooped - 120m\n",
		"table-c NoAgent - - - no agent yet - -\n",
		"table-d Healthy local local local True/AllChecksPassed - 120m\n",
		"table-e NoAgent local - - no agent yet - -\n",
	)
	api.Run("nodes", "-l", "pool="+pool, "-o", "wide").WantOutput(t,
		"ZONE KUBELET AGENT SOURCE RUN-MODE PROBLEMS\n", "table-b", "z1 v1.36.3 v0.1.0 NodeConfig Host ConfigOK is not True\n",
		"table-c", "z1 v1.36.3 - - - no agent yet: no NodeConfig\n")
	got = api.Run("nodes", "-l", "pool="+pool, "-o", "name", "--failed")
	assert.That(t, got.Out == "node/table-b\n", "failed: %+v", got)
	got = api.Run("nodes", "-l", "pool="+pool, "-o", "name", "--problems")
	assert.That(t, got.Out == "node/table-b\nnode/table-c\nnode/table-e\n", "problems: %+v", got)

	api.Run("nodes", "-l", "pool="+pool, "-o", "yaml", "--failed").WantOutput(t,
		"items:\n- active: "+old.Name, "configOK:", "reason: CrashLooped", "name: table-b")
	got = api.Run("nodes", "-l", "pool=nobody")
	assert.That(t, got.Code == 0 && got.Out == "" && got.Err == "No nodes found\n", "no nodes: %+v", got)
}

func TestNodesOfARolloutShowTheirState(t *testing.T) {
	api := newAPI(t)
	rev := api.AddRolledOut("standing", nil)
	api.AddAgent("standing-a", "standing", fakeapi.ByRollout("standing", 1, rev, nil), fakeapi.Proved(rev))
	api.AddAgent("standing-b", "standing", fakeapi.ByRollout("standing", 1, rev, nil),
		fakeapi.Failed(v1alpha1.ReasonNotHealthy, "it was not healthy for 2m"))
	api.AddNode("standing-c", "standing", "z1")
	api.AddNode("unselected", "another", "z1")
	api.Run("nodes", "--rollout", "standing").WantOutput(t,
		"NAME HEALTH ASSIGNED ACTIVE LAST-KNOWN-GOOD CONFIGOK TRIAL SINCE POSITION\n",
		"standing-a Healthy standing/1 standing/1 standing/1 True/AllChecksPassed - 120m Updated\n",
		"standing-b Failed standing/1 local local False/NotHealthy - 120m Failed\n",
		"standing-c NoAgent - - - no agent yet - - Skipped/Stale\n")
	api.Run("nodes", "--rollout", "standing", "-o", "wide").WantOutput(t, "PROBLEMS WHY\n", "ConfigOK is not True NotHealthy: it was not healthy for 2m\n")
	failed := fakeapi.Decoded[rows](t, api.Run("nodes", "--rollout", "standing", "--failed", "-o", "json")).Items
	assert.That(t, len(failed) == 1 && failed[0].Name == "standing-b" && failed[0].Why == "NotHealthy: it was not healthy for 2m",
		"failed: %+v", failed)
}

func TestARightThatIsMissingIsNamed(t *testing.T) {
	for _, tt := range []struct{ verb, kind, line, want string }{
		{"list", "NodeConfig", "nodes -l a=b", "list NodeConfigs"},
		{"list", "Node", "nodes -l a=b", "list nodes"},
		{"*", "NodeConfig", "node a", "get NodeConfig a"},
		{"*", "NodeConfigRollout", "node a", "list rollouts"},
	} {
		api := newAPI(t)
		api.AddAgent("a", "seen", nil, nil)
		api.Forbid(tt.verb, tt.kind)
		api.Run(strings.Fields(tt.line)...).WantError(t, tt.want, "forbidden")
	}
}

func TestNodesOfAnInvalidRolloutShowTheReason(t *testing.T) {
	api := newAPI(t)
	api.AddRollout("unplanned", "unplanned", nil, func(r *v1alpha1.NodeConfigRollout) {
		r.Spec.Template = fakeapi.Follow("evenkeel-system", "nowhere")
	})
	api.Run("nodes", "--rollout", "unplanned").Want(t, 0, nil, "rollout unplanned is invalid: spec.template.configMapRef: ConfigMap evenkeel-system/nowhere does not exist")
}

func TestNodesShowANodesOwnConfigMap(t *testing.T) {
	api := newAPI(t)
	own := fakeapi.Add(api, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "evenkeel-system", Name: "kubelet-owner-a"}, Data: map[string]string{"kubelet": fakeapi.Header}})
	api.AddAgent("owner-a", "owner", nil, func(st *v1alpha1.NodeConfigStatus) {
		st.RemoteConfig, st.Active, st.Assigned = v1alpha1.RemoteConfigConfigMap, fakeapi.Runs(own), fakeapi.Runs(own)
	})
	api.AddAgent("owner-b", "owner", nil, func(st *v1alpha1.NodeConfigStatus) { st.RemoteConfig = v1alpha1.RemoteConfigConfigMap })
	api.Run("nodes", "-l", "pool=owner", "-o", "wide").WantOutput(t,
		"owner-a Healthy kubelet-owner-a kubelet-owner-a local True/AllChecksPassed", "ConfigMap Host", "owner-b Healthy local local local", "ConfigMap Host")
	api.Run("node", "owner-a").WantOutput(t, "Assigned: kubelet-owner-a, not by its NodeConfig\n", "Runs: kubelet-owner-a: ConfigMap evenkeel-system/kubelet-owner-a")
}

func TestNodesNotesDifferentAgentVersions(t *testing.T) {
	api := newAPI(t)
	for i, version := range []string{"v0.2.0", "v0.2.0", "v0.1.0"} {
		name := fmt.Sprintf("versions-%d", i)
		api.AddAgent(name, "versions", nil, func(st *v1alpha1.NodeConfigStatus) { st.AgentVersion = version })
	}

	const want = "note: the version of 1 of 3 agents (v0.1.0) differs from most (v0.2.0): -o wide lists it\n"
	got := api.Run("nodes", "-l", "pool=versions")
	assert.That(t, got.Err == want && got.Code == 0, "got %+v, want %q", got, want)
	got = api.Run("nodes", "-l", "pool=versions", "-o", "json")
	assert.That(t, got.Err == "", "as JSON: %q", got.Err)
	assert.Equal(t, api.Run("node", "versions-2").Err,
		"note: the version of the agent (v0.1.0) differs from the version of this program (v0.0.0-test)\n")
	api.AddAgent("same-version", "same-version", nil, func(st *v1alpha1.NodeConfigStatus) { st.AgentVersion = "v0.0.0-test" })
	got = api.Run("node", "same-version")
	assert.That(t, got.Err == "", "of the same version: %q", got.Err)
}

func TestNodesShowsVersionsAndRunMode(t *testing.T) {
	api := newAPI(t)
	for name, mode := range map[string]v1alpha1.RunMode{
		"kinds-a": v1alpha1.RunModeSelfHosted, "kinds-b": v1alpha1.RunModeBootstrap, "kinds-c": v1alpha1.RunModeHost,
	} {
		api.AddAgent(name, "kinds", nil, func(st *v1alpha1.NodeConfigStatus) {
			if st.RunMode = mode; mode == v1alpha1.RunModeSelfHosted {
				st.ComponentVersion = "v1.37.0" // newer than what the Node says
			}
		})
	}

	api.AddNode("kinds-d", "kinds", "z1") // without an agent
	wide := api.Run("nodes", "-l", "pool=kinds", "-o", "wide")
	wide.WantOutput(t, "ZONE KUBELET AGENT SOURCE RUN-MODE PROBLEMS\n", "z1 v1.37.0 v0.1.0 NodeConfig SelfHosted -\n",
		"z1 v1.36.3 v0.1.0 NodeConfig Bootstrap -\n", "z1 v1.36.3 v0.1.0 NodeConfig Host -\n")
	const want = "note: the bootstrap kubelet still runs on 1 of 3 nodes: -o wide lists the run mode\n"
	got := api.Run("nodes", "-l", "pool=kinds")
	assert.That(t, got.Err == want && wide.Err == want, "the notes are %q and %q, want %q", got.Err, wide.Err, want)

	got = api.Run("nodes", "-l", "pool=kinds", "-o", "json")
	list := fakeapi.Decoded[rows](t, got).Items
	assert.Must(t, len(list) == 4 && got.Err == "", "as JSON: %+v", got)
	row := list[0]
	assert.That(t, row.RunMode == "SelfHosted" && row.ComponentVersion == "v1.37.0" && row.AgentVersion == "v0.1.0", "as JSON: %+v", row)
	api.Run("node", "kinds-a").WantOutput(t, "Agent: v0.1.0, kubelet v1.37.0, source NodeConfig, run mode SelfHosted: in a pod\n")
	api.Run("node", "kinds-b").WantOutput(t, "Agent: v0.1.0, kubelet v1.36.3, source NodeConfig, run mode Bootstrap: on the host, until a self-hosted kubelet takes over\n")
}

func TestWhoMayNotListNodesSeesTheSameHealth(t *testing.T) {
	api := newAPI(t)
	bad := api.AddRevision("fewer-rights", 1, "maxPods: 7\n")
	api.AddAgent("a", "fewer", fakeapi.ByRollout("fewer-rights", 1, bad, nil),
		fakeapi.Failed(v1alpha1.ReasonCrashLooped, "the kubelet exited 4 times"))
	api.AddAgent("b", "fewer", nil, nil)
	healths := func() (out []describe.Standing, notes string) {
		r := api.Run("nodes", "-o", "json")
		for _, row := range fakeapi.Decoded[rows](t, r).Items {
			out = append(out, row.Standing)
		}

		return out, r.Err
	}
	all, _ := healths()
	api.Forbid("*", "Node")
	fewer, notes := healths()
	assert.That(t, len(all) == 2 && all[0].Health == describe.HealthFailed && all[1].Health == describe.HealthHealthy,
		"an administrator sees %+v", all)
	assert.NoDiff(t, cmp.Diff(all, fewer), "a viewer sees something else")
	assert.That(t, strings.Contains(notes, "note: you are not allowed to list Nodes"), "the notes are %s", notes)
	got := api.Run("node", "a")
	got.WantOutput(t, "Health: Failed\n", "ConfigOK: False, CrashLooped", "what rollouts do with the node is not known: you are not allowed to read Nodes")
	assert.That(t, !strings.Contains(got.Out, "does not exist"), "the Node that may not be read is said not to exist: %s", got.Out)
	api.Run("node", "nowhere").WantError(t, "get node nowhere", "forbidden")
}

func TestNodesAreListedInNaturalOrder(t *testing.T) {
	api := newAPI(t)
	for _, name := range []string{"w-10", "w-2", "w-1", "w-100"} {
		api.AddNode(name, "x", "z1")
	}

	got := api.Run("nodes", "-o", "name")
	assert.Equal(t, got.Out, "node/w-1\nnode/w-2\nnode/w-10\nnode/w-100\n")
	api.Run("nodes").WantOutput(t, "w-1 ", "w-2 ", "w-10 ", "w-100 ")
}

// Dead nodes do not pass as healthy, and nodes that an autoscaler removed leave
// the fleet at once.
func TestNodesThatAreDownOrGoneAreNotHealthy(t *testing.T) {
	api := newAPI(t)
	api.AddNode("fine", "x", "z1")
	down := api.AddNodeOf(time.Hour, "down", "x", "z1")
	down.Status.Conditions[0].Status = corev1.ConditionUnknown
	api.Report(down)
	for _, name := range []string{"fine", "down", "removed-1", "removed-2"} {
		api.AddNodeConfig(name, nil, nil)
	}

	got := api.Run("nodes")
	got.Want(t, 0, []string{"down NotReady local", "fine Healthy local"}, "note: 1 node not Ready, 2 NodeConfigs have no Node")
	assert.That(t, !strings.Contains(got.Out, "removed"), "nodes that are gone are listed: %s", got.Out)
	got = api.Run("nodes", "-o", "name", "--problems")
	assert.That(t, got.Out == "node/down\n" && got.Err == "", "problems: %+v", got)
	// Maintenance is what the controller's flags say.
	settings := fleet.DefaultSettings
	settings.Maintenance = []string{"example.com/repair"}
	api.AddRollout("x", "x", nil, func(r *v1alpha1.NodeConfigRollout) { r.Status.Controller = &settings })
	api.Read(down)
	down.Spec.Taints = []corev1.Taint{{Key: "example.com/repair", Effect: corev1.TaintEffectNoSchedule}}
	assert.NoError(t, api.Update(t.Context(), down))
	api.Run("nodes").Want(t, 0, nil, "note: 1 node not Ready under maintenance, 2 NodeConfigs have no Node")
}
