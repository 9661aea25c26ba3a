// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package startprobe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

const (
	refusals   = 3                // of the same kind, after which the pod cannot be started
	judgedFrom = 30 * time.Second // age of the pod
	patience   = 3 * time.Minute  // age of a pod without a result; and how long it may take to stop, after its grace period
)

// Reasons of Events and of waiting containers with which the kubelet says that it or the runtime cannot start or stop a pod.
var (
	startReasons     = []string{"FailedCreatePodSandBox", "FailedCreatePodContainer"}
	stopReasons      = []string{"FailedKillPod"}
	containerReasons = []string{"RunContainerError", "CreateContainerError"}
)

// isInnocent reports whether an error has another cause than the configuration. Images are not the kubelet's refusals elsewhere.
func isInnocent(message string) bool {
	return component.OthersFault(message) || strings.Contains(message, "sandbox image") || strings.Contains(message, "failed to pull")
}

// judge returns what a pod that is not Ready, or does not stop, and its Events show. own reports whether the pod's image is that of the
// agent.
func judge(pod *corev1.Pod, events []corev1.Event, own bool, now time.Time) rollout.ProbeReport {
	report := func(result rollout.ProbeResult, message string) rollout.ProbeReport {
		return rollout.ProbeReport{Result: result, Message: printable.Line(message)}
	}
	began := pod.CreationTimestamp
	if pod.DeletionTimestamp != nil {
		began = *pod.DeletionTimestamp
	}
	age := now.Sub(began.Time)
	refused, said := refusalsOf(pod, events, own)
	last := cmp.Or(said, "its kubelet has not started it yet")
	switch w := waiting(pod); {
	case pod.Status.Phase == corev1.PodFailed:
		return report(rollout.ProbeUnknown, strings.TrimSuffix("the node refused the pod: "+pod.Status.Reason+": "+pod.Status.Message, ": "))
	case w != nil && slices.Contains([]string{"ErrImageNeverPull", "InvalidImageName"}, w.Reason):
		return report(rollout.ProbeUnknown, w.Reason+": "+w.Message)
	case refused >= refusals && age >= judgedFrom && !isInnocent(said):
		return report(rollout.ProbeFailed, fmt.Sprintf("pod %s cannot be started or stopped: %s", pod.Name, said))
	case age >= patience:
		return report(rollout.ProbeUnknown, fmt.Sprintf("pod %s has no result after %s: %s", pod.Name, patience, last))
	}
	return report("", last)
}

// refusalsOf counts how often the kubelet or the runtime refused to start or stop a pod, and returns their last words. Without a refusal it
// returns what the pod waits for.
func refusalsOf(pod *corev1.Pod, events []corev1.Event, own bool) (count int, said string) {
	reasons, statuses := startReasons, pod.Status.ContainerStatuses
	if pod.DeletionTimestamp != nil {
		reasons, statuses, said = stopReasons, nil, "it stops"
	}
	slices.SortStableFunc(events, func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	for i := range events {
		if e := &events[i]; slices.Contains(reasons, e.Reason) {
			count += max(1, int(e.Count))
			said = e.Reason + ": " + e.Message
		}
	}
	for _, c := range statuses {
		t := cmp.Or(c.LastTerminationState.Terminated, c.State.Terminated)
		switch w := c.State.Waiting; {
		case w != nil && slices.Contains(containerReasons, w.Reason):
			return max(count, int(c.RestartCount)+1, startFailures(events)), w.Reason + ": " + w.Message
		case t != nil && (t.Reason == "StartError" || t.Reason == "ContainerCannotRun" || own && t.ExitCode == goCrash):
			return max(count, int(c.RestartCount)+1), fmt.Sprintf("%s (exit code %d): %s", t.Reason, t.ExitCode, t.Message)
		case t != nil && count == 0:
			said = fmt.Sprintf("its program ended with exit code %d: %s", t.ExitCode, t.Message)
		case w != nil && count == 0 && w.Reason != "ContainerCreating":
			said = w.Reason + ": " + w.Message
		}
	}
	return count, said
}

// goCrash is the exit code of a Go program whose runtime cannot continue, such as without another thread.
const goCrash = 2

// startFailures counts the kubelet's failures to start a container.
func startFailures(events []corev1.Event) (count int) {
	for i := range events {
		if e := &events[i]; e.Reason == "Failed" {
			count += max(1, int(e.Count))
		}
	}
	return count
}

// waiting returns what the pod's container waits for; nil: nothing.
func waiting(pod *corev1.Pod) *corev1.ContainerStateWaiting {
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Waiting != nil {
			return c.State.Waiting
		}
	}
	return nil
}

// isReady reports whether a pod is Ready.
func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// hasRun reports whether the program of a pod has been started, and did not fail.
func hasRun(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Running != nil || c.State.Terminated != nil && c.State.Terminated.ExitCode == 0
	})
}
