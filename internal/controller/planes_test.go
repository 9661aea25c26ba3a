// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// waitsFor checks the message of a rollout's status.
func waitsFor(words string) func(status) error {
	return func(st status) error {
		return assert.Unless(strings.Contains(st.Message, words), "the message does not say %q", words)
	}
}

// answerOnce lets a node's agent accept what its NodeConfig says now.
func answerOnce(t *testing.T, node string) {
	t.Helper()
	eventually(t, func() error { return answer(t.Context(), nodeConfig(t, node), false) })
}

func TestTwoRolloutsUpdateOneControlPlaneAtATime(t *testing.T) {
	world(t)
	for _, name := range []string{"cpa", "cpb"} {
		addNodes(t, "node-role.kubernetes.io/control-plane=,pool="+name, name+"1")
	}

	apiserver := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-apiserver-cpa1", Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"}},
		Spec:       corev1.PodSpec{NodeName: "cpa1", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	assert.NoError(t, admin.Create(t.Context(), apiserver))
	t.Cleanup(func() { assert.OK(t, admin.Delete(context.Background(), apiserver, client.GracePeriodSeconds(0))) })
	setReady := func(is corev1.ConditionStatus) {
		apiserver.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: is}}
		assert.NoError(t, admin.Status().Update(t.Context(), apiserver))
	}
	setReady(corev1.ConditionTrue)
	assigned := func(node string) error {
		s := nodeConfig(t, node).Spec.ConfigSource
		return assert.Unless(s != nil, "%s is not assigned: %+v", node, s)
	}

	c := start(t, own())
	roll(t, "cpa")
	awaitRollout(t, "cpa")
	answerOnce(t, "cpa1")
	// A new leader cannot know what was in flight before it.
	later(c, time.Minute)
	eventually(t, func() error { return assigned("cpa1") })
	roll(t, "cpb")
	awaitRollout(t, "cpb")
	answerOnce(t, "cpb1")
	awaitRollout(t, "cpb", waitsFor("waits for control plane cpa1, whose agent has not answered its assignment"))

	c.stop()
	c = start(t, own())
	later(c, time.Minute)
	awaitRollout(t, "cpb", waitsFor("waits for control plane cpa1, whose agent has not answered its assignment"))
	setReady(corev1.ConditionFalse)
	answerOnce(t, "cpa1")
	awaitRollout(t, "cpa", completeAt(1))
	awaitRollout(t, "cpb", waitsFor("waits for control plane cpa1, which may have been in flight a moment ago"))
	later(c, time.Minute)
	awaitRollout(t, "cpb", waitsFor("waits for control plane cpa1, which is not Ready again (not Ready: kube-apiserver-cpa1)"))
	if err := assigned("cpb1"); err == nil {
		t.Error("both control planes were assigned")
	}

	setReady(corev1.ConditionTrue)
	later(c, time.Minute)
	eventually(t, func() error { return assigned("cpb1") })
	answerOnce(t, "cpb1")
	awaitRollout(t, "cpb", completeAt(1))
}

func TestStaticPodsThatCannotBeReadAreReportedToThePlan(t *testing.T) {
	api := &podAPI{pods: func(string) ([]corev1.Pod, string) { return nil, "" }}
	c, r, in := disruptionWorld(t, api)
	in.nodes[0].ControlPlane, in.ControlPlanes = true, []rollout.Node{{Name: "m", ControlPlane: true}}
	for _, tt := range []struct {
		refused error
		want    string
	}{
		{nil, ""},
		{errors.New("down"), "list pods: down"},
		{apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil), ""},
	} {
		api.refused = map[string]error{"pods": tt.refused}
		c.readStaticPods(t.Context(), r, in.Now, []string{"n", "m"})
		c.addDisruptions(r, in)
		for _, n := range []rollout.Node{in.nodes[0], in.ControlPlanes[0]} {
			assert.That(t, n.StaticPods != nil && n.StaticPods.Error == tt.want && n.StaticPods.Time.Equal(in.Now), "%s: %+v", n.Name, n.StaticPods)
		}
	}
}

// TestARolloutRereadsEveryControlPlaneThatMayHaveBeenWritten: the write can be
// another rollout's.
func TestARolloutRereadsEveryControlPlaneThatMayHaveBeenWritten(t *testing.T) {
	f := newCache("", time.Second)
	for _, name := range []string{"cp-1", "cp-2"} {
		f.setNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{fleet.LabelControlPlane: ""}}})
	}

	f.setNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}})
	r := &rolloutEntry{name: "r", nodes: map[string]*nodeEntry{"cp-1": f.nodes["cp-1"]}}
	f.markUncertain("cp-2", time.Now())
	f.markUncertain("worker", time.Now())
	got := f.uncertainWrites(r)
	assert.That(t, len(got) == 1 && got[0].node == "cp-2", "%+v", got)
	others := f.otherControlPlanes(r)
	assert.That(t, len(others) == 1 && others[0].Name == "cp-2", "%+v", others)
	delete(r.nodes, "cp-1")
	assert.Equal(t, len(f.uncertainWrites(r))+len(f.otherControlPlanes(r)), 0, "without a control plane")
	f.deleteNode("cp-2")
	assert.Equal(t, len(f.planes), 1, "control planes")
}
