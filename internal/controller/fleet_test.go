// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

// What keeps a controller from acting on what is no longer so.

func config(version string, generation int64, uid string) *v1alpha1.NodeConfig {
	nc := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: version, Generation: generation}}
	if uid != "" {
		nc.Spec.ConfigSource = &v1alpha1.NodeConfigSource{
			ConfigMapRef: &v1alpha1.ConfigMapReference{Namespace: "s", Name: "c", UID: "cm"},
			RolloutRef:   &v1alpha1.RolloutReference{Name: "r", Revision: 1},
		}
	}

	return nc
}

func TestALateWatchDoesNotUndoAWrite(t *testing.T) {
	f := newCache("", time.Second)
	f.setNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	f.setConfig(config("10", 1, ""))
	api := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(_ context.Context, _ client.WithWatch, answer client.Object, _ client.Patch, _ ...client.PatchOption) error {
			*answer.(*v1alpha1.NodeConfig) = *config("20", 2, "cm")
			return nil
		},
	}).Build()
	c := &Controller{client: api, fleet: f, metrics: assert.Value(newMeters(prometheus.NewRegistry(), "v", "c"))(t)}
	planned := f.nodes["n"].observed
	assert.NoError(t, c.moveNode(t.Context(), &planned, rollout.Move{Kind: rollout.Assign}, nil))
	f.setConfig(config("15", 1, "")) // what the watch tells later
	m := f.nodes["n"]
	assert.That(t, m.observed.Generation == 2 && m.observed.Source.Content().UID == "cm", "the node is seen as %+v", m.observed)
	again := config("30", 1, "")
	again.UID = "v"
	f.setConfig(again)
	f.deleteConfig("n", "u") // the old one's end is told late
	m = f.nodes["n"]
	assert.That(t, m.observed.HasConfig && m.observed.Generation == 1, "the node is seen as %+v", m.observed)
	f.deleteConfig("n", "v")
	f.deleteNode("n")
	assert.That(t, len(f.nodes) == 0, "of a node without anything, this is kept: %+v", f.nodes["n"])
}

func TestAnOlderRolloutOrRevisionIsIgnored(t *testing.T) {
	f := newCache("", time.Second)
	all := func(version string, generation int64) *v1alpha1.NodeConfigRollout {
		return &v1alpha1.NodeConfigRollout{
			ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "u", ResourceVersion: version, Generation: generation},
			Spec:       v1alpha1.NodeConfigRolloutSpec{NodeSelection: v1alpha1.NodeSelection{AllNodes: true}},
		}
	}
	f.setRollout(all("20", 2))
	f.setRollout(all("10", 1))
	assert.Equal(t, f.rollouts["r"].object.Generation, 2, "the generation of the rollout")
	cm := func(version, number string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "c", ResourceVersion: version, Labels: map[string]string{v1alpha1.LabelRollout: "r", v1alpha1.LabelRevision: number}}}
	}
	f.setRevision(cm("21", "3"))
	f.setRevision(cm("11", "1"))
	assert.Equal(t, fleet.NumberOf(f.revisions["r"]["c"]), 3, "the revision")
	leaving := all("30", 3)
	leaving.DeletionTimestamp = new(metav1.Now())
	f.setRollout(leaving)
	assert.That(t, len(f.rollouts) == 0 && len(f.deleted) == 1, "a rollout that is being deleted is kept")
}

// answering is the configuration of a controller whose requests are answered by
// what f returns, unless that is nil.
func answering(f func(r *http.Request, next http.RoundTripper) (*http.Response, error)) *rest.Config {
	config := own()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return tripper(func(r *http.Request) (*http.Response, error) {
			if response, err := f(r, next); response != nil || err != nil {
				return response, err
			}

			return next.RoundTrip(r)
		})
	})

	return config
}

// atFirstPatch is the configuration of a controller for which something happens
// before its first patch of a NodeConfig. An error of that is what the
// controller gets instead of an answer. All patches are counted.
func atFirstPatch(do func(*http.Request, http.RoundTripper) error) (*rest.Config, *atomic.Int64) {
	patches := &atomic.Int64{}
	config := answering(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if r.Method != http.MethodPatch || !strings.Contains(r.URL.Path, "/nodeconfigs/") || patches.Add(1) > 1 {
			return nil, nil
		}

		return nil, do(r, next)
	})

	return config, patches
}

func TestAWriteWithUnknownOutcomeIsReadBeforeTheNextPlan(t *testing.T) {
	world(t)
	names := []string{"q1", "q2", "q3"}
	addNodes(t, "pool=unknown", names...)
	config, patches := atFirstPatch(func(r *http.Request, next http.RoundTripper) error {
		if response, err := next.RoundTrip(r); err == nil {
			response.Body.Close()
		}

		return errors.New("the connection was lost") // after it took effect
	})
	reported(t, names...)
	c := start(t, config)
	roll(t, "unknown", oneAtATime)
	awaitRollout(t, "unknown", func(st status) error { return assert.Unless(st.Nodes.Assigned == 1, "want one node in flight") })
	eventually(t, func() error { return idle(c) })
	given := 0
	for _, name := range names {
		if nodeConfig(t, name).Spec.ConfigSource != nil {
			given++
		}
	}

	assert.That(t, given == 1 && patches.Load() == 1, "%d nodes have it after %d writes, of a budget of 1", given, patches.Load())
	agents(t, nil, names...)
	awaitRollout(t, "unknown", completeAt(1))
}

func TestASpecChangedBySomeoneElseIsNotOverwritten(t *testing.T) {
	world(t)
	addNodes(t, "pool=conflict", "v1")
	reported(t, "v1")
	config, _ := atFirstPatch(func(*http.Request, http.RoundTripper) error {
		nc := nodeConfig(t, "v1")
		nc.Spec.ConfigSource = &v1alpha1.NodeConfigSource{Local: &v1alpha1.LocalSource{}}
		return admin.Update(t.Context(), nc)
	})
	start(t, config)
	roll(t, "conflict")
	r := awaitRollout(t, "conflict", phase(v1alpha1.RolloutNoNodes))
	s := nodeConfig(t, "v1").Spec.ConfigSource
	assert.That(t, s != nil && s.Local != nil && r.Status.Nodes.Manual == 1, "the node has %+v, the status says %+v", s, r.Status.Nodes)
	assert.That(t, told(t, "conflict", "could not") != nil, "a conflict is nothing to tell")
}

func TestAStatusWriteOfAnAgentIsNoConflict(t *testing.T) {
	world(t)
	addNodes(t, "pool=busy", "y1")
	reported(t, "y1")
	config, patches := atFirstPatch(func(*http.Request, http.RoundTripper) error { return answer(t.Context(), nodeConfig(t, "y1"), false) })
	start(t, config)
	roll(t, "busy")
	awaitRollout(t, "busy", func(st status) error { return assert.Unless(st.Nodes.Assigned == 1, "nothing is assigned") })
	assert.Equal(t, patches.Load(), 1, "writes")
}

func TestRefusedReportsWhetherAWriteFailed(t *testing.T) {
	for _, test := range []struct {
		err  error
		want bool
	}{
		{apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("nodeconfigs").GroupResource(), "n", nil), true},
		{apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("nodeconfigs").GroupResource(), "n", nil), true},
		{apierrors.NewTooManyRequests("", 1), true},
		{apierrors.NewInternalError(errors.New("etcd")), false},
		{apierrors.NewTimeoutError("", 1), false},
		{errors.New("unexpected EOF"), false},
	} {
		assert.Equal(t, refused(test.err), test.want, test.err, "certainly refused")
	}
}

// A node that went back to its local configuration has none of the rollout's
// revisions.
func TestADeletedRolloutSaysWhatItsNodesRun(t *testing.T) {
	f, o := newCache("", time.Second), everywhere()
	f.setRollout(o)
	back := &v1alpha1.NodeConfigSource{Local: &v1alpha1.LocalSource{}, RolloutRef: &v1alpha1.RolloutReference{Name: "r", Revision: 2}}
	for i, source := range []*v1alpha1.NodeConfigSource{assignedBy(then), assignedBy(then), assignedBy(then), back, back, nil} {
		node, nc := proven(fmt.Sprint("n", i), source, "")
		if i >= 3 {
			nc.Status.Active = nil
		}

		f.setNode(node)
		f.setConfig(nc)
	}

	f.deleteRollout(o)
	deleted, run := f.takeDeleted()
	assert.That(t, len(deleted) == 1 && len(run) == 1 && run[0] == "3 on revision 1, 2 on the local configuration", "it says %q about %d rollouts", run, len(deleted))
}

// A fleet is as large as what is kept of each node: it is thousands of times in
// memory.
func TestStrippedNodesAreSmall(t *testing.T) {
	const nodes, most = 1000, 4400
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	cm, before := fakeapi.Revision(t, "workers", 2, template(101)), fakeapi.Revision(t, "workers", 1, template(100))
	cm.UID, before.UID = "7f1d2c3b-0000-4000-8000-0123456789ab", "7f1d2c3b-0000-4000-8000-ba9876543210"
	config := v1alpha1.NodeConfig{Spec: v1alpha1.NodeConfigSpec{ConfigSource: fakeapi.ByRollout("workers", 2, cm, before)}}
	config.Status = v1alpha1.NodeConfigStatus{
		ObservedGeneration: 2, Assigned: fakeapi.Runs(cm), Active: fakeapi.Runs(cm), LastKnownGood: fakeapi.Proven(cm),
		AgentVersion: "v0.1.0", ComponentVersion: "v1.36.3",
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionConfigOK, Status: metav1.ConditionTrue, Reason: "AllChecksPassed", LastTransitionTime: now,
			Message: "using current (UID: " + string(cm.UID) + "): all checks passed",
		}},
	}
	config.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "evenkeel-agent", FieldsV1: metav1.NewFieldsV1(`"` + strings.Repeat("x", 2000) + `"`)}}
	node := corev1.Node{Status: corev1.NodeStatus{Images: []corev1.ContainerImage{{Names: []string{strings.Repeat("x", 5000)}}}}}
	node.Labels = map[string]string{"pool": "workers", corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux", corev1.LabelTopologyZone: "zone-1"}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: now, Message: "kubelet is posting ready status"}}
	node.Status.NodeInfo = corev1.NodeSystemInfo{KubeletVersion: "v1.36.3", Architecture: "amd64", OperatingSystem: "linux", OSImage: "A Distribution"}

	f := newCache("", time.Second)
	size := func() int64 {
		runtime.GC()
		runtime.GC() // frees what pools kept until the first one
		var m runtime.MemStats
		runtime.ReadMemStats(&m)

		return int64(m.HeapAlloc)
	}
	empty := size()
	for i := range nodes {
		name := fmt.Sprintf("node-%06d.example.com", i)
		n, nc := received(t, node), received(t, config)
		n.Name, nc.Name, nc.UID = name, name, types.UID(fmt.Sprint("uid-", i))
		f.setNode(n)
		f.setConfig(nc)
	}

	each := (size() - empty) / nodes
	t.Logf("%d bytes for each node", each)
	assert.That(t, each <= most, "%d bytes are kept of each node, want at most %d", each, most)
	runtime.KeepAlive(f)
}

// received is an object as a watch would have it: it shares nothing with others.
func received[T any](t *testing.T, from T) *T {
	t.Helper()
	data := assert.Value(json.Marshal(from))(t)
	into := new(T)
	assert.NoError(t, json.Unmarshal(data, into))

	return into
}

// While agents answer a preflight, a step is made five times a second, and each
// looks at every node.
func TestAStepOfAPreflightUsesTheMemoryOfTheLastOne(t *testing.T) {
	const nodes = 1000
	f := newCache("", time.Second)
	ref := v1alpha1.ConfigMapReference{Namespace: "evenkeel-system", Name: "preflight", UID: "cm", SHA256: strings.Repeat("0123456789abcdef", 4)}
	asked := assert.Value(json.Marshal(v1alpha1.PreflightRequest{UID: "asks", ConfigMapRef: ref, Time: metav1.Now()}))(t)
	for i := range nodes {
		meta := metav1.ObjectMeta{Name: fmt.Sprintf("node-%06d.example.com", i), Annotations: map[string]string{v1alpha1.AnnotationPreflight: string(asked)}}
		f.setNode(&corev1.Node{ObjectMeta: meta})
		f.setConfig(&v1alpha1.NodeConfig{ObjectMeta: meta, Status: v1alpha1.NodeConfigStatus{AgentVersion: "v0.1.0"}})
	}

	o := &v1alpha1.NodeConfigPreflight{ObjectMeta: metav1.ObjectMeta{Name: "asks", UID: "asks"}}
	o.Spec.AllNodes, o.Spec.Template.KubeletDropIn = true, template(101).KubeletDropIn
	o.Status.Phase, o.Status.ConfigMapRef = v1alpha1.PreflightAsking, &ref
	o.Status.Result = &v1alpha1.PreflightResult{StartTime: metav1.Now()}
	c := &Controller{fleet: f, settings: v1alpha1.RolloutController{AgentTimeout: metav1.Duration{Duration: time.Hour}}, preflightWritten: time.Now().Add(time.Hour)}
	step := func() uint64 {
		t.Helper()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		assert.NoError(t, assert.Err(c.stepPreflight(t.Context(), o)))
		runtime.ReadMemStats(&after)
		assert.Must(t, len(c.nodes) == nodes, "%d nodes are looked at, want %d", len(c.nodes), nodes)

		return after.TotalAlloc - before.TotalAlloc
	}
	step()
	all := nodes * uint64(unsafe.Sizeof(rollout.Node{}))
	again := step()
	assert.That(t, again <= all/4, "another step allocates %d bytes; the nodes alone have %d", again, all)
}
