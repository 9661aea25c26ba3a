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
	Trial         *Progress
	PodStarts     Promotion // of the active configuration: Starts and Refused only; zero: nothing is known yet
	Bad           []BadConfig
}

// Condition is ConfigOK: the proposal's message and reason, and the CamelCase reason that Kubernetes API conventions
// require.
type Condition struct {
	Status  metav1.ConditionStatus `json:"status"`
	Reason  string                 `json:"reason"`  // CamelCase
	Message string                 `json:"message"` // the effect
	Cause   string                 `json:"cause"`   // the cause: the proposal's "reason"
}

// Progress is the progress of the trial of the active configuration.
type Progress struct {
	StartTime time.Time
	Healthy   time.Duration
	Duration  time.Duration
	Restarts  int // unexpected
	Threshold int
}

func (d *decider) status() Status {
	s, in := d.next, d.o.Intent
	st := Status{Active: s.Run.Config, LastKnownGood: s.LastKnownGood, Local: d.o.Local, Bad: s.Bad}
	if (in.Kind == Assigned || in.Kind == Invalid) && in.Config.Revision != "" {
		c := in.Config
		st.Assigned = &c
	}
	// A trial of last-known-good concerns this node only: a controller would take the node for late.
	if t := s.Trial; t != nil && s.OnTrial(s.Run.Config) && !s.LastKnownGood.Same(s.Run.Config) {
		healthy, restarts := t.Healthy.Duration+s.Run.UnsavedHealthy, max(0, len(s.Startups)-1)
		healthy = min(healthy, max(t.Terms.Duration.Duration, 0)) // it may wait for pods
		st.Trial = &Progress{t.StartTime, healthy, t.Terms.Duration.Duration, restarts, t.Terms.Threshold}
	}
	st.PodStarts = d.podStarts()
	detail := d.condition(&st)
	if w := s.Run.Waiting; st.Condition.Status == metav1.ConditionTrue && w > 0 && w >= d.o.Limits.HealthTimeout {
		st.Condition.Status, st.Condition.Reason = metav1.ConditionUnknown, v1alpha1.ReasonWaitingForLock
		st.Condition.Cause = "the kubelet is waiting for its lock file, which another process holds"
	}
	switch {
	case st.Condition.Status != metav1.ConditionTrue && detail != "":
		st.Error = st.Condition.Cause + ": " + detail
	case st.Condition.Status != metav1.ConditionTrue:
		st.Error = st.Condition.Cause
	case s.Run.Crashes > 0 && !s.Run.Healthy:
		st.Error = "the kubelet exited unexpectedly: " + s.Run.exitReason()
	case d.o.Verdicts[""].Outcome == Rejected: // the kubelet runs all the same, because of --local-invalid=degrade
		st.Error = fmt.Sprintf("failed to validate local %s: %s", d.localLabel(), d.o.Verdicts[""].Message)
	default:
		st.Error = in.Notice
	}
	return st
}

// condition sets ConfigOK and returns the details of what is wrong.
func (d *decider) condition(st *Status) string {
	s, in, run := d.next, d.o.Intent, d.next.Run.Config
	set := func(status metav1.ConditionStatus, reason, message, cause string) {
		st.Condition = Condition{status, reason, message, cause}
	}
	runs := d.conditionMessage()
	if s.Run.DeadEnd {
		set(metav1.ConditionFalse, v1alpha1.ReasonDeadEnd, runs,
			fmt.Sprintf("%s keeps failing and there is nothing to fall back to", label(run, d.o.Local)))
		return s.Run.exitReason()
	}
	if d.blocked.status != "" {
		set(d.blocked.status, d.blocked.reason, runs, d.blocked.cause)
		return d.blocked.detail
	}
	switch in.Kind {
	case Nil:
		d.localCondition(set)
	case Assigned:
		return d.assignedCondition(set, runs)
	case Unassigned:
		if s.Current.IsLocal() {
			d.localCondition(set)
		} else {
			set(metav1.ConditionUnknown, v1alpha1.ReasonSyncFailed, runs, "failed to sync, desired config unclear, cause: "+in.Cause)
		}
	default:
		set(metav1.ConditionUnknown, cmp.Or(in.Reason, v1alpha1.ReasonSyncFailed), runs,
			"failed to sync, desired config unclear, cause: "+in.Cause)
	}
	return ""
}

func (d *decider) localCondition(set func(status metav1.ConditionStatus, reason, message, cause string)) {
	reason, word := v1alpha1.ReasonLocalDefault, "no init config was provided"
	if d.o.Local == LocalInit {
		reason, word = v1alpha1.ReasonLocalInit, "an init config was provided"
	}
	if !d.next.Run.Config.IsLocal() {
		set(metav1.ConditionUnknown, v1alpha1.ReasonLocalInvalid, d.conditionMessage(), "could not use current "+d.localLabel())
		return
	}
	set(metav1.ConditionTrue, reason, "using current "+d.localLabel(), "current is set to the local default, and "+word)
}

func (d *decider) assignedCondition(set func(status metav1.ConditionStatus, reason, message, cause string), runs string) string {
	s, c := d.next, d.o.Intent.Config
	if s.Run.Config.Revision == c.Revision {
		set(metav1.ConditionTrue, v1alpha1.ReasonAllChecksPassed, fmt.Sprintf("using current %s", c.UIDLabel()), "all checks passed")
		return ""
	}
	if b, bad := s.BadEntry(c); bad {
		cause := b.Reason
		if b.Revision != c.Revision {
			cause = fmt.Sprintf("refused current %s: it has the same content as %s, which is bad: %s", c.UIDLabel(), b.UIDLabel(), b.Reason)
		}
		set(metav1.ConditionFalse, b.Failure, runs, cause)
		return b.Detail
	}
	if d.hasEnded(c) {
		set(metav1.ConditionTrue, v1alpha1.ReasonAssignmentEnded, runs, fmt.Sprintf("the assignment of current %s ended at %s", c.UIDLabel(),
			clock(s.Temporary.Ended)))
		return ""
	}
	if t := s.Trial; t != nil && t.Fallback == Inconclusive {
		other := "last-known-good"
		if s.LastKnownGood.Same(c) {
			other = "local"
		}
		set(metav1.ConditionUnknown, v1alpha1.ReasonInconclusive, runs,
			fmt.Sprintf("the trial of current %s was inconclusive: %s failed too", c.UIDLabel(), other))
		return s.Run.exitReason()
	}
	if t := s.Trial; t != nil && t.Fallback == APIProbe {
		set(metav1.ConditionUnknown, v1alpha1.ReasonLostAPI, runs,
			fmt.Sprintf("the API was lost soon after current %s was started", c.UIDLabel()))
		return ""
	}
	set(metav1.ConditionUnknown, v1alpha1.ReasonSyncFailed, runs,
		fmt.Sprintf("failed to sync, desired config unclear, cause: current %s was not started yet", c.UIDLabel()))
	return ""
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

// UIDLabel names a configuration that is not local by its UID. Revisions of a node's own ConfigMap share its UID: their label also
// contains the part of the revision that identifies the content.
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
