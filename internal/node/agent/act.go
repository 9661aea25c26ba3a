package agent

import (
	"context"
	"time"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// render writes what the kubelet is to be started with, before the one that
// runs is stopped. What cannot be rendered is as good as not there, for a while.
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
	dir, err := a.renderFiles(c.Revision, p)
	if err != nil {
		a.markUnavailable(c.Revision, err) // no other copy of it would help
		return component.RunConfig{}, err
	}
	a.kubelet.ranRemote = true
	return component.RunConfig{Dir: dir, Dropin: p.Key == payload.KeyKubeletDropin}, nil
}

func (a *Agent) renderFiles(revision string, p payload.Payload) (dir string, err error) {
	files, err := a.p.Kubelet.Files(p)
	if err != nil {
		return "", err
	}
	return a.disk.store.Render(revision, files)
}

// carryOut starts or restarts the kubelet as decided. A kubelet that cannot be
// started is an exit like any other, and decided upon.
func (a *Agent) carryOut(ctx context.Context, action trial.Action, run component.RunConfig) {
	if action.Kind != trial.Start && action.Kind != trial.Restart || ctx.Err() != nil {
		return // told to end: the next start decides the same again
	}
	log := a.log(action.Config).With("cause", action.Cause)
	if a.kubelet.process != nil {
		begin := time.Now()
		exit := a.kubelet.process.Stop(a.o.StopGrace)
		log.Info("kubelet stopped for a change", "exit", exit.String(), "took", time.Since(begin))
		a.kubelet.process = nil
		if ctx.Err() != nil || a.binaryChanged() {
			return // told to end; or to be decided again, with what is known of the new binary
		}
	}
	a.kubelet.lease = &leaseObserver{since: time.Now()}
	if a.p.Nodes != nil && a.state.Trial != nil { // last-known-good is to show that it does better, too
		go a.kubelet.lease.readBase(ctx, a.p.Nodes) // now that no kubelet renews it, and before one does
	}
	if err := a.start(ctx, action, run); err != nil {
		log.Error("the kubelet cannot be started", "err", err)
		a.kubelet.exit = &trial.Child{Exited: true, Exit: err.Error()}
		return
	}
	a.decided = time.Now() // how long the one before took to stop says nothing of this one
	log.Info("kubelet started")
	a.o.Metrics.started(action.Cause)
	a.collect()
}

func (a *Agent) start(ctx context.Context, action trial.Action, run component.RunConfig) error {
	v := a.verdictFor(action.Config)
	a.moveManagerState(action, v.EffectiveOrAssumed())
	a.kubelet.config, a.kubelet.verdict = action.Config, v
	a.kubelet.wasHealthy = false
	process, err := a.p.Kubelet.Start(ctx, run, v.EffectiveOrAssumed())
	if err != nil {
		return err
	}
	a.kubelet.process = process
	return nil
}

// known is what a configuration amounts to, as its dry run found; else, of the
// content that was started last, as it was then.
func (a *Agent) verdictFor(c trial.Config) verdict {
	v, _ := a.validations.get(c.Revision)
	switch {
	case v.EffectiveOrAssumed() != nil:
		return v
	case c.IsLocal():
		return a.validations.local
	case c.Payload != "" && c.Payload == a.kubelet.config.Payload:
		return a.kubelet.verdict
	}
	return verdict{}
}

// collect removes the checkpoints and rendered files that nothing names.
func (a *Agent) collect() {
	if a.disk.store == nil {
		return
	}
	if err := a.disk.store.Collect(a.state.Current.Revision, a.state.LastKnownGood.Revision, a.state.Run.Config.Revision, a.assignment.config.Revision); err != nil {
		a.o.Log.Warn("cannot remove what is not needed any more", "err", err)
	}
}

// setAsideState moves away what the CPU or memory manager left and the
// configuration contradicts: a kubelet that finds it exits. Only where a
// configuration of evenkeel's doing is involved: with a local configuration
// that was edited by hand, the kubelet's own refusal stands.
func (a *Agent) moveManagerState(action trial.Action, effective component.Effective) {
	if effective == nil || a.disk.store == nil || action.Cause == trial.CauseCrash {
		return
	}
	if action.Config.IsLocal() && !a.kubelet.ranRemote && len(a.disk.store.Rendered()) == 0 {
		return
	}
	conflicts, err := a.p.Kubelet.Conflicts(effective)
	if err != nil {
		a.o.Log.Warn("cannot look at the managers' state", "err", err)
		return
	}
	if len(conflicts) == 0 {
		return
	}
	moved, err := a.p.Kubelet.MoveAside(conflicts, time.Now())
	if err != nil {
		a.o.Log.Error("cannot move the managers' state aside", "err", err)
	}
	for _, file := range moved {
		a.reportEvent(a.log(action.Config), trial.Event{Warning: true, Reason: "StateMovedAside", Message: "the CPU or memory manager's state contradicted the configuration and was moved to " + file})
	}
}

// watch looks at the node as long as that matters to the decisions.
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
		a.p.Nodes.Start(ctx) // also where it is on: a new kubelet renews the Lease
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
	started    time.Time
	wasHealthy bool // at the last decision
	ranRemote  bool // this agent has started a kubelet with an assigned configuration
}
