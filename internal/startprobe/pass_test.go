// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package startprobe

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAPodThatReachedItsDeadlineUnseenIsCreatedAgain(t *testing.T) {
	p := Probe{Namespace: "ns", Node: "worker", Image: "pause", Config: &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker", UID: "u"}}, For: "a"}
	pod := p.Pod("pause")
	ended := metav1.NewTime(time.Date(2030, 1, 1, 0, 5, 0, 0, time.UTC))
	pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "DeadlineExceeded", ContainerStatuses: []corev1.ContainerStatus{
		{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "Error", StartedAt: ended, FinishedAt: ended}}}}}
	c := fake.NewClientBuilder().WithObjects(pod).Build()
	report := Pass(t.Context(), c, p, rollout.ProbeReport{}, ended.Add(time.Hour))
	assert.Equal(t, report, rollout.ProbeReport{Message: "its pod had reached its deadline, and is created again"}, "the first pass")
	assert.That(t, apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod)), "the pod is still there")
	assert.Equal(t, Pass(t.Context(), c, p, report, ended.Add(time.Hour)).Message, "its pod was created", "the second pass")
}
