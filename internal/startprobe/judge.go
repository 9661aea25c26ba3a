// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package startprobe

import (
	"cmp"
	"fmt"
	"regexp"
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

// images are words of errors about images.
var images = regexp.MustCompile(`sandbox image|(?i:failed to pull)|\bErrImage|\bImagePull|\bInvalidImageName`)

// isInnocent reports whether an error has another cause than the configuration. Images are not the kubelet's refusals elsewhere.
func isInnocent(message string) bool {
	return component.OthersFault(message) || images.MatchString(message)
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
	refused, said, waits := refusalsOf(pod, events, own)
	last := cmp.Or(said, waits, "its kubelet has not started it yet")
	switch w := waiting(pod); {
	case pod.Status.Phase == corev1.PodFailed && pod.DeletionTimestamp == nil:
		return report(rollout.ProbeUnknown, strings.TrimSuffix("the node refused the pod: "+pod.Status.Reason+": "+pod.Status.Message, ": "))
	case w != nil && slices.Contains([]string{"ErrImageNeverPull", "InvalidImageName"}, w.Reason):
		return report(rollout.ProbeUnknown, w.Reason+": "+w.Message)
	case refused >= refusals && age >= judgedFrom:
		return report(rollout.ProbeFailed, fmt.Sprintf("pod %s cannot be started or stopped: %s", pod.Name, said))
	case age >= patience:
		return report(rollout.ProbeUnknown, fmt.Sprintf("pod %s has no result after %s: %s", pod.Name, patience, last))
	}
	return report("", last)
}

// refusalsOf counts how often the kubelet or the runtime refused to start or stop a pod because of the configuration, and returns the last
// words of these refusals. waits is what else the pod waits for.
func refusalsOf(pod *corev1.Pod, events []corev1.Event, own bool) (count int, said, waits string) {
	reasons, statuses := startReasons, pod.Status.ContainerStatuses
	if pod.DeletionTimestamp != nil {
		reasons, statuses, waits = stopReasons, nil, "it stops"
	}
	slices.SortStableFunc(events, func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	for i := range events {
		switch e := &events[i]; {
		case !slices.Contains(reasons, e.Reason):
		case isInnocent(e.Message):
			waits = e.Reason + ": " + e.Message
		default:
			count += max(1, int(e.Count))
			said = e.Reason + ": " + e.Message
		}
	}
	failed, others := startsOf(events)
	for _, c := range statuses {
		t := cmp.Or(c.LastTerminationState.Terminated, c.State.Terminated)
		starts := int(c.RestartCount) + 1
		switch w := c.State.Waiting; {
		case w != nil && slices.Contains(containerReasons, w.Reason):
			count, said, waits = refusal(count, max(starts-others, failed), said, waits, w.Reason+": "+w.Message)
		case t != nil && (t.Reason == "StartError" || t.Reason == "ContainerCannotRun"):
			count, said, waits = refusal(count, max(starts-others, failed), said, waits, terminated(t))
		case t != nil && own && t.ExitCode == goCrash: // its starts were no failures for the kubelet
			count, said, waits = refusal(count, starts, said, waits, terminated(t))
		case t != nil:
			waits = fmt.Sprintf("its program ended with exit code %d: %s", t.ExitCode, t.Message)
		case w != nil && w.Reason != "ContainerCreating":
			waits = w.Reason + ": " + w.Message
		}
	}
	return count, said, waits
}

// refusal adds refusals with these words to the count, or the words to what the pod waits for if the configuration is not their cause.
func refusal(count, more int, said, waits, words string) (int, string, string) {
	if isInnocent(words) {
		return count, said, words
	}
	return max(count, more), words, waits
}

func terminated(t *corev1.ContainerStateTerminated) string {
	return fmt.Sprintf("%s (exit code %d): %s", t.Reason, t.ExitCode, t.Message)
}

// goCrash is the exit code of a Go program whose runtime cannot continue, such as without another thread.
const goCrash = 2

// startsOf counts in Events the starts of a container that failed because of the configuration, and the others.
func startsOf(events []corev1.Event) (failed, others int) {
	for i := range events {
		switch e := &events[i]; {
		case e.Reason == "Failed" && !isInnocent(e.Message):
			failed += max(1, int(e.Count))
		case e.Reason == "Failed" && !images.MatchString(e.Message), e.Reason == "Started": // without its image it is not started
			others += max(1, int(e.Count))
		}
	}
	return failed, others
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

// isLate reports whether a pod that was started reached its deadline: nobody looked at it in time.
func isLate(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == "DeadlineExceeded" &&
		slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
			return c.State.Terminated != nil && !c.State.Terminated.StartedAt.IsZero() && c.State.Terminated.Reason != "StartError"
		})
}

// hasRun reports whether the program of a pod has been started, and did not fail.
func hasRun(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Running != nil || c.State.Terminated != nil && c.State.Terminated.ExitCode == 0
	})
}
