package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/describe"
	"github.com/evenkeel/evenkeel/internal/fleet/query"
)

func TestNodesListsConfigurations(t *testing.T) {
	const pool = "table"
	old, current := createRevision(t, "table", 1, "maxPods: 110\n"), createRevision(t, "table", 2, "maxPods: 120\n")
	manual := createRevision(t, "by-hand", 1, "maxPods: 130\n")
	for _, name := range []string{"table-a", "table-b", "table-c", "table-d", "table-e"} {
		createNode(t, name, pool, "z1")
	}
	start := metav1.NewTime(time.Now().Add(-3*time.Minute - 12*time.Second))
	createNodeConfig(t, "table-a", byRollout("table", 2, current, old), func(st *v1alpha1.NodeConfigStatus) {
		st.Active, st.LastKnownGood = runs(current), proven(old)
		st.Trial = &v1alpha1.Trial{StartTime: &start, HealthySeconds: 180, DurationSeconds: 600, CrashLoopThreshold: 3}
	})
	createNodeConfig(t, "table-b", byPerson(manual), func(st *v1alpha1.NodeConfigStatus) {
		st.Active, st.LastKnownGood = runs(old), proven(old)
		failing(st, v1alpha1.ReasonCrashLooped, "the kubelet exited 4 times")
	})
	createNodeConfig(t, "table-d", nil, nil)
	create(t, &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "table-e"}})

	got := evenkeel(t, "nodes", "-l", "pool="+pool)
	got.wantOutput(t,
		"NAME HEALTH ASSIGNED ACTIVE LAST-KNOWN-GOOD CONFIGOK TRIAL SINCE\n",
		"table-a OnTrial table/2 table/2 table/1 True/AllChecksPassed 3m1",
		"s/10m 120m\n",
		"table-b Failed "+manual.Name+" "+old.Name+" "+old.Name+" False/CrashLooped - 120m\n",
		"table-c Unknown - - - no agent yet - -\n",
		"table-d Healthy local local local True/AllChecksPassed - 120m\n",
		"table-e Unknown local - - no agent yet - -\n",
	)
	evenkeel(t, "nodes", "-l", "pool="+pool, "-o", "wide").wantOutput(t,
		"ZONE KUBELET AGENT SOURCE RUN-MODE PROBLEMS\n", "table-b", "z1 v1.36.3 v0.1.0 NodeConfig Host ConfigOK is not True\n",
		"table-c", "z1 v1.36.3 - - - no agent yet: no NodeConfig\n")
	if got := evenkeel(t, "nodes", "-l", "pool="+pool, "-o", "name", "--failed"); got.out != "node/table-b\n" {
		t.Errorf("failed: %+v", got)
	}
	if got := evenkeel(t, "nodes", "-l", "pool="+pool, "-o", "name", "--problems"); got.out != "node/table-b\nnode/table-c\nnode/table-e\n" {
		t.Errorf("problems: %+v", got)
	}
	evenkeel(t, "nodes", "-l", "pool="+pool, "-o", "yaml", "--failed").wantOutput(t,
		"items:\n- active: "+old.Name, "configOK:", "reason: CrashLooped", "name: table-b")
	if got := evenkeel(t, "nodes", "-l", "pool=nobody"); got.code != 0 || got.out != "" || got.err != "No nodes found\n" {
		t.Errorf("no nodes: %+v", got)
	}
}

func TestNodesOfARolloutShowTheirState(t *testing.T) {
	const pool = "standing"
	rev := createRevision(t, "standing", 1, "maxPods: 110\n")
	createRollout(t, "standing", pool, pods(110), func(r *v1alpha1.NodeConfigRollout) {
		r.Spec.Template = v1alpha1.RolloutTemplate{ConfigMapRef: &v1alpha1.TemplateConfigMap{Namespace: rev.Namespace, Name: rev.Name}}
		r.Status.UpdateRevision = &v1alpha1.RolloutRevision{Number: 1, ConfigMapRef: refTo(rev)}
		r.Status.Attempt = 1
	})
	for _, name := range []string{"standing-a", "standing-b", "standing-c"} {
		createNode(t, name, pool, "z1")
	}
	createNode(t, "unselected", "another", "z1")
	createNodeConfig(t, "standing-a", byRollout("standing", 1, rev, nil), func(st *v1alpha1.NodeConfigStatus) {
		st.Active, st.LastKnownGood = runs(rev), proven(rev)
	})
	createNodeConfig(t, "standing-b", byRollout("standing", 1, rev, nil), func(st *v1alpha1.NodeConfigStatus) {
		failing(st, v1alpha1.ReasonNotHealthy, "it was not healthy for 2m")
	})
	evenkeel(t, "nodes", "--rollout", "standing").wantOutput(t,
		"NAME HEALTH ASSIGNED ACTIVE LAST-KNOWN-GOOD CONFIGOK TRIAL SINCE POSITION\n",
		"standing-a Healthy standing/1 standing/1 standing/1 True/AllChecksPassed - 120m Updated\n",
		"standing-b Failed standing/1 local local False/NotHealthy - 120m Blocked/Failed\n",
		"standing-c Unknown - - - no agent yet - - Skipped/Stale\n")
	evenkeel(t, "nodes", "--rollout", "standing", "-o", "wide").wantOutput(t, "PROBLEMS WHY\n", "ConfigOK is not True NotHealthy: it was not healthy for 2m\n")
	var list struct{ Items []describe.Row }
	got := evenkeel(t, "nodes", "--rollout", "standing", "--failed", "-o", "json")
	if err := json.Unmarshal([]byte(got.out), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Name != "standing-b" || list.Items[0].Why != "NotHealthy: it was not healthy for 2m" {
		t.Errorf("failed: %s", got.out)
	}
}

func TestNodesJoinsPagesOfNodesAndNodeConfigs(t *testing.T) {
	const pool = "many"
	for i := range query.PageSize + 5 {
		name := fmt.Sprintf("many-%04d", i)
		create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": pool}}})
		if i%2 == 0 {
			create(t, &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		create(t, &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: name + "-gone"}})
	}
	got := evenkeel(t, "nodes", "-l", "pool="+pool)
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	if len(lines) != query.PageSize+6 {
		t.Fatalf("%d lines, exit %d: %s", len(lines), got.code, got.err)
	}
	for i, line := range lines[1:] {
		want := fmt.Sprintf("many-%04d Unknown - - - no agent yet - -", i)
		if i%2 == 0 {
			want = fmt.Sprintf("many-%04d Unknown local - - no agent yet - -", i)
		}
		if squeezeSpaces(line) != want {
			t.Fatalf("line %d: got %q, want %q", i, squeezeSpaces(line), want)
		}
	}
	for failing := 1; failing <= 4; failing++ { // two pages of each
		c, err := &failingList{Client: admin, left: failing}, error(nil)
		for _, e := range query.Pairs(t.Context(), c, labels.SelectorFromSet(labels.Set{"pool": pool})) {
			err = e
		}
		if !errors.Is(err, errList) {
			t.Errorf("list %d fails, but not all: %v", failing, err)
		}
	}
	all := evenkeel(t, "nodes", "-o", "name")
	if n := strings.Count(all.out, "-gone\n"); n != query.PageSize+5 {
		t.Errorf("%d NodeConfigs without a Node are shown, want %d", n, query.PageSize+5)
	}
}

func TestNodesErrors(t *testing.T) {
	evenkeel(t, "nodes", "-l", "a in (").wantError(t, `--selector "a in ("`)
	evenkeel(t, "nodes", "-o", "xml").wantError(t, `xml`)
	evenkeel(t, "nodes", "--rollout", "nowhere").wantError(t, `"nowhere"`)
	evenkeel(t, "nodes", "--failed", "--problems").wantError(t, "failed", "problems")
	evenkeelAs(t, userOf(t, "nobody"), "nodes").wantError(t, "list NodeConfigs", "forbidden")
	evenkeelAs(t, userOf(t, "nobody"), "nodes", "-l", "a=b").wantError(t, "list nodes", "forbidden")
	grant(t, "sees-nodes", "nodes", "")
	evenkeelAs(t, userOf(t, "sees-nodes"), "nodes").wantError(t, "list NodeConfigs", "forbidden")
}

var errList = errors.New("the list fails")

// failingList fails one list.
type failingList struct {
	client.Client
	left int // lists until then
}

func (f *failingList) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if f.left--; f.left == 0 {
		return errList
	}
	return f.Client.List(ctx, list, options...)
}

func TestNodesOfAnInvalidRolloutShowTheReason(t *testing.T) {
	createRollout(t, "unplanned", "unplanned", "", func(r *v1alpha1.NodeConfigRollout) {
		r.Spec.Template = v1alpha1.RolloutTemplate{ConfigMapRef: &v1alpha1.TemplateConfigMap{Namespace: "evenkeel-system", Name: "nowhere"}}
	})
	evenkeel(t, "nodes", "--rollout", "unplanned").wantExit(t, 0, nil, "rollout unplanned is invalid: spec.template.configMapRef: ConfigMap evenkeel-system/nowhere does not exist")
}

func TestNodesShowANodesOwnConfigMap(t *testing.T) {
	own := create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "evenkeel-system", Name: "kubelet-owner-a"}, Data: map[string]string{"kubelet": header}})
	createNode(t, "owner-a", "owner", "z1")
	createNode(t, "owner-b", "owner", "z1")
	createNodeConfig(t, "owner-a", nil, func(st *v1alpha1.NodeConfigStatus) {
		st.RemoteConfig, st.Active, st.Assigned = v1alpha1.RemoteConfigConfigMap, runs(own), &v1alpha1.AssignedConfig{ConfigRevision: *runs(own)}
	})
	createNodeConfig(t, "owner-b", nil, func(st *v1alpha1.NodeConfigStatus) { st.RemoteConfig = v1alpha1.RemoteConfigConfigMap })
	evenkeel(t, "nodes", "-l", "pool=owner", "-o", "wide").wantOutput(t,
		"owner-a Healthy kubelet-owner-a kubelet-owner-a local True/AllChecksPassed", "ConfigMap Host", "owner-b Healthy local local local", "ConfigMap Host")
	evenkeel(t, "node", "owner-a").wantOutput(t, "Assigned: kubelet-owner-a, not by its NodeConfig\n", "Runs: kubelet-owner-a: ConfigMap evenkeel-system/kubelet-owner-a")
}

func TestNodesNotesDifferentAgentVersions(t *testing.T) {
	for i, version := range []string{"v0.2.0", "v0.2.0", "v0.1.0"} {
		name := fmt.Sprintf("versions-%d", i)
		createNode(t, name, "versions", "z1")
		createNodeConfig(t, name, nil, func(st *v1alpha1.NodeConfigStatus) { st.AgentVersion = version })
	}
	const want = "note: the version of 1 of 3 agents (v0.1.0) differs from most (v0.2.0): -o wide lists it\n"
	if got := evenkeel(t, "nodes", "-l", "pool=versions"); got.err != want || got.code != 0 {
		t.Errorf("got %+v, want %q", got, want)
	}
	if got := evenkeel(t, "nodes", "-l", "pool=versions", "-o", "json"); got.err != "" {
		t.Errorf("as JSON: %q", got.err)
	}
	if got := evenkeel(t, "node", "versions-2"); got.err != "note: the version of the agent (v0.1.0) differs from the version of this program (v0.0.0-test)\n" {
		t.Errorf("of one node: %q", got.err)
	}
	createNode(t, "same-version", "same-version", "z1")
	createNodeConfig(t, "same-version", nil, func(st *v1alpha1.NodeConfigStatus) { st.AgentVersion = "v0.0.0-test" })
	if got := evenkeel(t, "node", "same-version"); got.err != "" {
		t.Errorf("of the same version: %q", got.err)
	}
}

func TestNodesShowsVersionsAndRunMode(t *testing.T) {
	for name, mode := range map[string]v1alpha1.RunMode{
		"kinds-a": v1alpha1.RunModeSelfHosted, "kinds-b": v1alpha1.RunModeBootstrap, "kinds-c": v1alpha1.RunModeHost,
	} {
		createNode(t, name, "kinds", "z1")
		createNodeConfig(t, name, nil, func(st *v1alpha1.NodeConfigStatus) {
			if st.RunMode = mode; mode == v1alpha1.RunModeSelfHosted {
				st.ComponentVersion = "v1.37.0" // newer than what the Node says
			}
		})
	}
	createNode(t, "kinds-d", "kinds", "z1") // without an agent
	wide := evenkeel(t, "nodes", "-l", "pool=kinds", "-o", "wide")
	wide.wantOutput(t, "ZONE KUBELET AGENT SOURCE RUN-MODE PROBLEMS\n", "z1 v1.37.0 v0.1.0 NodeConfig SelfHosted -\n",
		"z1 v1.36.3 v0.1.0 NodeConfig Bootstrap -\n", "z1 v1.36.3 v0.1.0 NodeConfig Host -\n")
	const want = "note: the bootstrap kubelet still runs on 1 of 3 nodes: -o wide lists the run mode\n"
	if got := evenkeel(t, "nodes", "-l", "pool=kinds"); got.err != want || wide.err != want {
		t.Errorf("the notes are %q and %q, want %q", got.err, wide.err, want)
	}
	got := evenkeel(t, "nodes", "-l", "pool=kinds", "-o", "json")
	var list struct{ Items []describe.Row }
	if err := json.Unmarshal([]byte(got.out), &list); err != nil || len(list.Items) != 4 || got.err != "" {
		t.Fatalf("as JSON: %+v, %v", got, err)
	}
	if row := list.Items[0]; row.RunMode != "SelfHosted" || row.ComponentVersion != "v1.37.0" || row.AgentVersion != "v0.1.0" {
		t.Errorf("as JSON: %+v", row)
	}
	evenkeel(t, "node", "kinds-a").wantOutput(t, "Agent: v0.1.0, kubelet v1.37.0, source NodeConfig, run mode SelfHosted: in a pod\n")
	evenkeel(t, "node", "kinds-b").wantOutput(t, "Agent: v0.1.0, kubelet v1.36.3, source NodeConfig, run mode Bootstrap: on the host, until a self-hosted kubelet takes over\n")
}

func TestWhoMayNotListNodesSeesTheSameHealth(t *testing.T) {
	bad := createRevision(t, "fewer-rights", 1, "maxPods: 7\n")
	createNode(t, "fewer-a", "fewer", "z1")
	createNodeConfig(t, "fewer-a", byRollout("fewer-rights", 1, bad, nil), func(st *v1alpha1.NodeConfigStatus) {
		failing(st, v1alpha1.ReasonCrashLooped, "the kubelet exited 4 times")
	})
	createNode(t, "fewer-b", "fewer", "z1")
	createNodeConfig(t, "fewer-b", nil, nil)
	viewer := userOf(t, "fewer-viewer")
	bind(t, "fewer-viewer", "evenkeel-view", "nodeconfigs", v1alpha1.GroupName)

	healths := func(r result) map[string]describe.Standing {
		var list struct{ Items []describe.Row }
		if err := json.Unmarshal([]byte(r.out), &list); err != nil {
			t.Fatalf("%v: %+v", err, r)
		}
		out := map[string]describe.Standing{}
		for _, row := range list.Items {
			if strings.HasPrefix(row.Name, "fewer-") {
				out[row.Name] = row.Standing
			}
		}
		return out
	}
	seen := evenkeelAs(t, viewer, "nodes", "-o", "json")
	all, fewer := healths(evenkeel(t, "nodes", "-o", "json")), healths(seen)
	if len(all) != 2 || all["fewer-a"].Health != describe.HealthFailed || all["fewer-b"].Health != describe.HealthHealthy {
		t.Errorf("an administrator sees %+v", all)
	}
	if diff := cmp.Diff(all, fewer); diff != "" {
		t.Errorf("a viewer sees something else: %s", diff)
	}
	if !strings.Contains(seen.err, "note: you are not allowed to list Nodes") {
		t.Errorf("stderr: %s", seen.err)
	}
	got := evenkeelAs(t, viewer, "node", "fewer-a")
	got.wantOutput(t, "Health: Failed\n", "ConfigOK: False, CrashLooped", "what rollouts do with the node is not known: you are not allowed to read Nodes")
	if strings.Contains(got.out, "does not exist") {
		t.Errorf("the Node that may not be read is said not to exist: %s", got.out)
	}
	evenkeelAs(t, viewer, "node", "fewer-nowhere").wantError(t, "get node fewer-nowhere", "forbidden")
}
