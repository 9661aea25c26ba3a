// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/node/trial"
)

// gather updates what observe reads: the source's answer, requests to forget, the verdict on the local configuration, and the
// state of the node.
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
	a.compareErrors()
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

// takeAnswer takes a new answer from the source, and drops verdicts that it makes obsolete.
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

// updateNode counts the pods. In a trial it also updates what is known about the Node's Lease.
func (a *Agent) updateNode() {
	s := a.node.view.now(a.p.Nodes)
	if s.Reachable && s.Complete {
		counts := countPodsForStatus(s.Pods)
		if c := a.node.counts; c != nil && time.Since(a.kubelet.started) < probeTime {
			counts.probed, counts.probedStatic = max(counts.probed, c.probed), max(counts.probedStatic, c.probedStatic)
		}
		a.node.counts = counts
	}
	if a.kubelet.process != nil && (a.state.Trial != nil || a.state.Run.AfterTrial > 0) {
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

// restartNodeWatch restarts the watch in a trial if the Node's Lease is overdue: the watch has already seen the renewal, and
// polls rarely.
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
