// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/controller/drain"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

const (
	countsInterval       = time.Second      // between status writes in which only counts have changed
	countsIntervalMoving = 5 * time.Second  // and while NodeConfigs are written
	invalidInterval      = 30 * time.Second // between steps of an invalid rollout: the cause may be an object that is not watched
	// batchTime is how long one step writes NodeConfigs before the rollout is
	// planned again: a stop must not wait for thousands of writes.
	batchTime = 2 * time.Second
)

// planInput is what rollout.Plan gets, with the rollout that it was built from.
type planInput struct {
	object *v1alpha1.NodeConfigRollout
	rollout.Input
	nodes []rollout.Node
}

// step does the next work of a rollout: gather, plan, record, move. It returns
// when the next step is due if nothing changes until then; zero: none is.
func (c *Controller) step(ctx context.Context, r *rolloutEntry) (next time.Time, err error) {
	if until, err := c.rereadUncertain(ctx, r); err != nil || !until.IsZero() {
		return until, err
	}

	in, err := c.gather(ctx, r)
	if errors.Is(err, errEdited) {
		return c.fleet.now(), nil
	} else if err != nil {
		return time.Time{}, err
	}

	result, again := c.planWithBudgets(ctx, r, in)
	next, err = c.record(ctx, r, in, result)
	if again {
		next = c.fleet.now()
	}
	if err != nil {
		return next, err
	}
	if !again {
		c.fleet.setStartup(in.object.Name, in.nodes, result.Startup)
	}

	c.measure(ctx, r, in, result)
	finished := true
	if len(result.Moves) > 0 {
		finished, err = c.move(ctx, r, in, result)
	}
	if err == nil && finished && len(result.Ask) > 0 {
		finished, err = c.askAbout(ctx, in, result)
	}
	if err != nil {
		return next, err
	}
	if !finished {
		next = c.fleet.now()
	}

	c.passProbes(ctx, in, result)

	return earliest(next, r.createAgain), c.drain(ctx, in, result)
}

// errEdited means that a rollout's spec changed during gather.
var errEdited = errors.New("the rollout was edited")

// gather builds the input of rollout.Plan. It creates missing NodeConfigs and
// the ConfigMap of the target.
func (c *Controller) gather(ctx context.Context, r *rolloutEntry) (*planInput, error) {
	in := &planInput{object: c.fleet.object(r)}
	if !in.object.Spec.Frozen {
		c.createMissing(ctx, r, in.object)
	}
	if r.decided == nil {
		c.fleet.setClockOffset(r)
	}

	if rollout.Drains(&in.object.Spec) {
		may, err := c.mayDrain.check(c.fleet.now(), func() (bool, error) { return drain.MayDrain(ctx, c.kubernetes) })
		if err != nil {
			return nil, err
		}

		c.settings.Drain = &may
	}

	var err error
	if in.Input, err = c.inputOf(ctx, r, in.object); err != nil {
		return nil, err
	}

	in.Measurements = c.measurements.results(in.UID, in.Spec.Strategy.Gates)
	if r.decided != nil {
		in.Status, in.GatesSince = *r.decided, r.gatesSince
	}
	if mode := in.Spec.Strategy.Preflight; mode != "" && mode != v1alpha1.PreflightOff {
		in.PreflightRoom -= c.fleet.unanswered(string(in.UID), in.Controller.AgentTimeout.Duration)
	}

	var current bool
	in.nodes, current = c.fleet.planNodes(r, in.object.Generation, c.nodes[:0])
	if !current {
		return nil, errEdited
	}

	c.nodes = in.nodes
	in.ControlPlanes, in.ReadsPods = c.fleet.otherControlPlanes(r), true

	return in, nil
}

// inputOf returns the input of a rollout's plan, without nodes. It creates the
// ConfigMap of the target if there is none. If the template is invalid, the
// target stays as it is.
func (c *Controller) inputOf(ctx context.Context, r *rolloutEntry, o *v1alpha1.NodeConfigRollout) (in rollout.Input, err error) {
	all := c.fleet.objectsOf(o)
	all.Settings = c.settings
	all.Settings.StartProbe = c.mayProbe(ctx, o)
	if all.Template, err = c.template(ctx, r, o); err != nil {
		return in, err
	}

	readPods, err := c.mayReadPods(ctx, r, o)
	if err != nil {
		return in, err
	}

	all.ReadPods = &readPods
	all.Now = c.fleet.timeOf(r)
	if in = fleet.Build(all); in.Invalid == "" {
		uid, err := c.ensureRevision(ctx, o, all.Template.Content, in.Target)
		if invalid := (*invalidTemplate)(nil); errors.As(err, &invalid) {
			all.Template.Err = invalid
			in = fleet.Build(all)
		} else if err != nil {
			return in, err
		} else {
			in.Target.ConfigMapRef.UID = uid
		}
	}

	in.Term = c.term
	c.fleet.setOutages(r, &in)
	if l := &in.LastSucceeded.ConfigMapRef; in.LastSucceededGone && r.reportedGone != l.UID {
		r.reportedGone = l.UID
		c.report(o, rollout.Event{Warning: true, Reason: "RevisionGone", Message: fmt.Sprintf(
			"ConfigMap %s/%s of revision %d is gone: nodes that run the revision keep it, but rollback to it is impossible", l.Namespace, l.Name,
			in.LastSucceeded.Number)})
	}

	return in, nil
}

// plan calls rollout.Plan and measures it.
func (c *Controller) plan(in *planInput) *rollout.Result {
	began := time.Now()
	result := rollout.Plan(in.Input, in.nodes)
	c.metrics.plan.Observe(time.Since(began).Seconds())
	return &result
}

// record writes what a plan decided before anything else is done: observations
// of nodes, the rollout's status, and whether the target was stopped. Then it
// reports the plan's events and metrics. It returns when the next step is due.
func (c *Controller) record(ctx context.Context, r *rolloutEntry, in *planInput, result *rollout.Result) (next time.Time, err error) {
	if err := c.writeObservations(ctx, in.nodes, result.Observations); err != nil {
		return time.Time{}, err
	}
	if next, err = c.recordStatus(ctx, r, in, result); err != nil {
		return time.Time{}, err
	}
	if err := c.markStopped(ctx, in.object, in.Target, result.Next.Halt); err != nil {
		return time.Time{}, err
	}

	c.metrics.report(in.object.Name, result)
	for _, e := range result.Events {
		if len(e.Assigned) == 0 { // the others are true only after the moves
			c.report(in.object, e)
		}
	}

	planned := in.Now.Add(-r.clockOffset) // on the fleet's clock
	if result.RequeueAfter > 0 {
		next = earliest(next, nextPlan(planned, c.fleet.now(), result))
	}

	next = earliest(next, c.notifier.Rollout(c.fleet.object(r), len(result.Moves) > 0, c.fleet.now()))
	if in.Invalid != "" {
		next = earliest(next, planned.Add(invalidInterval))
	}

	return next, nil
}

// nextPlan returns when a plan asks for the next one. planned is the time of
// the plan, in whole seconds: until the next second, the next plan would be the
// same, unless the moves of this one change something.
func nextPlan(planned, now time.Time, result *rollout.Result) time.Time {
	due := planned.Add(result.RequeueAfter)
	if !due.After(now) && len(result.Moves) == 0 {
		due = planned.Add(time.Second)
	}

	return due
}

// recordStatus writes the rollout's status. It returns when delayed counts are
// due to be written.
func (c *Controller) recordStatus(ctx context.Context, r *rolloutEntry, in *planInput, result *rollout.Result) (time.Time, error) {
	o := in.object
	st := &result.Next
	changed, decided := changesOf(&o.Status, st)
	interval := countsInterval
	if len(result.Moves) > 0 {
		interval = countsIntervalMoving
	}

	r.decided, r.gatesSince = st, result.GatesSince
	if due := r.statusWritten.Add(interval); changed && !decided && c.fleet.now().Before(due) {
		return due, nil
	}

	if changed {
		got := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: o.Name}}
		if err := c.patchStatus(ctx, o, st, got); err != nil {
			r.decided = nil // the next plan starts from the stored status
			return time.Time{}, c.statusFailed(ctx, o, err)
		}

		c.metrics.wrote("rollout", "ok")
		c.fleet.setRollout(got)
		r.statusWritten = c.fleet.now()
	}

	return time.Time{}, nil
}

// patchStatus writes the status of an object if the object has not changed. got
// becomes the stored object.
func (c *Controller) patchStatus(ctx context.Context, o client.Object, st any, got client.Object) error {
	data, err := json.Marshal([]operation{
		{"test", "/metadata/uid", o.GetUID()}, {"test", "/metadata/resourceVersion", o.GetResourceVersion()}, {"add", "/status", st},
	})
	if err != nil {
		return fmt.Errorf("encode the status of %s: %w", o.GetName(), err)
	}

	return c.client.Status().Patch(ctx, got, client.RawPatch(types.JSONPatchType, data), fieldManager)
}

// statusFailed handles an error of patchStatus: it reads the rollout again,
// unless the error would come back.
func (c *Controller) statusFailed(ctx context.Context, o *v1alpha1.NodeConfigRollout, err error) error {
	if apierrors.IsForbidden(err) || unknownField(err) {
		c.metrics.wrote("rollout", "error")
		return advise("patch nodeconfigrollouts.evenkeel.dev/v1alpha1 status", err)
	}

	c.metrics.wrote("rollout", "conflict")
	got := &v1alpha1.NodeConfigRollout{}
	if c.client.Get(ctx, types.NamespacedName{Name: o.Name}, got) == nil {
		c.fleet.setRollout(got)
	}

	return fmt.Errorf("write the status of NodeConfigRollout %s: %w", o.Name, err)
}

// writeFailed reports an error of a write to a node.
func (c *Controller) writeFailed(o *v1alpha1.NodeConfigRollout, err error) {
	c.report(o, rollout.Event{Warning: true, Reason: "WriteFailed", Message: err.Error()})
}

// createMissing creates the NodeConfigs that a rollout lacks. The other nodes
// do not wait for one that cannot be created: it is tried again later, and the
// status and /readyz say why.
func (c *Controller) createMissing(ctx context.Context, r *rolloutEntry, o *v1alpha1.NodeConfigRollout) {
	if c.fleet.now().Before(r.createAgain) {
		return
	}

	err := c.createNodeConfigs(ctx, r)
	if err == nil {
		r.uncreated, r.createFailures, r.createAgain = nil, 0, time.Time{}
		return
	}

	r.createFailures++
	r.createAgain = c.fleet.now().Add(min(longestRetry, time.Second<<min(r.createFailures, 10)))
	if r.createFailures >= lastingFailures && (r.uncreated == nil || r.uncreated.Error() != err.Error()) {
		r.uncreated = err
		c.writeFailed(o, err)
	}
}

// move writes the specs of the nodes that a plan moves, and reports the nodes
// that were assigned the target. It reports whether all were written before the
// batch's time was over.
func (c *Controller) move(ctx context.Context, r *rolloutEntry, in *planInput, result *rollout.Result) (finished bool, err error) {
	began := time.Now()
	if err := c.confirmTerm(ctx, in.object.Name, in.Target, result.Moves); err != nil {
		return false, err
	}

	batch, cancel := context.WithTimeout(ctx, batchTime)
	defer cancel()
	var mu sync.Mutex
	var assigned []string
	err = c.forEachParallel(batch, len(result.Moves), func(i int) error {
		m := result.Moves[i]
		var trial *v1alpha1.TrialTerms
		if m.Source.Content().UID == in.Target.ConfigMapRef.UID { // an older revision may need other terms
			trial = in.object.Spec.Trial
		}

		err := c.moveNode(context.WithoutCancel(ctx), &in.nodes[m.Node], m, trial) // a write that has begun is finished: it is short
		if errors.Is(err, errConflict) {
			c.log.Debug("the NodeConfig has changed; planning again", "rollout", r.name, "err", err)
			return nil
		}

		if err == nil && m.Kind == rollout.Assign {
			mu.Lock()
			defer mu.Unlock()
			assigned = append(assigned, in.nodes[m.Node].Name)
		}

		return err
	})
	c.log.Debug("moved", "rollout", r.name, "nodes", len(result.Moves), "took", time.Since(began), "err", err)
	if r.assignedRevision != in.Target.Number { // of an unfinished batch
		r.assignedNodes, r.assignedRevision = nil, in.Target.Number
	}

	r.assignedNodes = append(r.assignedNodes, assigned...)
	switch {
	case errors.Is(err, errNotLeader):
		return false, err // the new leader reports
	case err != nil:
		if err.Error() != r.reportedError {
			r.reportedError = err.Error()
			c.writeFailed(in.object, err)
		}

		return false, err
	case batch.Err() != nil:
		return false, nil
	}

	r.reportedError = ""
	for _, e := range result.Events {
		if len(e.Assigned) == 0 {
			continue
		}

		if len(r.assignedNodes) > len(result.Moves) { // with those of the steps before
			slices.Sort(r.assignedNodes)
			e = in.NodesAssigned(result.Next.Step, r.assignedNodes)
		}

		c.report(in.object, e)
	}

	r.assignedNodes = nil

	return true, nil
}
