// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// The Node authorizer and the NodeRestriction admission plugin of Kubernetes
// decide these rights. The agent needs them, so these tests detect a Kubernetes
// release that changes them.

func TestANodeReadsItsOwnNodeLeaseAndPodsAndWritesItsConditionAndEvents(t *testing.T) {
	node := kubernetes.NewForConfigOrDie(nodeConfig(t, "rights"))
	admin := kubernetes.NewForConfigOrDie(cluster.AdminConfig())
	nodes, leases := node.CoreV1().Nodes(), node.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	events := node.CoreV1().Events(metav1.NamespaceDefault)
	ctx := t.Context()
	own := metav1.SingleObject(metav1.ObjectMeta{Name: "rights"})
	condition := []byte(`{"status":{"conditions":[{"type":"ConfigOK","status":"True","reason":"all checks passed"}]}}`)
	for _, name := range []string{"rights", "stranger"} {
		assert.NoError(t,
			assert.Err(admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})))
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
		assert.NoError(t, assert.Err(admin.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, lease, metav1.CreateOptions{})))
	}

	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "rights.1"},
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "rights", UID: "rights"},
		Reason:         "ConfigChanged", Type: corev1.EventTypeNormal,
	}

	wantAnswers(t, []answer{
		{"get its Node", errorOf(nodes.Get(ctx, "rights", metav1.GetOptions{})), ""},
		{"list its Node", errorOf(nodes.List(ctx, own)), ""},
		{"watch its Node", stop(nodes.Watch(ctx, own)), ""},
		{"list all Nodes", errorOf(nodes.List(ctx, metav1.ListOptions{})), "only its own Node object"},
		{"get another's Node", errorOf(nodes.Get(ctx, "stranger", metav1.GetOptions{})), "only its own Node object"},
		{"patch its Node's status",
			errorOf(nodes.Patch(ctx, "rights", types.StrategicMergePatchType, condition, metav1.PatchOptions{}, "status")), ""},
		{"patch another's Node's status",
			errorOf(nodes.Patch(ctx, "stranger", types.StrategicMergePatchType, condition, metav1.PatchOptions{}, "status")),
			`node "rights" is not allowed to modify node "stranger"`},

		{"get its Lease", errorOf(leases.Get(ctx, "rights", metav1.GetOptions{})), ""},
		{"get another's Lease", errorOf(leases.Get(ctx, "stranger", metav1.GetOptions{})), "can only access node lease with the same name"},
		{"list its Lease", errorOf(leases.List(ctx, own)), "can only get, create, update, patch, or delete a node lease"},
		{"watch its Lease", stop(leases.Watch(ctx, own)), "can only get, create, update, patch, or delete a node lease"},

		{"list its pods", errorOf(node.CoreV1().Pods("").List(ctx, podsOf("rights"))), ""},
		{"watch its pods", stop(node.CoreV1().Pods("").Watch(ctx, podsOf("rights"))), ""},
		{"list another's pods",
			errorOf(node.CoreV1().Pods("").List(ctx, podsOf("stranger"))), "can only list/watch pods with spec.nodeName field selector"},

		{"create an event", errorOf(events.Create(ctx, event, metav1.CreateOptions{})), ""},
		{"patch an event", errorOf(events.Patch(ctx, event.Name, types.MergePatchType, []byte(`{"count":2}`), metav1.PatchOptions{})), ""},
		{"list events", errorOf(events.List(ctx, metav1.ListOptions{})), `cannot list resource "events"`},
	})
}

func podsOf(node string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: "spec.nodeName=" + node}
}

func errorOf[T any](_ T, err error) error { return err }

// stop ends a watch that began.
func stop(w interface{ Stop() }, err error) error {
	if err == nil {
		w.Stop()
	}

	return err
}
