// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/podguard"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// render writes the files for a start, before the running kubelet is stopped.
// After a failure the configuration counts as unavailable for a while.
func (a *Agent) render(action trial.Action) (component.RunConfig, error) {
	c := action.Config
	if action.Kind == trial.None || c.IsLocal() {
		return component.RunConfig{}, nil
	}

	p, err := a.payload(c)
	if err != nil {
		a.requestDownload(c.Revision, err)
		return component.RunConfig{}, err
	}

	var dir string
	files, err := a.p.Kubelet.Files(p)
	if err == nil {
		dir, err = a.disk.store.Render(c.Revision, files)
	}

	if err != nil {
		a.markUnavailable(c.Revision, err) // another download would not help
		return component.RunConfig{}, err
	}

	a.kubelet.ranRemote = true

	return component.RunConfig{Dir: dir, Dropin: p.Key == payload.KeyKubeletDropin}, nil
}

// carryOut starts or restarts the kubelet. A failed start counts as an exit.
func (a *Agent) carryOut(ctx context.Context, action trial.Action, run component.RunConfig) {
	if action.Kind != trial.Start && action.Kind != trial.Restart || ctx.Err() != nil {
		return // the agent ends: the next start decides the same again
	}

	log := a.log(action.Config).With("cause", action.Cause)
	if a.kubelet.process != nil {
		begin := time.Now()
		exit := a.kubelet.process.Stop(a.o.StopGrace)
		log.Info("kubelet stopped for a change", "exit", exit.String(), "took", time.Since(begin))
		a.kubelet.process = nil
		if ctx.Err() != nil || a.binaryChanged() {
			return // the agent ends, or another decision is needed for the new binary
		}
	}

	a.preflight.stop() // it judged the kubelet that ran before
	a.awaitReport(ctx, action)
	a.kubelet.lease, a.kubelet.admitted = &leaseObserver{since: time.Now()}, false
	// After a restart of the agent, it can have no verdict on last-known-good.
	hasty := shorterTimeout(a.verdictFor(action.Config).Effective, a.verdictFor(a.state.LastKnownGood.Config).Effective,
		a.validations.local.Effective)
	a.kubelet.pods = podStarts{since: time.Now(), hasty: hasty}
	a.observeStart(ctx, action.Cause)
	if err := a.start(ctx, action, run); err != nil {
		log.Error("the kubelet cannot be started", "err", err)
		a.kubelet.exit = &trial.Child{Exited: true, Exit: err.Error()}
		return
	}

	a.decided = time.Now() // the time that the old kubelet took to stop does not count for the new one
	log.Info("kubelet started")
	a.o.Metrics.started(action.Cause)
	a.collect()
}

// awaitReport waits half a second for the write of the report on a
// configuration that is not proven: it may prevent reports once it runs.
// Rollbacks and restarts after crashes do not wait, nor does a start while the
// API server is not known to answer.
func (a *Agent) awaitReport(ctx context.Context, action trial.Action) {
	if a.p.Nodes == nil || action.Cause == trial.CauseCrash || !a.state.OnTrial(action.Config) || !a.node.view.now(a.p.Nodes).Reachable {
		return
	}

	a.flush(ctx, 500*time.Millisecond)
}

func (a *Agent) start(ctx context.Context, action trial.Action, run component.RunConfig) error {
	v := a.verdictFor(action.Config)
	a.moveManagerState(ctx, action, v.EffectiveOrAssumed())
	a.kubelet.config, a.kubelet.verdict = action.Config, v
	a.kubelet.wasHealthy = false
	files := a.p.Kubelet.LocalFiles()
	process, err := a.p.Kubelet.Start(ctx, run, v.EffectiveOrAssumed())
	if err != nil {
		return err
	}

	a.kubelet.process = process
	a.drift.started(process, files, time.Now())

	return nil
}

// verdictFor returns the verdict on a configuration: that of its dry run, else
// that of the last start, if the content is the same.
func (a *Agent) verdictFor(c trial.Config) verdict {
	v, _ := a.validations.get(c.Revision)
	switch {
	case v.EffectiveOrAssumed() != nil:
		return v
	case c.IsLocal():
		return a.validations.local
	case c.SHA256 != "" && c.SHA256 == a.kubelet.config.SHA256 && c.ResolvedSHA256 == a.kubelet.config.ResolvedSHA256:
		return a.kubelet.verdict
	}

	return verdict{}
}

// collect removes checkpoints and rendered files that are no longer used.
func (a *Agent) collect() {
	if a.disk.store == nil {
		return
	}

	if err := a.disk.store.Collect(a.state.Current.Revision, a.state.LastKnownGood.Revision, a.state.Run.Config.Revision,
		a.assignment.config.Revision); err != nil {
		a.o.Log.Warn("cannot remove unused files", "err", err)
	}
}

// moveManagerState moves away state of the CPU or memory manager that
// contradicts the configuration, because a kubelet that finds it exits. It does
// so only if an assigned configuration is or was involved: if a person edited
// the local configuration, the kubelet's refusal is correct.
func (a *Agent) moveManagerState(ctx context.Context, action trial.Action, effective component.Effective) {
	if effective == nil || a.disk.store == nil || action.Cause == trial.CauseCrash {
		return
	}
	if action.Config.IsLocal() && !a.kubelet.ranRemote && len(a.disk.store.Rendered()) == 0 {
		return
	}

	in := podguard.Input{Minor: a.nextMinor(ctx), Before: a.kubelet.verdict.Effective, After: effective}
	moved, err := a.p.Kubelet.MoveState(in)
	if err != nil {
		a.o.Log.Error("cannot compare the state of the CPU and memory managers, or move it away", "err", err)
	}

	for _, file := range moved {
		a.reportEvent(a.log(action.Config), trial.Event{Warning: true, Reason: "StateMovedAside",
			Message: "the CPU or memory manager's state contradicted the configuration and was moved to " + file})
	}
}

// watch watches the node closely while decisions depend on it.
func (a *Agent) watch(ctx context.Context, d trial.Decision) {
	a.o.Init.Cover(d.Next.Trial != nil)
	if a.kubelet.process != nil {
		a.kubelet.process.Watch(d.Watch)
	}
	if a.p.Nodes == nil {
		return
	}

	switch {
	case d.Watch && (!a.node.watching || d.Action.Kind != trial.None):
		a.p.Nodes.Start(ctx) // also if it runs: a new kubelet renews the Lease
	case !d.Watch && a.node.watching:
		a.p.Nodes.Stop()
	}

	a.node.watching = d.Watch
}

// kubelet is the kubelet that was started last.
type kubelet struct {
	process    Process      // nil: none runs
	exit       *trial.Child // an unexpected exit that has not been decided upon
	config     trial.Config
	verdict    verdict // on config, at that start
	lease      *leaseObserver
	pods       podStarts
	started    time.Time
	wasHealthy bool     // at the last decision
	settled    []string // pods that this kubelet has not rejected: they had ended before its start in a trial, or were active lossDelay later
	admitted   bool     // settled has the latter
	ranRemote  bool     // this agent has started a kubelet with an assigned configuration
	// before receives the pods that were active before the last restart; nil:
	// its cost is reported already, or will be.
	before      *task[[]string]
	beforeCause trial.Cause
}

// hasExited reports whether the process has exited, which nobody has handled
// yet.
func (k *kubelet) hasExited() bool { return k.process != nil && isClosed(k.process.Done()) }
