// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// A fleet is as large as what is kept of each node: it is thousands of times in
// memory.
func TestStrippedNodesAreSmall(t *testing.T) {
	const nodes, most = 1000, 4400
	ref := v1alpha1.ConfigMapReference{Namespace: "evenkeel-system", Name: "workers-0123456789ab", UID: "7f1d2c3b-0000-4000-8000-0123456789ab", SHA256: strings.Repeat("0123456789abcdef", 4)}
	before := v1alpha1.ConfigMapReference{Namespace: "evenkeel-system", Name: "workers-ba9876543210", UID: "7f1d2c3b-0000-4000-8000-ba9876543210", SHA256: strings.Repeat("fedcba9876543210", 4)}
	runs := v1alpha1.ConfigRevision{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID, SHA256: ref.SHA256}
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	config := v1alpha1.NodeConfig{
		Spec: v1alpha1.NodeConfigSpec{ConfigSource: &v1alpha1.NodeConfigSource{ConfigMapRef: &ref, RolloutRef: &v1alpha1.RolloutReference{
			Name: "workers", Revision: 2, Attempt: 1, AssignedAt: now,
			Previous: &v1alpha1.PreviousSource{ConfigMapRef: before, Rollout: "workers", Revision: 1, Attempt: 1},
		}}},
	}
	config.Status = v1alpha1.NodeConfigStatus{
		ObservedGeneration: 2, Assigned: &runs,
		Active: &runs, LastKnownGood: &v1alpha1.LastKnownGoodConfig{ConfigRevision: runs, Since: &now},
		AgentVersion: "v0.1.0", ComponentVersion: "v1.36.3",
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionConfigOK, Status: metav1.ConditionTrue, Reason: "AllChecksPassed", LastTransitionTime: now,
			Message: "using current (UID: " + string(ref.UID) + "): all checks passed",
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
		n, nc := read(t, node), read(t, config)
		n.Name, nc.Name, nc.UID = name, name, types.UID(fmt.Sprint("uid-", i))
		fleet.StripNode(n)
		fleet.StripNodeConfig(nc)
		f.setNode(n)
		f.setConfig(nc)
	}

	each := (size() - empty) / nodes
	t.Logf("%d bytes for each node", each)
	assert.That(t, each <= most, "%d bytes are kept of each node, want at most %d", each, most)
	runtime.KeepAlive(f)
}

// read is an object as a watch would have it: it shares nothing with others.
func read[T any](t *testing.T, from T) *T {
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
