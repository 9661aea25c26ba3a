// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/node/trial"
)

// reportEvents reports what has just happened.
func (a *Agent) reportEvents(ctx context.Context, d trial.Decision, o trial.Observed) {
	a.page.last.Store(&lastDecision{o.Now, o.Child.Healthy})
	a.o.Metrics.health(o.Child.Healthy)
	for _, e := range d.Events {
		a.reportEvent(a.log(a.assignment.config), e)
		if e.Failure != "" {
			a.o.Metrics.rolledBack(e.Failure)
		}
	}

	if o.Child.Healthy && !a.kubelet.wasHealthy {
		a.log(a.state.Run.Config).Info("the kubelet is healthy", "took", o.Now.Sub(a.kubelet.started))
		a.countLosses(ctx)
	}

	a.kubelet.wasHealthy = o.Child.Healthy
	if o.Child.Healthy && d.Action.Kind == trial.None && !a.assignment.since.IsZero() && a.isRunning(a.assignment.config.Revision) {
		a.o.Metrics.changed(o.Now.Sub(a.assignment.since))
		a.assignment.since = time.Time{}
	}

	if o.Child.Healthy && !a.reports.ready {
		err := a.o.Init.Ready()
		if a.reports.ready = err == nil; err != nil {
			a.o.Log.Warn("cannot report the healthy kubelet to the init system; retrying", "err", err)
		}
	}
}

// report reports the present state: log, status, metrics, /configz. It reports
// nothing while a verdict is missing.
func (a *Agent) report(ctx context.Context, d trial.Decision, o trial.Observed) {
	if len(d.Validate) > 0 {
		return
	}

	shown := a.kubelet.verdict
	if d.Action.Kind != trial.None {
		shown = a.verdictFor(d.Action.Config)
	}

	overridden, values := shown.Overridden, shown.values
	if d.Status.Active.IsLocal() {
		overridden, values = nil, nil
	}

	st := d.Status
	if a.disk.failure != "" && st.Error == "" {
		st.Error = "cannot save the node's state: " + a.disk.failure
	}

	var workload, unready *int64
	if c := a.node.counts; c != nil {
		workload, unready = &c.workload, new(c.unreadyOnRestart(shown.Effective, a.nextMinor(ctx)))
	}

	limits := a.validations.limits()
	public := a.published(st)
	status := nodeConfigStatus(public, limits, v1alpha1.NodeConfigStatus{
		ObservedGeneration: a.assignment.answer.Generation, RemoteConfig: a.o.Remote, RunMode: a.o.RunMode,
		ComponentVersion: a.binary.version, AgentVersion: a.o.AgentVersion, OverriddenFields: overridden,
		WorkloadPods: workload, PodsUnreadyOnRestart: unready, Preflight: a.preflight.answer, Drift: a.drift.found,
		DefaultTrialSeconds: new(int64(a.o.Limits.TrialDuration / time.Second)), ResolvedValues: values,
	})
	if a.isForeign(d.Status.Active.Namespace) {
		status.OverriddenFields, status.ResolvedValues = nil, nil
	}

	if a.p.Reporter != nil && !a.isHeldBack(d, o) {
		a.reports.since, a.reports.lastKnownGood = a.assignment.since, st.LastKnownGood.Revision
		a.p.Reporter.Report(source.Report{
			NodeConfigUID: a.assignment.answer.NodeConfigUID, Status: status, KubeletStart: a.kubelet.started,
			Condition:  metav1.Condition{Status: st.Condition.Status, Reason: public.Condition.Cause, Message: st.Condition.Message},
			Configured: configured(public, status.ObservedGeneration),
		})
	}

	a.o.Metrics.status(st, status, a.object)
	if st.Condition != a.reports.condition {
		if slices.Contains(refusals, st.Condition.Reason) && d.Action.Kind != trial.Refuse {
			a.reportEvent(a.log(a.assignment.config), trial.Event{Warning: true, Reason: "ConfigRefused", Message: st.Condition.Cause})
		}

		a.log(a.assignment.config).Info(v1alpha1.ConditionConfigOK, "status", st.Condition.Status, "reason", st.Condition.Reason, "message",
			st.Condition.Message+": "+st.Condition.Cause, "words", st.Error)
		if err := a.o.Init.Status(st.Condition.Message + ": " + st.Condition.Cause); err != nil {
			a.o.Log.Debug("cannot notify the init system", "err", err)
		}

		a.reports.condition = st.Condition
	}

	c := Configz{
		Source: configzSource(st), Remote: a.o.Remote, RunMode: a.o.RunMode, ConfigOK: st.Condition, Error: st.Error, Component: a.binary.version,
		Effective: presentable(shown.Effective), Origins: shown.Origins, Differs: shown.differs, Overridden: overridden, Limits: limits,
		Resolved: values,
	}
	page := &c
	if !a.state.Run.Started {
		page = nil
	}

	a.page.configz.Store(page)
	a.saveRunning(c)
}

// unansweredLimit is the default of Options.UnansweredLimit.
const unansweredLimit = 30 * time.Second

// silenceFactor is how many times UnansweredLimit a report is held back while
// the API server is silent: it would arrive too late, and add to the load.
const silenceFactor = 10

// isHeldBack reports whether the source or the pod guard has had no answer for
// so short a time that this is not worth a write. Never held back are: the
// generation of an assignment whose ConfigMap cannot be read, a kubelet that
// does not run, a start of the kubelet, and the end of a trial.
func (a *Agent) isHeldBack(d trial.Decision, o trial.Observed) bool {
	r, answer := &a.reports, a.assignment.answer
	unread := answer.Kind == trial.Unanswered && answer.Generation == 0
	promoted := d.Status.LastKnownGood.Revision != r.lastKnownGood
	if !unread && !a.guard.unanswered || !o.Child.Alive || d.Action.Kind != trial.None || promoted {
		r.heldSince, r.refusedSince, r.heldUntil = time.Time{}, time.Time{}, time.Time{}
		return false
	}

	if r.heldSince.IsZero() {
		r.heldSince = o.Now
	}

	r.heldUntil = r.heldSince.Add(silenceFactor * a.o.UnansweredLimit)
	if !unread || !answer.Silent {
		if r.refusedSince.IsZero() {
			r.refusedSince = o.Now
			if since := a.assignment.since; a.guard.unanswered && !since.IsZero() && !since.Equal(r.since) {
				r.refusedSince = since // since then, the controller waits
			}
		}

		if until := r.refusedSince.Add(a.o.UnansweredLimit); until.Before(r.heldUntil) {
			r.heldUntil = until
		}
	}

	return a.heldFor() > 0
}

// heldFor returns how long the report may still be held back.
func (a *Agent) heldFor() time.Duration { return max(0, time.Until(a.reports.heldUntil)) }

// saveRunning saves the content of /configz for `evenkeel-agent status`.
func (a *Agent) saveRunning(c Configz) {
	if a.o.SaveRunning == nil {
		return
	}

	text, err := json.Marshal(c)
	if err == nil && bytes.Equal(text, a.reports.saved) {
		return
	}
	if err == nil {
		err = a.o.SaveRunning(text)
	}
	if err != nil && !a.reports.saveFailed {
		a.o.Log.Warn("cannot save the description of the running kubelet; evenkeel-agent status shows less", "err", err)
	}
	if a.reports.saveFailed = err != nil; err == nil {
		a.reports.saved = text
	}
}

// refusals are reasons that get an Event although they are neither a verdict
// nor a transition.
var refusals = []string{v1alpha1.ReasonWouldEvictPods, v1alpha1.ReasonRestartWouldEvictPods, v1alpha1.ReasonNeedsDrain,
	v1alpha1.ReasonProtectedFields, v1alpha1.ReasonRevoked, v1alpha1.ReasonLocalInvalid}

// reportEvent writes a log line and an Event on the Node.
func (a *Agent) reportEvent(log *slog.Logger, e trial.Event) {
	if e.Warning {
		log.Warn(e.Message, "event", e.Reason)
	} else {
		log.Info(e.Message, "event", e.Reason)
	}

	if a.p.Reporter != nil {
		severity := source.Normal
		if e.Warning {
			severity = source.Warning
			if a.readsForeign() {
				e.Message = withheld
			}
		}

		a.p.Reporter.Event(severity, e.Reason, e.Message)
	}
}

// object returns the resource version of the ConfigMap that contains a
// configuration, and its key; "" if they are not known.
func (a *Agent) object(c trial.Config) (resourceVersion, key string) {
	if o, ok := a.reports.objects[c.Revision]; ok {
		return o[0], o[1]
	}
	if len(a.reports.objects) > 20 {
		clear(a.reports.objects)
	}

	var cm corev1.ConfigMap
	if raw, err := a.disk.store.Get(c); err == nil && json.Unmarshal(raw, &cm) == nil {
		for key := range cm.Data { // there is exactly one
			a.reports.objects[c.Revision] = [2]string{cm.ResourceVersion, key}
		}
	}

	o := a.reports.objects[c.Revision]

	return o[0], o[1]
}

// reports is what was reported last, so that it is not repeated.
type reports struct {
	ready         bool // to the init system
	condition     trial.Condition
	since         time.Time            // of the assignment that was reported
	lastKnownGood string               // the revision that was reported
	heldSince     time.Time            // since when isHeldBack had a reason; zero: it has none
	refusedSince  time.Time            // since when this is a refusal, or the pods are unknown
	heldUntil     time.Time            // the report is held back; zero: it is not
	objects       map[string][2]string // resource version and key of ConfigMaps, by revision
	saved         []byte               // the last description for Options.SaveRunning
	saveFailed    bool
}

// log returns a logger with a configuration's attributes, which
// docs/operating.md, Logs, lists.
func (a *Agent) log(c trial.Config) *slog.Logger {
	if c.IsLocal() {
		return a.o.Log.With("uid", "")
	}

	log := a.o.Log.With("uid", c.Revision, "namespace", c.Namespace, "name", c.Name)
	if c.Rollout.Name != "" {
		log = log.With("rollout", c.Rollout.Name, "revision", c.Rollout.Revision)
	}

	return log
}
