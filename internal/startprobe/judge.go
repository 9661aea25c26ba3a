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
	refusals   = 3                // after which the pod cannot be started, or stopped
	judgedFrom = 30 * time.Second // after the pod was created, or deleted: its Events are read from then on
	patience   = 3 * time.Minute  // with a pod without a result, and with one that does not stop
)

// Reasons of Events with which the kubelet says that it or the runtime cannot
// start or stop a pod. Failed is about a container.
var (
	startReasons = []string{"FailedCreatePodSandBox", "FailedCreatePodContainer", "Failed"}
	stopReasons  = []string{"FailedKillPod"}
)

// images are words of errors about images and their users, which the kubelet
// does not keep apart from those of the runtime.
var images = regexp.MustCompile(`(?i)image|runAsNonRoot`)

// goCrash is the exit code of a Go program whose runtime cannot continue, such
// as without another thread.
const goCrash = 2

// judge returns what a pod that is not Ready, or does not stop, and its Events
// show. own reports whether the pod's image is that of the agent. waited is how
// long the pod was created, or deleted.
func judge(pod *corev1.Pod, events []corev1.Event, own bool, waited time.Duration) rollout.ProbeReport {
	report := func(result rollout.ProbeResult, message string) rollout.ProbeReport {
		return rollout.ProbeReport{Result: result, Message: printable.Line(message)}
	}
	reasons, statuses, verb, waits := startReasons, pod.Status.ContainerStatuses, "start", "its kubelet has not started it yet"
	switch {
	case pod.DeletionTimestamp != nil:
		reasons, statuses, verb, waits = stopReasons, nil, "stop", "it stops"
	case pod.Status.Phase == corev1.PodFailed:
		return report(rollout.ProbeUnknown, strings.TrimSuffix("the node refused the pod: "+pod.Status.Reason+": "+pod.Status.Message, ": "))
	}

	refused, said := 0, ""
	slices.SortStableFunc(events, func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	for i := range events {
		switch e, field := &events[i], events[i].InvolvedObject.FieldPath; {
		case !slices.Contains(reasons, e.Reason):
		case strings.HasSuffix(field, "}") && field != "spec.containers{"+containerName+"}", // a webhook added this container
			component.OthersFault(e.Message), images.MatchString(e.Message):
			waits = e.Reason + ": " + e.Message
		default:
			refused += max(1, int(e.Count))
			said = e.Reason + ": " + e.Message
		}
	}

	for _, c := range statuses {
		t := cmp.Or(c.LastTerminationState.Terminated, c.State.Terminated)
		switch w := c.State.Waiting; {
		case c.Name != containerName:
			if !c.Ready {
				waits = fmt.Sprintf("container %s, which a webhook added, is not Ready", c.Name)
			}
		case w != nil && (w.Reason == "ErrImageNeverPull" || w.Reason == "InvalidImageName"):
			return report(rollout.ProbeUnknown, w.Reason+": "+w.Message)
		case t != nil && own && t.ExitCode == goCrash:
			refused = max(refused, int(c.RestartCount)+1)
			said = fmt.Sprintf("%s (exit code %d): %s", t.Reason, t.ExitCode, t.Message)
		case t != nil:
			waits = fmt.Sprintf("its program ended with exit code %d: %s", t.ExitCode, t.Message)
		}
	}

	last := cmp.Or(said, waits)
	switch {
	case refused >= refusals && waited >= judgedFrom:
		return report(rollout.ProbeFailed, fmt.Sprintf("the node cannot %s pod %s: %s", verb, pod.Name, last))
	case waited >= patience:
		return report(rollout.ProbeUnknown, fmt.Sprintf("pod %s has no result after %s: %s", pod.Name, patience, last))
	}

	return report("", last)
}
