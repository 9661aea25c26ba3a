// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agent is the loop that runs on a node: it observes the kubelet,
// checks whether the node and its pods permit a change (the guards), calls
// trial.Decide, saves the decision, starts and restarts the kubelet, and
// reports status, metrics and the agent's own health (/healthz, /configz). How
// observations are gathered and decisions carried out belongs here.
//
// It must not know how a kubelet is validated, how files are made durable, or
// how the API is watched. It must never decide by itself which configuration
// runs: that is package trial.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/node/trial"
)

// ErrLocalInvalid says that the local configuration is invalid, so there is no
// fallback. The proposal requires that the agent then refuses to start.
var ErrLocalInvalid = errors.New("the local configuration is invalid")

// Agent runs one node's kubelet.
//
// The goroutine of Run owns all fields. Its tasks and other goroutines may use
// only what locks itself: the counters of validations, node.view,
// kubelet.lease, page (the HTTP server), and Parts.SavedConfigs (the source).
type Agent struct {
	o Options
	p Parts

	state   trial.State // what the node remembers
	decided time.Time   // the last decision; zero: none

	tasks       tasks
	quiet       tasks // those whose end makes no decision necessary
	disk        disk
	binary      binary
	kubelet     kubelet
	assignment  assignment
	validations checks
	node        node
	guard       guard
	preflight   preflight
	drift       drift
	losses      []*task[string] // what restarts have cost
	reports     reports
	page        page
}

// New returns an agent that has not started anything.
func New(o Options, p Parts) *Agent {
	if o.Metrics == nil {
		o.Metrics = NewMetrics("", o.AgentVersion, "")
	}

	o.UnansweredLimit = cmp.Or(o.UnansweredLimit, unansweredLimit)
	if p.SavedConfigs == nil {
		p.SavedConfigs = &SavedConfigs{}
	}

	running := &sync.WaitGroup{}

	return &Agent{
		o: o, p: p,
		kubelet:     kubelet{lease: &leaseObserver{}},
		validations: newChecks(),
		tasks:       tasks{running: running, changed: make(chan struct{}, 1)},
		quiet:       tasks{running: running},
		reports:     reports{objects: map[string][2]string{}},
	}
}

// Run runs the kubelet until ctx ends, then stops it cleanly and returns nil.
// It returns ErrLocalInvalid, the error of Options.GiveUp, or the reason why no
// kubelet can run.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer a.awaitTasks() // no dry run outlives the node's lock, which the caller releases
	defer cancel()
	err := a.refreshVersion(ctx)
	a.p.SavedConfigs.open()
	if err != nil {
		return err
	}

	a.initialSync(ctx)
	for ctx.Err() == nil {
		if err := a.pass(ctx); err != nil {
			a.stop()
			return err
		}
	}

	a.stop()

	return nil
}

// awaitTasks waits until all tasks have ended, which their context has told
// them to, for at most half a minute.
func (a *Agent) awaitTasks() {
	ended := make(chan struct{})
	go func() {
		a.tasks.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(30 * time.Second): // the kernel does not end a process that waits for a disk; the next kubelet must not wait for it
		a.o.Log.Error("a dry run does not end; going on without it")
	}
}

// initialSync waits, for at most the sync timeout, for the source's first
// answer and the state of the node before the kubelet starts. Meanwhile the
// local configuration is validated.
func (a *Agent) initialSync(ctx context.Context) {
	a.validate(ctx, []trial.Config{{}})
	if a.p.Source != nil {
		syncCtx, cancel := context.WithTimeout(ctx, a.o.SyncTimeout)
		defer cancel()
		counted := a.countPods(ctx) // for a trial that may begin at once, and for the first report
		a.assignment.answer = a.p.Source.First(syncCtx)
		counted.wait(syncCtx)
	}

	if local := a.validations.byRev[""]; local != nil {
		local.wait(ctx)
	}
}

// pass is one pass of the agent's loop: gather, save the download, observe,
// decide and save, report, act, and wait for a change.
func (a *Agent) pass(ctx context.Context) error {
	if a.kubelet.process == nil { // a running kubelet has the version that it was started with
		if err := a.refreshVersion(ctx); err != nil {
			a.o.Log.Error("cannot examine the kubelet's binary", "err", err)
		}
	}

	a.gather()
	a.reportLosses()
	a.judgePreflight(ctx)
	a.saveDownload()
	a.restartNodeWatch(ctx)
	a.recountPods(ctx)
	o := a.observe(ctx)
	if a.kubelet.hasExited() { // while a runtime that hung was asked: the decision that sees the end of the outage must see the exit
		if a.handleExit(ctx); ctx.Err() != nil {
			return nil
		}

		o = a.observe(ctx)
	}

	a.checkDrift(ctx, o)
	a.renewVerdicts(ctx, &o)
	if a.o.GiveUp != nil {
		if err := a.o.GiveUp(o.Now, o.Child.Healthy); err != nil {
			a.reportEvent(a.o.Log, trial.Event{Warning: true, Reason: "KubeletGivenUp", Message: err.Error()})
			a.flush(ctx, a.o.SyncTimeout)
			return err
		}
	}

	before := a.state.Run
	d := a.decide(ctx, &o)
	if d.Action.Kind == trial.Refuse {
		a.report(ctx, d, o)
		a.flush(ctx, a.o.SyncTimeout)
		return fmt.Errorf("%w: %s", ErrLocalInvalid, d.Action.Message)
	}

	a.reportEvents(ctx, d, o)
	run, err := a.render(d.Action)
	if err != nil {
		a.log(d.Action.Config).Error("cannot prepare the start of a configuration; continuing without it", "err", err)
		if a.state.Run = before; a.kubelet.process == nil {
			a.state.Run = trial.Run{} // as at the agent's start
		}

		return nil
	}

	if d.Action.Kind != trial.None {
		a.kubelet.started = o.Now // the report before the start has it: lastHeartbeatTime changes at each start
	}

	a.report(ctx, d, o)
	a.carryOut(ctx, d.Action, run)
	a.validate(ctx, d.Validate)
	a.watch(ctx, d)
	if d.Action.Kind != trial.None {
		return nil
	}

	wake := d.Wake
	if t := d.Next.Trial; t != nil {
		a.validate(ctx, []trial.Config{d.Next.LastKnownGood.Config, {}}) // now, so that a rollback does not wait for them
		if left := time.Second - t.Healthy.Duration - d.Next.Run.UnsavedHealthy; d.Status.Trial != nil && d.Next.Run.Healthy && left > 0 {
			wake = min(wake, left) // the first healthy second opens a new node to pods: it is reported at once
		}
	}

	a.wait(ctx, wake)

	return nil
}

// decide decides and saves the next state. It decides again with each fact that
// a decision needs: verdicts on the present basis if the kubelet would be
// started, the answer of the pod guard, and, if the disk rejects a state that
// must be saved before the node acts on it, that failure.
func (a *Agent) decide(ctx context.Context, o *trial.Observed) trial.Decision {
	o.Guard = a.permit()
	d := trial.Decide(a.state, *o)
	if starts := d.Action.Kind != trial.None || d.Ask != nil; starts && a.validations.dropOther(a.basis(o.LocalDigest)) {
		a.validate(ctx, []trial.Config{{}})
		o.Verdicts = a.verdicts()
		d = trial.Decide(a.state, *o)
	}

	if d.Ask != nil {
		o.Guard = a.ask(ctx, *d.Ask)
		d = trial.Decide(a.state, *o)
	} else if !d.Refused {
		a.guard = guard{}
	}

	if !a.save(d.Next) && (a.state.MustPersist(d.Next) || len(o.Forget) > 0) {
		o.Storage, o.Forget = a.disk.failure, nil
		a.node.view.set(source.NodeState{Cause: "they are counted again after a disk failure"})
		d = trial.Decide(a.state, *o)
		a.save(d.Next)
	}

	a.state, a.decided, a.kubelet.exit = d.Next, o.Now, nil
	a.p.SavedConfigs.set(a.disk.store, a.state)
	a.removeForgetRequests(o.Forget)

	return d
}

// flush waits until the last report has been written, for at most this time.
func (a *Agent) flush(ctx context.Context, timeout time.Duration) {
	if a.p.Reporter == nil {
		return
	}

	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	a.p.Reporter.Flush(ctx)
}

// stop stops the kubelet because the agent ends.
func (a *Agent) stop() {
	if err := a.o.Init.Stopping(); err != nil {
		a.o.Log.Warn("cannot notify the init system", "err", err)
	}
	if a.p.Nodes != nil {
		a.p.Nodes.Stop()
	}

	if a.kubelet.process != nil {
		exit := a.kubelet.process.Stop(a.o.StopGrace)
		a.o.Log.Info("kubelet stopped", "exit", exit.String())
		a.kubelet.process = nil
	}

	if !a.save(trial.CleanShutdown(a.state)) {
		a.o.Log.Warn("cannot save the clean shutdown", "err", a.disk.failure)
	}
}

// wait waits until a decision may have another result.
func (a *Agent) wait(ctx context.Context, wake time.Duration) {
	for _, left := range []time.Duration{a.guardWait(), a.heldFor()} {
		if left > 0 {
			wake = min(wake, left)
		}
	}

	var done, changed, intent, node <-chan struct{}
	if a.kubelet.process != nil {
		done, changed = a.kubelet.process.Done(), a.kubelet.process.Changed()
	}
	if a.p.Source != nil {
		intent, node = a.p.Source.Changed(), a.p.Nodes.Changed()
	}

	select {
	case <-ctx.Done():
	case <-time.After(wake):
	case <-changed:
	case <-intent:
	case <-node:
		a.guard.changed = true
	case <-a.tasks.changed:
	case <-done:
		a.handleExit(ctx)
	}
}

// handleExit notes an unexpected exit. After one with status 0 it waits for a
// moment: the init system may be stopping everything, and its SIGTERM for the
// agent follows.
func (a *Agent) handleExit(ctx context.Context) {
	exit, lastErrors := a.kubelet.process.Exit(), a.kubelet.process.LastErrors()
	a.kubelet.process = nil
	if exit.Code == 0 {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}

	if ctx.Err() != nil {
		return
	}

	a.log(a.state.Run.Config).Warn("the kubelet exited unexpectedly", "exit", exit.String())
	a.kubelet.exit = &trial.Child{Exited: true, Spawned: true, Exit: exit.String(), LastErrors: lastErrors}
}
