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

// gather updates what observe reads: the source's answer, requests to forget,
// the verdict on the local configuration, and the state of the node.
func (a *Agent) gather() {
	for _, err := range a.p.SavedConfigs.takeProblems() {
		a.reportEvent(a.o.Log, trial.Event{Warning: true, Reason: "StateProblem", Message: err.Error() + "; it is downloaded again"})
	}
	if a.disk.store != nil && a.p.Source != nil {
		a.takeAnswer()
	}

	a.disk.requested = nil
	if a.disk.store != nil && !a.disk.waits(time.Now()) {
		a.disk.requested = a.readForgetRequests()
	}
	if local, ok := a.validations.get(""); ok && local.EffectiveOrAssumed() != nil {
		a.validations.local = local
	}
	if a.p.Nodes != nil {
		a.updateNode()
	}
}

// assignment is what the source returned last.
type assignment struct {
	answer       source.Answer
	config       trial.Config // that the answer names
	since        time.Time    // when an assignment was first seen; zero: the kubelet runs it
	saved        trial.Config // the revision that was saved last, with the digest of the file
	saveErr      error        // why the answer's ConfigMap could not be saved
	values       resolution   // of the rules
	redownloaded time.Time    // when the source was last asked to download a checkpoint again
}

// takeAnswer takes a new answer from the source, and drops verdicts that it
// makes obsolete.
func (a *Agent) takeAnswer() {
	answer := a.resolve(a.p.Source.Current())
	before, config := a.assignment.answer, answer.Config
	a.assignment.answer = answer
	if answer.Kind == before.Kind && config == a.assignment.config && answer.Generation == before.Generation &&
		answer.Cause == before.Cause && answer.Notice == before.Notice {
		return
	}

	a.log(config).Info("new answer from the source", "intent", answer.Kind.String(), "generation", answer.Generation, "cause", answer.Cause,
		"notice", answer.Notice)
	local := answer.Kind == trial.Nil || a.state.RemovedBy(answer.Intent)
	if local && answer.Kind != before.Kind {
		a.validations.drop("") // the file may have been edited since the start
	}

	if config.Revision != a.assignment.config.Revision || config.Rollout.Attempt != a.assignment.config.Rollout.Attempt {
		a.assignment.since = time.Time{}
		if !a.isRunning(config.Revision) {
			a.validations.drop(config.Revision) // each assignment is validated in the present situation
			if answer.Kind == trial.Assigned || local {
				a.assignment.since = time.Now()
			}
		}

		a.validations.keep(a.state.Current.Revision, a.state.LastKnownGood.Revision, config.Revision)
	}

	a.assignment.config = config
}

// saveDownload saves the ConfigMap that the source has downloaded.
func (a *Agent) saveDownload() {
	if a.disk.store == nil || a.p.Source == nil {
		return
	}

	revision := a.assignment.config.Revision
	a.assignment.saveErr = nil
	if a.assignment.answer.Kind != trial.Assigned || a.assignment.answer.ConfigMap == nil || a.assignment.saved.Revision == revision {
		return
	}
	if a.assignment.saveErr = a.checkpoint(revision); a.assignment.saveErr != nil {
		return
	}
	if v, _ := a.validations.get(revision); v.unavailable {
		a.validations.drop(revision)
	}
}

// checkpoint saves the answer's ConfigMap.
func (a *Agent) checkpoint(revision string) error {
	data, err := withValues(a.assignment.answer.ConfigMap, a.assignment.values.of(revision))
	if err != nil {
		return err
	}

	sum, err := a.disk.store.Put(revision, data)
	if err == nil {
		a.assignment.saved = trial.Config{Revision: revision, Checkpoint: sum}
	}

	return err
}

// updateNode counts the pods. In a trial it also updates what is known about
// the Node's Lease.
func (a *Agent) updateNode() {
	s := a.node.view.now(a.p.Nodes)
	if s.Reachable && s.Complete {
		counts := countPodsForStatus(s.Pods)
		if c := a.node.counts; c != nil && time.Since(a.kubelet.started) < probeTime {
			counts.probed, counts.probedStatic = max(counts.probed, c.probed), max(counts.probedStatic, c.probedStatic)
		}

		a.node.counts = counts
	}

	if a.kubelet.process != nil && (a.state.Trial != nil || a.state.Run.AfterTrial > 0 || a.node.watching) {
		a.kubelet.pods.update(a.kubelet.process.PodRefusals(), a.p.Nodes.Current(), a.node.watching, a.state.Trial)
	}

	if a.state.Trial != nil {
		a.kubelet.lease.update(s)
		if !a.kubelet.admitted && a.state.Run.HealthyFor >= lossDelay {
			if s = a.p.Nodes.Current(); s.Reachable && s.Complete { // not an earlier request
				a.kubelet.settled, a.kubelet.admitted = append(a.kubelet.settled, podUIDs(s.Pods, true)...), true
			}
		}
	}
}

// restartNodeWatch restarts the watch in a trial if the Node's Lease is
// overdue: the watch has already seen the renewal, and polls rarely.
func (a *Agent) restartNodeWatch(ctx context.Context) {
	if a.p.Nodes == nil || a.state.Trial == nil || !a.node.watching {
		return
	}
	if !a.kubelet.lease.renewed(a.node.view.now(a.p.Nodes)) && a.kubelet.lease.overdue() {
		a.p.Nodes.Start(ctx)
	}
}

// isRunning reports whether a revision was started last.
func (a *Agent) isRunning(revision string) bool {
	return a.state.Run.Started && a.state.Run.Config.Revision == revision
}

// observe returns what the agent sees now, without the verdicts. It changes
// nothing.
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

// intent returns the source's answer, after the downloaded ConfigMap has been
// saved.
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

// podUIDs returns the UIDs of the pods that are active, or of those that are
// not.
func podUIDs(pods []source.Pod, active bool) (uids []string) {
	for _, p := range pods {
		if isActive(p) == active {
			uids = append(uids, string(p.UID))
		}
	}

	return uids
}
