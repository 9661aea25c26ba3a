// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package startprobe

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func waits(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: containerName, RestartCount: 2, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
	}
}

func ended(reason string, code int32, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		waits("CrashLoopBackOff", "back-off 10s")(p)
		p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: reason, ExitCode: code, Message: message}
	}
}

func rejected(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, reason, message
	}
}

func stops(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }

func TestAPodIsJudgedByWhoRefusedIt(t *testing.T) {
	event := func(reason string, count int32, message string) []corev1.Event {
		return []corev1.Event{{Reason: reason, Count: count, Message: message}}
	}
	const sandbox = "FailedCreatePodSandBox"
	const noThread = "Error: failed to create containerd task: unable to start container process: resource temporarily unavailable"
	for what, c := range map[string]struct {
		change func(*corev1.Pod)
		events []corev1.Event
		users  bool // the image is not the agent's
		waited time.Duration
		want   rollout.ProbeResult
		words  string
	}{
		"young":                        {waited: time.Second, words: "its kubelet has not started it yet"},
		"no kubelet":                   {waited: 3 * time.Minute, want: rollout.ProbeUnknown, words: "has no result after 3m0s: its kubelet has not started it yet"},
		"podPidsLimit 2":               {events: event(sandbox, 3, "runc create failed: can't get final child's PID"), waited: time.Minute, want: rollout.ProbeFailed, words: "the node cannot start pod p: FailedCreatePodSandBox: runc create failed: can't get final child's PID"},
		"runtimeRequestTimeout 60ms":   {events: event(sandbox, 4, "rpc error: code = DeadlineExceeded"), waited: time.Minute, want: rollout.ProbeFailed, words: "DeadlineExceeded"},
		"podPidsLimit 10":              {change: waits("RunContainerError", noThread), events: event("Failed", 3, noThread), waited: time.Minute, want: rollout.ProbeFailed, words: "Failed: Error: failed to create"},
		"no thread for the Go runtime": {change: ended("Error", 2, "failed to create new OS thread"), waited: time.Minute, want: rollout.ProbeFailed, words: "new OS thread"},
		"two refusals":                 {events: event(sandbox, 2, "runc create failed"), waited: time.Minute, words: "runc create failed"},
		"two refusals for long":        {events: event(sandbox, 2, "runc create failed"), waited: 4 * time.Minute, want: rollout.ProbeUnknown, words: "runc create failed"},
		"refusals within seconds":      {events: event(sandbox, 5, "runc create failed"), waited: 20 * time.Second},
		"it does not stop":             {change: stops, events: event("FailedKillPod", 3, "error killing pod: DeadlineExceeded"), waited: time.Minute, want: rollout.ProbeFailed, words: "the node cannot stop pod p: FailedKillPod: error killing pod"},
		"it stops, after a bad start":  {change: stops, events: event(sandbox, 3, "runc create failed"), waited: time.Minute, words: "it stops"},
		"it stops for long":            {change: stops, waited: 3 * time.Minute, want: rollout.ProbeUnknown, words: "it stops"},

		"one among innocents":   {events: slices.Concat(event(sandbox, 2, "plugin type=\"bridge\" failed (add): failed to setup network for sandbox: no route"), event(sandbox, 1, "runc create failed")), waited: time.Minute, words: "runc create failed"},
		"innocent at last":      {events: slices.Concat(event(sandbox, 3, "runc create failed"), event(sandbox, 1, "no space left on device")), waited: time.Minute, want: rollout.ProbeFailed, words: "runc create failed"},
		"one bad start of many": {events: slices.Concat(event("Failed", 2, "Error: no space left on device"), event("Failed", 1, noThread)), waited: time.Minute, words: noThread},
		"images are no starts":  {events: slices.Concat(event("Failed", 2, "Error: ErrImagePull"), event("Failed", 2, "Failed to pull image \"a\"")), waited: time.Minute, words: "Failed to pull"},
		"an innocent start":     {events: event("Failed", 4, "Error: mkdir: no space left on device"), waited: time.Minute, words: "no space left"},
		"it is killed":          {change: func(p *corev1.Pod) { stops(p); rejected("", "")(p) }, waited: time.Minute, words: "it stops"},
		"no CNI":                {events: event(sandbox, 9, "failed to setup network for sandbox: no networks found in /etc/cni/net.d"), waited: time.Minute},
		"no CNI for long":       {events: event(sandbox, 9, "failed to setup network for sandbox: plugin type=\"bridge\" failed (add): network unreachable"), waited: 3 * time.Minute, want: rollout.ProbeUnknown, words: "network unreachable"},
		"no sandbox image":      {events: event(sandbox, 9, "failed to get sandbox image \"pause:3.10\": failed to pull image"), waited: time.Minute},
		"the runtime is down":   {events: event(sandbox, 9, "rpc error: code = Unavailable desc = connection error"), waited: time.Minute},
		"the disk is full":      {events: event(sandbox, 9, "mkdir: no space left on device"), waited: time.Minute},
		"an injected container that cannot be started": {events: []corev1.Event{{Reason: "Failed", Count: 4, Message: noThread,
			InvolvedObject: corev1.ObjectReference{FieldPath: "spec.containers{proxy}"}}}, waited: time.Minute, words: noThread},
		"an injected container that ends": {change: func(p *corev1.Pod) {
			ended("Error", 2, "no certificate")(p)
			p.Status.ContainerStatuses[0].Name = "proxy"
		}, waited: time.Minute, words: "container proxy, which a webhook added, is not Ready"},
		"an injected container that is Ready": {change: func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "proxy", Ready: true}}
		}, waited: time.Minute, words: "its kubelet has not started it yet"},
		"no image":          {change: waits("ErrImageNeverPull", "image is not present"), waited: time.Second, want: rollout.ProbeUnknown, words: "ErrImageNeverPull: image is not present"},
		"not the program's": {events: event("Failed", 4, `Error: failed to create task: exec: "/pause": executable file not found in $PATH`), users: true, waited: time.Minute},
		"the program fails": {change: ended("Error", 2, "usage"), users: true, waited: 3 * time.Minute, want: rollout.ProbeUnknown, words: "its program ended with exit code 2: usage"},
		"an older agent":    {change: ended("Error", 3, "unknown command"), waited: 3 * time.Minute, want: rollout.ProbeUnknown, words: "exit code 3: unknown command"},
		"a wrong user":      {events: event("Failed", 4, "Error: container has runAsNonRoot and image will run as root"), users: true, waited: 3 * time.Minute, want: rollout.ProbeUnknown, words: "run as root"},
		"no room for a pod": {change: rejected("OutOfpods", "Node didn't have enough resource"), waited: time.Second, want: rollout.ProbeUnknown, words: "OutOfpods: Node didn't"},
		"no CPU":            {change: rejected("OutOfcpu", ""), waited: time.Second, want: rollout.ProbeUnknown, words: "refused the pod: OutOfcpu"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
		if c.change != nil {
			c.change(pod)
		}

		got := judge(pod, c.events, !c.users, c.waited)
		assert.Equal(t, got.Result, c.want, what, "with the message", got.Message)
		assert.That(t, strings.Contains(got.Message, c.words), "%s: message %q, want in it %q", what, got.Message, c.words)
	}
}
