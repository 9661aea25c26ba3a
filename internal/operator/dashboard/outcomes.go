// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// logEntry is something that happened to a rollout or to a node.
type logEntry struct {
	Time    time.Time `json:"time"`
	Node    string    `json:"node,omitempty"` // empty: the rollout
	Kind    string    `json:"kind"`           // Normal or Warning
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Source  string    `json:"source"` // Event, or Outcome: what a NodeConfig still shows
}

// The sources of entries.
const (
	sourceEvent   = "Event"
	sourceOutcome = "Outcome"
)

// maxLogEntries is the number of entries that a log has at most.
const maxLogEntries = 500

// Reasons of entries that outcomes give.
const (
	reasonAssigned = "Assigned"
	reasonOnTrial  = "OnTrial"
	reasonPassed   = "TrialPassed"
	reasonFailed   = "Failed"
)

// eventsOf are the reasons of the agent's Events that say the same as an outcome.
var eventsOf = map[string][]string{
	reasonOnTrial: {"ConfigChanged", "ConfigOnTrial", "TrialResumed"},
	reasonPassed:  {"ConfigLastKnownGood"},
	reasonFailed:  {"ConfigRolledBack", "ConfigRejected", "ConfigRefused", v1alpha1.ReasonDeadEnd},
}

// sameTime is the time between an outcome and the Event about it. Agents write the status and the Event together.
const sameTime = time.Minute

// oldestEvent is how long before it is stored an Event can have happened: agents write Events later if the API is away.
const oldestEvent = time.Hour

// eventEntry returns the entry of an Event. Its time is that of its writer, unless that cannot be right.
func eventEntry(e *corev1.Event, now time.Time) logEntry {
	at, stored := cmp.Or(e.LastTimestamp.Time, e.EventTime.Time), e.CreationTimestamp.Time
	if e.Series != nil {
		at = cmp.Or(e.Series.LastObservedTime.Time, at)
	}
	if at.IsZero() || at.After(now) || at.Before(stored.Add(-oldestEvent)) {
		at = stored
	}
	entry := logEntry{Time: at.UTC(), Kind: corev1.EventTypeNormal, Reason: printable.Line(e.Reason), Message: printable.Line(e.Message),
		Source: sourceEvent}
	if e.Type == corev1.EventTypeWarning {
		entry.Kind = corev1.EventTypeWarning
	}
	if e.InvolvedObject.Kind == "Node" || e.InvolvedObject.Kind == "NodeConfig" {
		entry.Node = printable.Line(e.InvolvedObject.Name)
	}
	count := e.Count
	if e.Series != nil {
		count = max(count, e.Series.Count)
	}
	if count > 1 {
		entry.Message += " (" + printable.Count(int(count), "time") + ")"
	}
	return entry
}

// outcomesOf returns what a NodeConfig shows of the past of its node. With a rollout, it is about that one only. all includes what
// happens to every node, whatever the outcome. The times are those of the node, but not before the assignment, nor after now.
func outcomesOf(nc *v1alpha1.NodeConfig, rollout string, all bool, now time.Time) []logEntry {
	var out []logEntry
	st := &nc.Status
	assigned, what := time.Time{}, "the assigned configuration"
	by, uid := nc.Spec.ConfigSource.By(), nc.Spec.ConfigSource.Content().UID
	if uid == "" || rollout != "" && by.Name != rollout {
		return nil
	}
	if by.Name != "" {
		assigned, what = clampTime(by.AssignedAt.Time, time.Time{}, now, now), fmt.Sprintf("revision %d of rollout %s", by.Revision, by.Name)
	}
	add := func(at *metav1.Time, kind, reason, message string) {
		if at == nil || at.IsZero() {
			return
		}
		out = append(out, logEntry{
			Time: clampTime(at.Time, assigned, now, now).UTC(), Node: printable.Line(nc.Name), Kind: kind, Reason: reason,
			Message: printable.Line(message), Source: sourceOutcome,
		})
	}
	runs := st.Active != nil && st.Active.UID == uid
	if all && !assigned.IsZero() {
		add(&by.AssignedAt, corev1.EventTypeNormal, reasonAssigned, fmt.Sprintf("%s was assigned (attempt %d)", what, by.Attempt))
	}
	if all && runs && st.Trial != nil {
		add(st.Trial.StartTime, corev1.EventTypeNormal, reasonOnTrial, what+" runs on trial")
	}
	if good := st.LastKnownGood; good != nil && good.UID == uid {
		add(good.Since, corev1.EventTypeNormal, reasonPassed, what+" passed its trial")
	}
	c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionConfigOK)
	fails := c != nil && c.Status == metav1.ConditionFalse
	if bad := slices.IndexFunc(st.BadConfigs, func(b v1alpha1.BadConfig) bool { return b.UID == uid }); bad >= 0 {
		b := st.BadConfigs[bad]
		why := b.Reason
		if fails {
			why = describe.JoinWords(c.Reason, cmp.Or(st.Error, c.Message))
		}
		add(b.Time, corev1.EventTypeWarning, reasonFailed, describe.JoinWords(what+" failed", why))
	} else if fails {
		add(&c.LastTransitionTime, corev1.EventTypeWarning, reasonFailed,
			describe.JoinWords(what+" was refused", describe.JoinWords(c.Reason, cmp.Or(st.Error, c.Message))))
	}
	return out
}

// mergeLog returns Events and the outcomes that no Event is about, the newest first, at most maxLogEntries. left is the number of
// older entries that it omits.
func mergeLog(events, outcomes []logEntry) (log []logEntry, left int) {
	byNode := map[string][]logEntry{}
	for _, e := range events {
		if e.Node != "" {
			byNode[e.Node] = append(byNode[e.Node], e)
		}
	}
	log = append([]logEntry{}, events...)
	for _, o := range outcomes {
		told := slices.ContainsFunc(byNode[o.Node], func(e logEntry) bool {
			return slices.Contains(eventsOf[o.Reason], e.Reason) && e.Time.Sub(o.Time).Abs() <= sameTime
		})
		if !told {
			log = append(log, o)
		}
	}
	slices.SortStableFunc(log, func(a, b logEntry) int { return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(a.Node, b.Node)) })
	if len(log) > maxLogEntries {
		log, left = log[:maxLogEntries], len(log)-maxLogEntries
	}
	return log, left
}
