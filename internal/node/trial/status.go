// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// Status is what the node reports.
type Status struct {
	Assigned      *Config // nil: nothing is assigned, or the assignment is not known
	Active        Config
	LastKnownGood AdoptedConfig
	Local         LocalConfig
	Condition     Condition
	Error         string
	Trial         *v1alpha1.Trial // of the active configuration; nil: none, or it is of last-known-good
	PodStarts     Promotion       // of the active configuration: Starts and Refused only; zero: nothing is known yet
	Bad           []BadConfig
}

// Condition is ConfigOK: the proposal's message and reason, and the CamelCase
// reason that Kubernetes API conventions require.
type Condition struct {
	Status  metav1.ConditionStatus `json:"status"`
	Reason  string                 `json:"reason"`  // CamelCase
	Message string                 `json:"message"` // the effect
	Cause   string                 `json:"cause"`   // the cause: the proposal's "reason"
}

func (d *decider) status() Status {
	s, in := d.next, d.o.Intent
	st := Status{Active: s.Run.Config, LastKnownGood: s.LastKnownGood, Local: d.o.Local, Bad: s.Bad}
	if (in.Kind == Assigned || in.Kind == Invalid) && in.Config.Revision != "" {
		c := in.Config
		st.Assigned = &c
	}

	// A trial of last-known-good concerns this node only: a controller would
	// take the node for late.
	if t := s.Trial; t != nil && s.OnTrial(s.Run.Config) && !s.LastKnownGood.Same(s.Run.Config) {
		duration := t.Terms.Duration.Duration
		healthy := min(t.Healthy.Duration+s.Run.UnsavedHealthy, max(duration, 0)) // it may wait for pods
		st.Trial = &v1alpha1.Trial{
			StartTime:      new(metav1.NewTime(t.StartTime)),
			HealthySeconds: int64(healthy / time.Second), DurationSeconds: int64(duration / time.Second),
			Restarts: int64(max(0, len(s.Startups)-1)), CrashLoopThreshold: int64(t.Terms.Threshold),
		}
	}

	st.PodStarts = d.podStarts()
	var detail string
	st.Condition, detail = d.condition()
	if w := s.Run.Waiting; st.Condition.Status == metav1.ConditionTrue && w > 0 && w >= d.o.Limits.HealthTimeout {
		st.Condition.Status, st.Condition.Reason = metav1.ConditionUnknown, v1alpha1.ReasonWaitingForLock
		st.Condition.Cause = "the kubelet is waiting for its lock file, which another process holds"
	}

	switch {
	case st.Condition.Status != metav1.ConditionTrue:
		st.Error = withDetail(st.Condition.Cause, detail)
	case s.Run.Crashes > 0 && !s.Run.Healthy:
		st.Error = "the kubelet exited unexpectedly: " + s.Run.exitReason()
	case d.o.Verdicts[""].Outcome == Rejected: // the kubelet runs all the same, because of --local-invalid=degrade
		st.Error = fmt.Sprintf("failed to validate local %s: %s", d.localLabel(), d.o.Verdicts[""].Message)
	default:
		st.Error = in.Notice
	}

	return st
}

// condition returns ConfigOK and the details of what is wrong.
func (d *decider) condition() (ok Condition, detail string) {
	s, in := d.next, d.o.Intent
	ok = Condition{
		Status: metav1.ConditionUnknown, Reason: cmp.Or(in.Reason, v1alpha1.ReasonSyncFailed), Message: d.conditionMessage(),
		Cause: "failed to sync, desired config unclear, cause: " + in.Cause,
	}
	switch {
	case s.Run.DeadEnd:
		ok.Status, ok.Reason = metav1.ConditionFalse, v1alpha1.ReasonDeadEnd
		ok.Cause = fmt.Sprintf("%s keeps failing and there is nothing to fall back to", label(s.Run.Config, d.o.Local))
		return ok, s.Run.exitReason()
	case d.blocked.status != "":
		ok.Status, ok.Reason, ok.Cause = d.blocked.status, d.blocked.reason, d.blocked.cause
		return ok, d.blocked.detail
	case in.Kind == Assigned:
		return d.assignedCondition(ok)
	case in.Kind == Nil, in.Kind == Unassigned && s.Current.IsLocal():
		return d.localCondition(ok), ""
	}

	return ok, ""
}

func (d *decider) localCondition(ok Condition) Condition {
	if !d.next.Run.Config.IsLocal() {
		ok.Reason, ok.Cause = v1alpha1.ReasonLocalInvalid, "could not use current "+d.localLabel()
		return ok
	}

	ok.Status, ok.Reason, ok.Message = metav1.ConditionTrue, v1alpha1.ReasonLocalDefault, "using current "+d.localLabel()
	ok.Cause = "current is set to the local default, and no init config was provided"
	if d.o.Local == LocalInit {
		ok.Reason, ok.Cause = v1alpha1.ReasonLocalInit, "current is set to the local default, and an init config was provided"
	}

	return ok
}

func (d *decider) assignedCondition(ok Condition) (condition Condition, detail string) {
	s, c, t := d.next, d.o.Intent.Config, d.next.Trial
	b, bad := s.BadEntry(c)
	switch {
	case s.Run.Config.Revision == c.Revision:
		ok.Status, ok.Reason, ok.Cause = metav1.ConditionTrue, v1alpha1.ReasonAllChecksPassed, "all checks passed"
		ok.Message = "using current " + c.UIDLabel()
	case bad:
		ok.Status, ok.Reason, ok.Cause = metav1.ConditionFalse, b.Failure, b.Reason
		if b.Revision != c.Revision {
			ok.Cause = fmt.Sprintf("refused current %s: it has the same content as %s, which is bad: %s", c.UIDLabel(), b.UIDLabel(), b.Reason)
		}

		return ok, b.Detail
	case d.hasEnded(c):
		ok.Status, ok.Reason = metav1.ConditionTrue, v1alpha1.ReasonAssignmentEnded
		ok.Cause = fmt.Sprintf("the assignment of current %s ended at %s", c.UIDLabel(), clock(s.Temporary.Ended))
	case t != nil && t.Fallback == Inconclusive:
		other := "last-known-good"
		if s.LastKnownGood.Same(c) {
			other = "local"
		}

		ok.Reason = v1alpha1.ReasonInconclusive
		ok.Cause = fmt.Sprintf("the trial of current %s was inconclusive: %s failed too", c.UIDLabel(), other)

		return ok, s.Run.exitReason()
	case t != nil && t.Fallback == APIProbe:
		ok.Reason, ok.Cause = v1alpha1.ReasonLostAPI, fmt.Sprintf("the API was lost soon after current %s was started", c.UIDLabel())
	default:
		ok.Cause = fmt.Sprintf("failed to sync, desired config unclear, cause: current %s was not started yet", c.UIDLabel())
	}

	return ok, ""
}

// conditionMessage returns which configuration runs, in the proposal's words.
func (d *decider) conditionMessage() string {
	s, run := d.next, d.next.Run.Config
	if s.Run.Deferred {
		return "using last-known-good " + label(run, d.o.Local)
	}

	intended := s.Current.Config
	switch in := d.o.Intent; in.Kind {
	case Assigned:
		intended = in.Config
	case Nil:
		intended = Config{}
	}

	switch {
	case run.Revision == intended.Revision:
		return "using current " + label(run, d.o.Local)
	case s.LastKnownGood.Same(run):
		return "using last-known-good " + label(run, d.o.Local)
	default:
		return "using " + label(run, d.o.Local)
	}
}

func (d *decider) localLabel() string { return label(Config{}, d.o.Local) }

// label names a configuration as the proposal does.
func label(c Config, l LocalConfig) string {
	if c.IsLocal() {
		return "(" + string(l) + ")"
	}

	return c.UIDLabel()
}

// UIDLabel names a configuration that is not local by its UID. Revisions of a
// node's own ConfigMap share its UID: their label also contains the part of the
// revision that identifies the content.
func (c Config) UIDLabel() string { return uidLabel(c.Revision, c.ConfigRevision) }

// UIDLabel is Config.UIDLabel.
func (b BadConfig) UIDLabel() string { return uidLabel(b.Revision, b.ConfigRevision) }

func uidLabel(key string, c v1alpha1.ConfigRevision) string {
	revision, values := sourceRevision(key, c.ResolvedSHA256), strings.TrimPrefix(v1alpha1.ValuesSuffix(c.ResolvedSHA256), "-")
	words := "UID: " + revision
	if content, ok := strings.CutPrefix(revision, string(c.UID)+"-"); ok && c.UID != "" {
		words = "UID: " + string(c.UID) + ", content: " + content
	}
	if values != "" {
		words += ", values: " + values
	}

	return "(" + words + ")"
}

// Reasons of events. docs/operating.md lists them.
const (
	eventForgotten           = "Forgotten"
	eventConfigChanged       = "ConfigChanged"
	eventConfigRejected      = "ConfigRejected"
	eventConfigOnTrial       = "ConfigOnTrial"
	eventConfigRolledBack    = "ConfigRolledBack"
	eventConfigLastKnownGood = "ConfigLastKnownGood"
	eventPodsCannotStart     = "PodsCannotStart"
	eventInconclusive        = "Inconclusive"
	eventTrialResumed        = "TrialResumed"
	eventAPILost             = "APILost"
	eventDeadEnd             = "DeadEnd"
	eventAssignmentEnded     = "AssignmentEnded"
)
