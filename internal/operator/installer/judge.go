// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// judge returns the state of a node.
func (p Policy) judge(n Node) State {
	switch {
	case n.Label == p.Operation.failed:
		return State{Stage: Failed, Why: cmp.Or(n.Failure, "an earlier attempt failed; its reason was not recorded")}
	case n.Label != p.Operation.label:
		return p.judgeUntouched(n)
	case len(n.Pods) > 0 && n.podOf(p.Desired.Revision) == nil:
		return p.judgeUntouched(n) // its pods are of an older DaemonSet
	case p.Operation == Install && n.waitsForTurn(p.Desired.Revision):
		return p.judgeUntouched(n)
	}

	return p.judgeLabelled(n)
}

// judgeUntouched returns the state of a node on which the operation has not
// begun.
func (p Policy) judgeUntouched(n Node) State {
	skip := func(why string) State { return State{Stage: Skipped, Why: why} }
	switch {
	case n.Deleting:
		return skip("it is being deleted")
	case n.OS != "linux":
		return skip(fmt.Sprintf("its label kubernetes.io/os is %q, and evenkeel is for linux", n.OS))
	case p.Operation == Install && n.SelfHosted:
		return skip("its kubelet runs in a pod that has the agent already (evenkeel.dev/kubelet=self-hosted)")
	case p.Operation == Install && n.Label == v1alpha1.AgentUninstall:
		return skip("it is being uninstalled: kubectl evenkeel uninstall " + n.Name)
	case n.Cordoned:
		return skip("it is cordoned")
	case !n.Ready:
		return skip("it is not Ready")
	}

	return State{Stage: ToDo}
}

// judgeLabelled returns the state of a node that is labelled for the operation.
func (p Policy) judgeLabelled(n Node) State {
	wait := func(format string, args ...any) State {
		return State{Stage: Doing, Why: fmt.Sprintf(format, args...)}
	}
	pod := n.podOf(p.Desired.Revision)
	switch {
	case pod == nil:
		return wait("waits for its pod")
	case !fleet.PodReady(pod):
		return judgePod(pod)
	case !n.Ready:
		return wait("its kubelet is back, the Node is not Ready")
	case p.Operation != Install:
		return State{Stage: Done}
	case !n.Reported:
		return wait("its kubelet is back, no agent has reported to the API")
	case p.Desired.Version != "" && n.AgentVersion != p.Desired.Version:
		return wait("its kubelet is back, and the agent that reports is %s, not %s", cmp.Or(n.AgentVersion, "of no version"), p.Desired.Version)
	}

	return State{Stage: Done, Why: n.AgentVersion}
}

func (n Node) podOf(revision string) *corev1.Pod {
	i := slices.IndexFunc(n.Pods, func(p corev1.Pod) bool { return revisionOf(&p) == revision })
	if i < 0 {
		return nil
	}

	return &n.Pods[i]
}

// revisionOf returns the revision of the DaemonSet that a pod has.
func revisionOf(pod *corev1.Pod) string { return pod.Labels[appsv1.ControllerRevisionHashLabelKey] }

// waitsForTurn reports whether the pod of this revision must not replace the
// agent yet: the Node's annotation does not name the revision.
func (n Node) waitsForTurn(revision string) bool {
	pod := n.podOf(revision)
	return pod != nil && !fleet.PodReady(pod) && n.Reported && n.Turn != revision &&
		slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Running != nil })
}

// started reports whether a process of the operation may have run on the node.
func (n Node) started() bool {
	return slices.ContainsFunc(n.Pods, func(p corev1.Pod) bool {
		return slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
			return c.ContainerID != "" || c.RestartCount > 0
		})
	})
}

// finalExits are the exit codes of an installer for which a retry does not
// help.
var finalExits = map[int32]string{
	v1alpha1.InstallExitRolledBack: "tried and rolled back",
	v1alpha1.InstallExitUsage:      "the command line of its installer is wrong",
	v1alpha1.InstallExitNotOnHost:  "its installer cannot run on the host",
}

// mostRestarts is the number of restarts after errors that changed nothing on
// the node.
const mostRestarts = 2

// judgePod says why a pod is not ready, and whether that is final.
func judgePod(p *corev1.Pod) State {
	s := State{Stage: Doing}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			s.Why = "its pod is not scheduled: " + c.Message
			return s
		}
	}

	if len(p.Status.ContainerStatuses) == 0 { // its kubelet has reported none
		s.Why = "its pod is " + strings.ToLower(cmp.Or(describe.JoinWords(string(p.Status.Phase), p.Status.Message), "new"))
		return s
	}

	c := &p.Status.ContainerStatuses[0]
	switch ended, waits := cmp.Or(c.State.Terminated, c.LastTerminationState.Terminated), c.State.Waiting; {
	case ended != nil:
		s.Said = strings.TrimSpace(ended.Message)
		words, final := finalExits[ended.ExitCode]
		s.Why = describe.JoinWords(cmp.Or(words, fmt.Sprintf("its installer ended with %d", ended.ExitCode)), lastWords(s.Said))
		if final || c.RestartCount >= mostRestarts {
			s.Stage = Failed
		}
	case waits != nil:
		reason := cmp.Or(waits.Reason, "Unknown")
		s.Why = "its pod waits: " + describe.JoinWords(reason, waits.Message)
		// ErrImagePull can be temporary. In ImagePullBackOff the kubelet has
		// already retried.
		if slices.Contains([]string{"ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}, reason) {
			s.Stage = Failed
		}
	default:
		s.Why = "its pod runs; the kubelet is not back yet"
	}

	return s
}

// lastWords returns the last line of a program's output, without the prefix of
// the agent's main.
func lastWords(said string) string {
	lines := strings.Split(said, "\n")
	return strings.TrimPrefix(printable.Line(lines[len(lines)-1]), "evenkeel-agent: ")
}
