// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAFailureShowsTheLogsOfWhatTookPart(t *testing.T) {
	for _, c := range []struct {
		name string
		is   circumstances
		want []string
	}{
		{"a step with the real node", circumstances{real: true}, []string{agentLog}},
		{"a step with the fleet", circumstances{hollow: true}, []string{controllerLog, hollowLog}},
		{"a step with the fleet, and the real node has a problem", circumstances{hollow: true, real: true}, []string{controllerLog, hollowLog, agentLog}},
		{"the controller ended", circumstances{hollow: true, controllerEnded: true}, []string{controllerLog}},
		{"the agent ended in a step with the fleet", circumstances{hollow: true, agentEnded: true}, []string{agentLog}},
		{"the API server ended", circumstances{real: true, apiDown: true}, []string{apiServerLog, etcdLog}},
	} {
		got := c.is.logs()
		assert.That(t, slices.Equal(got, c.want), "%s: got %q, want %q", c.name, got, c.want)
	}
}

func TestOnlyNodesWithProblemsAreDescribed(t *testing.T) {
	node := func(name string, ready corev1.ConditionStatus) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: ready, Reason: "KubeletNotReady", Message: "PLEG is not healthy"},
		}}}
	}
	config := func(name string, ok metav1.ConditionStatus, err string) v1alpha1.NodeConfig {
		return v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 2}, Status: v1alpha1.NodeConfigStatus{
			Error: err, Conditions: []metav1.Condition{
				{Type: v1alpha1.ConditionConfigOK, Status: ok, Reason: "Because", Message: "of this", ObservedGeneration: 2},
			},
		}}
	}
	late := config("late", metav1.ConditionTrue, "")
	late.Generation = 3
	nodes := []corev1.Node{
		node("well", corev1.ConditionTrue), node("bad", corev1.ConditionTrue), node("unready", corev1.ConditionFalse),
		node("late", corev1.ConditionTrue), node("without", corev1.ConditionTrue),
	}
	configs := []v1alpha1.NodeConfig{
		config("well", metav1.ConditionTrue, ""), config("bad", metav1.ConditionFalse, "kubelet: decode: a typo"),
		config("unready", metav1.ConditionTrue, ""), late,
	}
	want := []string{
		"node bad: ConfigOK False (Because): of this; error: a typo",
		"node unready: ConfigOK True; the node is not Ready (KubeletNotReady: PLEG is not healthy)",
		"node late: ConfigOK True (Because): of this; its agent has not reported on the newest assignment",
		"node without: no NodeConfig",
	}
	got := troubled(nodes, configs, 10)
	assert.That(t, slices.Equal(got, want), "got %q, want %q", got, want)
	got = troubled(nodes, configs, 1)
	assert.That(t, len(got) == 2 && got[1] == "... and others: kubectl evenkeel nodes --problems", "a limited list: got %q", got)
}
