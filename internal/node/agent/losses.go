// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// lossDelay is how long a healthy kubelet may take until its rejections of pods
// are in the API: a rejected pod is Failed there only after its containers have
// ended.
const lossDelay = 30 * time.Second

// observeStart requests the state of the node while the kubelet starts, which
// does not wait for it: in a trial as the base of the Lease, and at a restart
// to report what it costs. The guard never refuses a rollback or a restart
// after a crash, and does not see pods that are bound after its last look.
func (a *Agent) observeStart(ctx context.Context, cause trial.Cause) {
	if a.p.Nodes == nil || cause == trial.CauseBoot && a.state.Trial == nil {
		return
	}

	a.kubelet.settled = podUIDs(a.node.view.now(a.p.Nodes).Pods, false)
	lease := a.kubelet.lease
	before := begin(ctx, a.quiet, func(ctx context.Context) []string { return podUIDs(lease.readBase(ctx, a.p.Nodes).Pods, true) })
	if cause != trial.CauseBoot {
		a.kubelet.beforeCause = cause
		if a.kubelet.before == nil { // otherwise the kubelet was not healthy since, and both restarts have one report
			a.kubelet.before = before
		}
	}
}

// countLosses begins to count the pods that the restart has cost, once the
// kubelet is healthy.
func (a *Agent) countLosses(ctx context.Context) {
	before, cause := a.kubelet.before, a.kubelet.beforeCause
	if before == nil {
		return
	}

	a.kubelet.before = nil
	a.losses = append(a.losses, begin(ctx, a.tasks, func(ctx context.Context) (message string) {
		before.wait(ctx)
		select {
		case <-ctx.Done():
			return ""
		case <-time.After(lossDelay):
		}

		active := before.result
		s := a.p.Nodes.Current() // a trial watches the pods
		if !s.Complete {
			s = a.p.Nodes.Snapshot(ctx)
		}

		if lost, _ := lostPods(s.Pods, active, nil); len(lost) > 0 {
			message = fmt.Sprintf("the restart of the kubelet (%s) ended %d of %s: %s", cause, len(lost), printable.Count(len(active), "pod"),
				printable.Few(lost))
		}

		return message
	}))
}

// reportLosses reports what was counted.
func (a *Agent) reportLosses() {
	a.losses = slices.DeleteFunc(a.losses, func(t *task[string]) bool {
		if t.ended() && t.result != "" {
			a.reportEvent(a.o.Log, trial.Event{Warning: true, Reason: "PodsLost", Message: t.result})
		}

		return t.ended()
	})
}

// ending is how a pod has ended.
type ending int

const (
	notLost   ending = iota // it has not, or by itself, at its own limits, or by a request to the API server
	mayBeLost               // perhaps by the kubelet, for a reason that is not known
	isLost                  // by the kubelet: it lacked a resource, or did not admit the pod again
)

// What the kubelets 1.33 to 1.37 write to the status of a pod that they end.
var (
	evicted, rejected, shutDown = "Evicted", "Pod was rejected: ", "Pod was terminated in response to imminent node shutdown."

	shortage = regexp.MustCompile(`^The node (was low on resource|had condition): `)
	ownLimit = regexp.MustCompile(`^(Usage of EmptyDir volume "[^"]*" exceeds the limit|` +
		`Pod ephemeral local storage usage exceeds the total limit of containers|Container \S+ exceeded its local ephemeral storage limit) `)
	otherEnds = []string{"DeadlineExceeded", "Terminated", "NodeShutdown", "TaintToleration"}
	// rejections are reasons to reject a pod that the kubelet has admitted
	// before, besides a shortage (OutOf...).
	rejections = []string{
		"NodeAffinity", "NodeName", "NodePorts", "UnexpectedAdmissionError", "TopologyAffinityError", "SMTAlignmentError",
		"EmptyPodSharedPoolError", "AppArmor", "SysctlForbidden", "PodFeatureUnsupported", "PodLevelResourcesNotSupported",
		"InitContainerRestartPolicyForbidden", "SupplementalGroupsPolicyNotSupported", "PodOSSelectorNodeLabelDoesNotMatch", "PodOSNotSupported",
	}
)

// endingOf returns how a pod has ended. The final states of its containers may
// have replaced what the kubelet wrote to its status. settled means that the
// kubelet which runs now has not rejected the pod.
func endingOf(p source.Pod, settled bool) ending {
	message, byKubelet := strings.TrimPrefix(p.Message, rejected), p.Disruption == corev1.PodReasonTerminationByKubelet
	if p.Reason == "" && byKubelet {
		message = p.DisruptionMessage
	}

	wasRejected := strings.HasPrefix(p.Message, rejected)
	switch {
	case isActive(p), slices.Contains(otherEnds, p.Reason), message == shutDown, ownLimit.MatchString(message):
		return notLost
	case shortage.MatchString(message), wasRejected && (slices.Contains(rejections, p.Reason) || strings.HasPrefix(p.Reason, "OutOf")):
		return isLost
	case wasRejected, p.Reason == evicted, p.Reason == "Preempting", p.Reason == "" && byKubelet:
		return mayBeLost
	case p.Reason != "", !p.RestartsAlways, p.Deleting, p.Disruption != "", p.LimitsStorage && settled:
		return notLost
	}

	return mayBeLost
}

// lostPods describes those of the pods of before that the kubelet has ended
// since, or may have ended. unexplained means that none of them is known to be
// lost. settled are pods that the kubelet which runs now has not rejected.
func lostPods(pods []source.Pod, before, settled []string) (names []string, unexplained bool) {
	words := map[ending]string{isLost: evicted, mayBeLost: "ended, and it is not known why"} // of an eviction, the condition remains
	for _, p := range pods {
		if e := endingOf(p, slices.Contains(settled, string(p.UID))); e != notLost && slices.Contains(before, string(p.UID)) {
			names = append(names, fmt.Sprintf("pod %s/%s: %s", p.Namespace, p.Name, cmp.Or(p.Reason, words[e])))
			unexplained = e == mayBeLost && (unexplained || len(names) == 1)
		}
	}

	return names, unexplained
}
