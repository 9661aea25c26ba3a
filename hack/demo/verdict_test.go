// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/bed"
)

func TestTheVerdictSaysWhatHappenedToTheKubeletTheNodeAndThePods(t *testing.T) {
	for _, c := range []struct {
		o    outcome
		want string
	}{
		{
			outcome{started: true, ready: true, healthy: true, down: 4200 * time.Millisecond, pods: 2},
			"=> kubelet started, node Ready, 0 of 2 pods lost, healthy after 4.2 s",
		},
		{
			outcome{ready: true, healthy: true, pods: 2},
			"=> kubelet not stopped, node Ready, 0 of 2 pods lost, healthy all the time",
		},
		{
			outcome{stopped: true, ready: true, healthy: true, down: time.Second, pods: 1},
			"=> kubelet restarted, node Ready, 0 of 1 pod lost, healthy again after 1.0 s",
		},
		{
			outcome{stopped: true, down: time.Minute, lost: 1, pods: 2},
			"=> kubelet restarted, node NOT Ready, 1 of 2 pods lost, NOT healthy for 60.0 s",
		},
	} {
		assert.Equal(t, c.o.words(), c.want)
	}
}

func TestTheSummaryCountsWhatHappened(t *testing.T) {
	outcomes := []outcome{
		{step: 1, started: true, down: time.Minute}, // the first start is no outage
		{step: 2, stopped: true, down: time.Second},
		{step: 3, bad: true},
		{step: 4, bad: true, stopped: true, down: 2 * time.Second},
		{step: 5, bad: true, crashed: true},
	}
	want := []string{
		"3 bad configurations tried",
		"2 of them stopped a kubelet, until its node rolled back; 1 never reached one",
		"1 of 21 nodes saw the bad rollout",
		"0 of 2 pods lost",
		"2.0 s was the longest time without a healthy kubelet on the real node, in step 4",
	}
	got := summary(outcomes, 1, 21, 0, 2)
	assert.That(t, slices.Equal(got, want), "got %q, want %q", got, want)
	assert.Equal(t, summary(nil, 0, 0, 0, 0)[4], "no moment without a healthy kubelet on the real node")
}

func TestAPodIsLostIfItEndsIsReplacedOrRestarts(t *testing.T) {
	pod := func(name string, uid types.UID, container string, restarts int32, phase corev1.PodPhase) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}, Status: corev1.PodStatus{
			Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{ContainerID: container, RestartCount: restarts}},
		}}
	}
	was := pod("web", "u1", "c1", 0, corev1.PodRunning)
	rejected := corev1.Pod{ObjectMeta: was.ObjectMeta, Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfpods"}}
	for want, now := range map[string][]corev1.Pod{
		"":              {was, pod("other", "u9", "c9", 3, corev1.PodFailed)},
		"web (deleted)": nil,
		"web (Running, UID u2, c1 restarted 0 times)":   {pod("web", "u2", "c1", 0, corev1.PodRunning)},
		"web (Failed OutOfpods, UID u1)":                {rejected},
		"web (Succeeded, UID u1, c1 restarted 0 times)": {pod("web", "u1", "c1", 0, corev1.PodSucceeded)},
		"web (Running, UID u1, c1 restarted 1 times)":   {pod("web", "u1", "c1", 1, corev1.PodRunning)},
		"web (Running, UID u1, c2 restarted 0 times)":   {pod("web", "u1", "c2", 0, corev1.PodRunning)},
	} {
		assert.Equal(t, strings.Join(lostOf(bed.ContainersOf([]corev1.Pod{was}), bed.ContainersOf(now)), ","), want)
	}
}

func TestANodeHasReceivedAConfigurationThatItIsAssignedRunsOrRemembersAsBad(t *testing.T) {
	assigned, active, remembered := v1alpha1.NodeConfig{}, v1alpha1.NodeConfig{}, v1alpha1.NodeConfig{}
	assigned.Name, active.Name, remembered.Name = "assigned", "active", "remembered"
	assigned.Spec.ConfigSource = &v1alpha1.NodeConfigSource{ConfigMapRef: &v1alpha1.ConfigMapReference{UID: "bad"}}
	active.Status.Active = &v1alpha1.ConfigRevision{UID: "bad"}
	remembered.Status.BadConfigs = []v1alpha1.BadConfig{{UID: "older"}, {UID: "bad"}}
	other := v1alpha1.NodeConfig{Spec: v1alpha1.NodeConfigSpec{ConfigSource: &v1alpha1.NodeConfigSource{Local: &v1alpha1.LocalSource{}}}}
	got := receivedBy([]v1alpha1.NodeConfig{assigned, active, remembered, other, {}}, "bad")
	assert.That(t, len(got) == 3 && got["assigned"] && got["active"] && got["remembered"], "got %v", got)
}
