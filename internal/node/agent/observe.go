// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/node/trial"
)

// observe returns what the agent sees now, without the verdicts. It changes nothing.
func (a *Agent) observe(ctx context.Context) trial.Observed {
	now := time.Now()
	o := trial.Observed{
		Now:         now,
		BootID:      a.o.BootID,
		Limits:      a.o.Limits,
		Local:       a.p.Kubelet.Local(),
		LocalDigest: a.p.Kubelet.LocalDigest(),
		Child:       a.child(),
		Intent:      a.intent(),
		Node:        a.nodeState(ctx),
		Forget:      a.disk.requested,
	}
	if a.disk.store != nil && a.p.Source != nil {
		o.Revoked = a.assignment.answer.Revoked
	}
	if !a.decided.IsZero() {
		o.Elapsed = now.Sub(a.decided) // monotonic
	}
	if a.disk.waits(now) {
		o.Storage = a.disk.failure
	}
	o.Limits.APILossRollback = a.o.APILoss == "on" ||
		a.o.APILoss == "auto" && a.p.Kubelet.RunsStaticPods(a.validations.local.EffectiveOrAssumed())
	return o
}

func (a *Agent) child() trial.Child {
	if a.kubelet.exit != nil {
		return *a.kubelet.exit
	}
	if a.kubelet.process == nil {
		return trial.Child{}
	}
	return trial.Child{Alive: true, Healthy: a.kubelet.process.Healthy(), Waiting: a.kubelet.process.Waiting()}
}

// intent returns the source's answer, after the downloaded ConfigMap has been saved.
func (a *Agent) intent() trial.Intent {
	switch {
	case a.disk.store == nil:
		return trial.Intent{Kind: trial.Nil} // dynamic configuration is off: the state is empty and stays empty
	case a.p.Source == nil:
		return trial.Intent{Kind: trial.Unanswered, Cause: "the kubelet has no kubeconfig, so the agent has no API server"}
	}
	in := a.assignment.answer.Intent
	switch {
	case in.Kind != trial.Assigned:
	case a.assignment.answer.ConfigMap == nil:
		in.Config.Checkpoint = a.p.SavedConfigs.get(in.Config.Revision).Checkpoint
	case a.assignment.saveErr != nil:
		return trial.Intent{Kind: trial.Unanswered, Config: in.Config,
			Cause: fmt.Sprintf("cannot save ConfigMap %s/%s: %v", in.Config.Namespace, in.Config.Name, a.assignment.saveErr)}
	default:
		in.Config.Checkpoint = a.assignment.saved.Checkpoint
	}
	return in
}

// nodeState returns the state of the node, as far as it matters now.
func (a *Agent) nodeState(ctx context.Context) trial.Node {
	var n trial.Node
	if a.p.Nodes != nil {
		s := a.node.view.now(a.p.Nodes)
		n.API, n.Pressure = s.Reachable, s.Pressure
		n.Ready = s.Ready && (a.state.Trial == nil || a.kubelet.lease.renewed(s))
		n.Pods, n.Failing = podUIDs(s.Pods, true), failing(s.Pods)
		n.Started, n.Refused, n.RefusedUnseen = a.kubelet.pods.started, a.kubelet.pods.refused, a.kubelet.pods.unseen
		if t := a.state.Trial; t != nil {
			n.LostPods, n.LossUnexplained = lostPods(s.Pods, t.Baseline.Pods, a.kubelet.settled)
		}
	}
	if a.state.Trial != nil || a.kubelet.exit != nil || a.kubelet.process == nil {
		ours, theirs := component.RuntimeEndpoint(a.validations.local.EffectiveOrAssumed()),
			component.RuntimeEndpoint(a.kubelet.verdict.EffectiveOrAssumed())
		n.RuntimeDown = ours != "" && (ours == theirs || a.kubelet.verdict.EffectiveOrAssumed() == nil) &&
			a.p.Kubelet.RuntimeReachable(ctx, ours) != nil
	}
	if a.kubelet.exit != nil || a.kubelet.process == nil {
		n.ShuttingDown = a.o.ShuttingDown != nil && a.o.ShuttingDown(ctx)
	}
	return n
}

// isActive reports whether a pod counts against maxPods.
func isActive(p source.Pod) bool {
	return p.Phase != string(corev1.PodFailed) && p.Phase != string(corev1.PodSucceeded)
}

// podUIDs returns the UIDs of the pods that are active, or of those that are not.
func podUIDs(pods []source.Pod, active bool) (uids []string) {
	for _, p := range pods {
		if isActive(p) == active {
			uids = append(uids, string(p.UID))
		}
	}
	return uids
}
