// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// patch merges a body into an object.
func patch(t *testing.T, r request, body any) {
	t.Helper()
	r.verb, r.contentType, r.body = "PATCH", string(types.MergePatchType), body
	asAdmin(t, r)
}

// setStatus merges into the status of a NodeConfig.
func setStatus(t *testing.T, node string, status any) {
	t.Helper()
	patch(t, request{gv: v1alpha1.GroupVersion, resource: "nodeconfigs", name: node, subresource: "status"}, map[string]any{"status": status})
}

func createNode(t *testing.T, name string) {
	t.Helper()
	asAdmin(t, request{verb: "POST", gv: coreV1, resource: "nodes", body: map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name}}})
}

func setConditions(t *testing.T, name string, conditions map[string]string) {
	t.Helper()
	list := []map[string]string{}
	for kind, status := range conditions {
		list = append(list, map[string]string{"type": kind, "status": status})
	}

	setNodeConditions(t, name, list)
}

func setNodeConditions(t *testing.T, name string, conditions any) {
	t.Helper()
	asAdmin(t, request{verb: "PATCH", gv: coreV1, resource: "nodes", name: name, subresource: "status",
		contentType: string(types.StrategicMergePatchType), body: map[string]any{"status": map[string]any{"conditions": conditions}}})
}

func renew(t *testing.T, name, at string) {
	t.Helper()
	lease := map[string]any{"apiVersion": leaseV1.String(), "kind": "Lease", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"holderIdentity": name, "renewTime": at}}
	r := request{verb: "POST", gv: leaseV1, namespace: "kube-node-lease", resource: "leases", body: lease}
	if _, err := admin.do(t.Context(), r, nil); err != nil {
		patch(t, request{gv: leaseV1, namespace: "kube-node-lease", resource: "leases", name: name}, lease)
	}
}

// createPod creates a pod bound to a node.
func createPod(t *testing.T, node, name string) {
	t.Helper()
	asAdmin(t, request{verb: "POST", gv: coreV1, namespace: "default", resource: "pods", body: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": name, "ownerReferences": []any{map[string]any{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "b", "controller": true}}},
		"spec": map[string]any{"nodeName": node, "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
			"containers": []any{map[string]any{"name": "a", "image": "b"}}},
	}})
}

func setPhase(t *testing.T, name, phase, reason string) {
	t.Helper()
	patch(t, request{gv: coreV1, namespace: "default", resource: "pods", name: name, subresource: "status"}, map[string]any{"status": map[string]any{"phase": phase, "reason": reason, "message": "because"}})
}

// unreachable checks that no snapshot can be taken, and why.
func unreachable(t *testing.T, c *Client, node, words string) {
	t.Helper()
	s := c.Snapshot(t.Context(), node)
	assert.That(t, !s.Reachable && strings.Contains(s.Cause, words), "snapshot %+v, want none because of %q", s, words)
}

func TestNodeWatchBetweenStartAndStop(t *testing.T) {
	node := newName("node")
	p := newProxy(t, node)
	c := newClient(t, p.Kubeconfig)
	w := NewNodeWatch(c, node)
	see := func(what string, done func(NodeState) bool) NodeState {
		t.Helper()
		return await(t, what, w.Current, done)
	}
	assert.Equal(t, p.count(), 0, "requests before Start")
	w.Start(t.Context())
	defer w.Stop()
	s := see("an empty cluster", func(s NodeState) bool { return s.Complete })
	assert.That(t, s.Reachable && !s.Exists && s.LeaseRenewed == "" && len(s.Pods) == 0, "no object exists, but the state is %+v", s)

	createNode(t, node)
	see("the node", func(s NodeState) bool { return s.Exists && !s.Ready })
	setConditions(t, node, map[string]string{"Ready": "True", "MemoryPressure": "False", "DiskPressure": "True", "PIDPressure": "True"})
	s = see("its conditions", func(s NodeState) bool { return s.Ready })
	assert.That(t, slices.Equal(s.Pressure, []string{"DiskPressure", "PIDPressure"}) && !s.Unschedulable, "got %+v, want pressure of disk and PIDs", s)
	patch(t, request{gv: coreV1, resource: "nodes", name: node}, map[string]any{"spec": map[string]any{"unschedulable": true}})
	see("the cordon", func(s NodeState) bool { return s.Unschedulable })
	patch(t, request{gv: coreV1, resource: "nodes", name: node}, map[string]any{"metadata": map[string]any{"labels": map[string]any{"zone": "b"}}})
	see("the label", func(s NodeState) bool { return s.Labels["zone"] == "b" })
	setConditions(t, node, map[string]string{"Ready": "Unknown"})
	see("its loss", func(s NodeState) bool { return !s.Ready })

	renew(t, node, "2026-01-02T03:04:05.000001Z")
	see("the lease", func(s NodeState) bool { return s.LeaseRenewed == "2026-01-02T03:04:05.000001Z" })
	w.Start(t.Context())
	renew(t, node, "2026-01-02T03:04:06.000001Z")
	see("the lease again", func(s NodeState) bool { return s.LeaseRenewed == "2026-01-02T03:04:06.000001Z" })

	name := newName("pod")
	createPod(t, node, name)
	s = see("the pod", func(s NodeState) bool { return len(s.Pods) == 1 })
	got := s.Pods[0]
	assert.That(t, got.Name == name && got.Namespace == "default" && got.Phase == "Pending" && got.OwnerKind == "ReplicaSet" && !got.Static && !got.Deleting && got.RestartsAlways && got.UID != "",
		"pod %+v", got)
	setPhase(t, name, "Failed", "Evicted")
	s = see("its eviction", func(s NodeState) bool { return s.Pods[0].Phase == "Failed" })
	got = s.Pods[0]
	assert.That(t, got.Reason == "Evicted" && got.Message == "because", "pod %+v", got)
	once := c.Snapshot(t.Context(), node)
	if !once.Reachable || !once.Complete || !once.Exists || once.Ready || !once.Unschedulable || once.LeaseRenewed != s.LeaseRenewed ||
		!slices.Equal(once.Pods, s.Pods) || !slices.Equal(once.Pressure, s.Pressure) {
		t.Errorf("snapshot %+v, watch %+v", once, s)
	}

	patch(t, request{gv: coreV1, resource: "nodes", name: node}, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"example.com/turn": "now"}}})
	for key, want := range map[string]string{"example.com/turn": "now", "example.com/none": ""} {
		assert.Returns(t, want, "annotation", key)(c.NodeAnnotation(t.Context(), node, key))
	}

	asAdmin(t, request{verb: "DELETE", gv: coreV1, namespace: "default", resource: "pods", name: name})
	see("its end", func(s NodeState) bool { return len(s.Pods) == 0 })
	asAdmin(t, request{verb: "DELETE", gv: coreV1, resource: "nodes", name: node})
	see("the node's end", func(s NodeState) bool { return !s.Exists })

	w.Stop()
	s = w.Current()
	assert.That(t, !s.Complete && !s.Reachable, "the watch is stopped, but its state is %+v", s)
	before := p.count("watch")
	w.Stop()
	w.Start(t.Context())
	see("it to be on again", func(s NodeState) bool { return s.Complete })
	assert.Equal(t, p.count("watch")-before, 2, "watches were opened")
}

func TestNodeWatchKeepsItsStateInAnOutage(t *testing.T) {
	node := newName("node")
	createNode(t, node)
	setConditions(t, node, map[string]string{"Ready": "True"})
	p := newProxy(t, node)
	w := NewNodeWatch(newClient(t, p.Kubeconfig), node)
	w.Start(t.Context())
	defer w.Stop()
	await(t, "the node", w.Current, func(s NodeState) bool { return s.Complete && s.Ready })
	for len(w.Changed()) > 0 {
		<-w.Changed()
	}

	for _, status := range []int{401, 403, 503} {
		p.fail(all(status))
		p.CloseConnections()
		s := await(t, "the failure", w.Current, func(s NodeState) bool { return !s.Reachable })
		assert.That(t, s.Ready && s.Exists && strings.HasPrefix(s.Cause, "the state of node "+node+" cannot be read: "), "state %+v, want the last one and a cause", s)
		select {
		case <-w.Changed():
		case <-time.After(patience):
			t.Error("Changed did not receive")
		}

		p.fail(nil)
		await(t, "the recovery", w.Current, func(s NodeState) bool { return s.Reachable && s.Cause == "" && s.Ready })
	}

	p.fail(all(503))
	unreachable(t, w.client, node, "503")
	p.fail(of("/pods", nonsense))
	unreachable(t, w.client, node, "decode the answer: unable to decode evenkeel.dev/v1alpha1, Kind=NodeConfig into ")
	for part, seen := range map[string]bool{"/leases/": true, "/pods": true, "/nodes/": false} {
		p.fail(of(part, 500))
		s := w.client.Snapshot(t.Context(), node)
		assert.That(t, !s.Reachable && s.Exists == seen, "with a failure of %s the snapshot is %+v", part, s)
	}
}

func TestPodIsProbedIfAContainerOrASidecarIs(t *testing.T) {
	for text, want := range map[string]Pod{
		`{"spec": {"containers": [{"name": "a"}]}}`:                                                                                                                  {},
		`{"spec": {"containers": [{"livenessProbe": {"httpGet": {"port": 1}}}]}}`:                                                                                    {},
		`{"spec": {"containers": [{"name": "a"}, {"readinessProbe": {"httpGet": {"port": 1}}}]}}`:                                                                    {Probed: true},
		`{"spec": {"containers": [{"startupProbe": {"exec": {"command": ["true"]}}}]}}`:                                                                              {Probed: true},
		`{"spec": {"initContainers": [{"restartPolicy": "Always", "startupProbe": {"grpc": {"port": 1}}}]}}`:                                                         {Probed: true},
		`{"spec": {"initContainers": [{"restartPolicy": "Always", "readinessProbe": {"httpGet": {"port": 1}}}]}}`:                                                    {Probed: true},
		`{"status": {"conditions": [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`: {Ready: true},
		`{"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}]}}`:                                          {},
		`{"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}`:                                                                                       {},
	} {
		p := &pod{}
		assert.NoError(t, json.Unmarshal([]byte(text), p))
		want.Waiting = true // no status says that its containers have started
		assert.Equal(t, podOf(p), want, text)
	}
}

func TestPodEndsByItselfOnlyIfItsContainersMay(t *testing.T) {
	const always = `{"apiVersion": "v1", "kind": "Pod", "spec": {"restartPolicy": "Always", %s}}`
	for text, want := range map[string]Pod{
		`"containers": [{"name": "a"}]`:                                                                                                                         {RestartsAlways: true},
		`"containers": [{"restartPolicy": "Always"}]`:                                                                                                           {RestartsAlways: true},
		`"containers": [{"restartPolicy": "Never"}]`:                                                                                                            {},
		`"containers": [{"restartPolicy": "Never"}, {"restartPolicy": "OnFailure"}]`:                                                                            {},
		`"containers": [{"restartPolicy": "Never"}, {"name": "a"}]`:                                                                                             {RestartsAlways: true},
		`"containers": [{"name": "a"}], "initContainers": [{"restartPolicy": "Always"}, {}]`:                                                                    {RestartsAlways: true},
		`"containers": [{"name": "a"}], "initContainers": [{"restartPolicy": "Never"}]`:                                                                         {},
		`"containers": [{"resources": {"limits": {"memory": "1Gi"}}}], "volumes": [{"emptyDir": {}}, {}]`:                                                       {RestartsAlways: true},
		`"containers": [{"resources": {"limits": {"ephemeral-storage": "1Gi"}}}]`:                                                                               {RestartsAlways: true, LimitsStorage: true},
		`"containers": [{}], "initContainers": [{"resources": {"limits": {"ephemeral-storage": "1Gi"}}}]`:                                                       {RestartsAlways: true, LimitsStorage: true},
		`"containers": [{}], "volumes": [{"configMap": {"name": "a"}}, {"emptyDir": {"sizeLimit": "1Mi"}}]`:                                                     {RestartsAlways: true, LimitsStorage: true},
		`"containers": [{"restartPolicy": "Never"}]}, "status": {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "r", "message": "m"}]`: {Disruption: "r", DisruptionMessage: "m"},
		`"containers": [{"restartPolicy": "Never"}]}, "status": {"conditions": [{"type": "DisruptionTarget", "status": "False", "reason": "r"}]`:                {},
	} {
		p, _, err := codecs.UniversalDeserializer().Decode(fmt.Appendf(nil, always, text), nil, nil) // which does not ignore case
		assert.NoError(t, err)
		want.Waiting = true
		assert.Equal(t, podOf(p.(*pod)), want, text)
	}
}

func TestPodsAreReadInPagesAndByBoundWhole(t *testing.T) {
	node := newName("node")
	p := newProxy(t, node)
	w := NewNodeWatch(newClient(t, p.Kubeconfig), node)
	n, pods, err := w.Bound(t.Context())
	assert.That(t, n == nil && len(pods) == 0 && err == nil, "without a Node: %v, %d pods, %v", n, len(pods), err)
	createNode(t, node)
	patch(t, request{gv: coreV1, resource: "nodes", name: node},
		map[string]any{"metadata": map[string]any{"labels": map[string]any{"zone": "a"}}, "spec": map[string]any{"unschedulable": true}})
	const many = 2*podsPerPage - 1
	for range many {
		createPod(t, node, newName("pod"))
	}

	asAdmin(t, request{verb: "POST", gv: coreV1, namespace: "default", resource: "pods", body: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": newName("pod"), "annotations": map[string]any{
			corev1.MirrorPodAnnotationKey: "static-uid", "example.com/large": strings.Repeat("x", 1000)}},
		"spec": map[string]any{"nodeName": node, "automountServiceAccountToken": false, "nodeSelector": map[string]any{"zone": "a"},
			"containers": []any{map[string]any{"name": "a", "image": "b", "resources": map[string]any{"requests": map[string]any{"cpu": "100m"}}}}},
	}})
	n, pods, err = w.Bound(t.Context())
	assert.NoError(t, err)
	assert.That(t, n.Labels["zone"] == "a" && n.Spec.Unschedulable && len(pods) == many+1, "node %+v with %d pods", n, len(pods))
	mirrors := 0
	for _, p := range pods {
		assert.Must(t, p.ManagedFields == nil && p.UID != "", "pod %+v", p)
		if p.Annotations == nil {
			continue
		}

		mirrors++
		assert.That(t, len(p.Annotations) == 1 && p.Annotations[corev1.MirrorPodAnnotationKey] == "static-uid" &&
			p.Spec.NodeSelector["zone"] == "a" && p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() == 100, "mirror pod %+v", p)
	}

	assert.That(t, mirrors == 1, "%d mirror pods", mirrors)

	before := p.count("/pods")
	s := w.client.Snapshot(t.Context(), node)
	requests := p.count("/pods") - before
	assert.That(t, len(s.Pods) == many+1 && requests == (many+1)/50,
		"a snapshot has %d pods in %d requests: %s", len(s.Pods), requests, s.Cause)
}

func TestBoundSaysWhyThePodsCannotBeRead(t *testing.T) {
	node := newName("node")
	p := newProxy(t, node)
	w := NewNodeWatch(newClient(t, p.Kubeconfig), node)
	stranger := NewNodeWatch(w.client, "another-node")
	_, _, err := stranger.Bound(t.Context())
	assert.ErrorHas(t, err, "the pods of node another-node")
	assert.ErrorHas(t, err, "check the authorizers")
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	_, _, err = w.Bound(ctx)
	assert.That(t, err != nil, "no error after the deadline")
}
