// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// logView is a log, the newest entry first.
type logView struct {
	Entries []logEntry `json:"entries"`
	Note    string     `json:"note,omitempty"` // what is missing, and why
}

const (
	// logTimeout is how long the API server may take to list Events.
	logTimeout = 5 * time.Second
	// maxLogMessage is how many characters of a message are shown.
	maxLogMessage = 500
)

// log answers with the Events and outcomes of a rollout, with ?node= those of
// one of its nodes.
func (c *cluster) log(ctx context.Context, r *http.Request) (any, error) {
	name := r.PathValue("name")
	if _, err := query.Rollout(ctx, c.api, name); err != nil {
		return nil, err
	}

	return c.logOf(ctx, name, r.URL.Query().Get("node"), time.Now()), nil
}

// logOf returns the log of a rollout, or of a node, or of a node in a rollout;
// the other name is empty.
func (c *cluster) logOf(ctx context.Context, rollout, node string, now time.Time) logView {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	v := logView{}
	var outcomes []logEntry
	nodes := c.feed.nodesOf(rollout)
	var configs v1alpha1.NodeConfigList
	if err := c.cache.List(ctx, &configs); err != nil {
		v.note("outcomes are not shown", err)
	}

	for i := range configs.Items {
		nc := &configs.Items[i]
		if node != "" && nc.Name != node {
			continue
		}
		if s := nc.Spec.ConfigSource; s != nil && s.RolloutRef != nil && s.RolloutRef.Name == rollout {
			nodes[nc.Name] = true
		}

		outcomes = append(outcomes, outcomesOf(nc, rollout, node != "", now)...)
	}

	events, err := c.events(ctx, rollout, node, nodes, now)
	switch {
	case apierrors.IsForbidden(err):
		v.Note = "Events are not shown: you are not allowed to list them in the namespace default. The Role evenkeel-view there allows it."
	case err != nil:
		v.note("Events are not shown", err)
	}

	var left int
	if v.Entries, left = mergeLog(events, outcomes); left > 0 {
		v.add(fmt.Sprintf("%d older entries are not shown: choose a node", left))
	}

	for i := range v.Entries {
		v.Entries[i].Message = printable.Brief(printable.Line(v.Entries[i].Message), maxLogMessage)
	}

	return v
}

// events reads the Events of a rollout and of the agents of its nodes, or of
// one node.
func (c *cluster) events(ctx context.Context, rollout, node string, nodes map[string]bool, now time.Time) ([]logEntry, error) {
	all, err := query.NodeEvents(ctx, c.api, node)
	if err == nil && node == "" {
		var more []corev1.Event
		more, err = query.RolloutEvents(ctx, c.api, rollout)
		all = append(all, more...)
	}

	var out []logEntry
	for i := range all {
		if e := eventEntry(&all[i], now); e.Node == "" || e.Node == node || nodes[e.Node] {
			out = append(out, e)
		}
	}

	return out, err
}

// note adds a note about an error.
func (v *logView) note(what string, err error) { v.add(what + ": " + printable.Line(err.Error())) }

func (v *logView) add(words string) { v.Note = strings.TrimPrefix(v.Note+"; "+words, "; ") }

// nodesOf returns the names of the nodes that a rollout owns, as far as they
// are known.
func (f *feed) nodesOf(rollout string) map[string]bool {
	nodes := map[string]bool{}
	for name, c := range f.now().Cells {
		if rollout != "" && c.Rollout == rollout {
			nodes[name] = true
		}
	}

	return nodes
}

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

// eventsOf are the reasons of the agent's Events that say the same as an
// outcome.
var eventsOf = map[string][]string{
	reasonOnTrial: {"ConfigChanged", "ConfigOnTrial", "TrialResumed"},
	reasonPassed:  {"ConfigLastKnownGood"},
	reasonFailed:  {"ConfigRolledBack", "ConfigRejected", "ConfigRefused", v1alpha1.ReasonDeadEnd},
}

// sameTime is the time between an outcome and the Event about it. Agents write
// the status and the Event together.
const sameTime = time.Minute

// oldestEvent is how long before it is stored an Event can have happened:
// agents write Events later if the API is away.
const oldestEvent = time.Hour

// eventEntry returns the entry of an Event. Its time is that of its writer,
// unless that cannot be right.
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

// outcomesOf returns what a NodeConfig shows of the past of its node. With a
// rollout, it is about that one only. all includes what happens to every node,
// whatever the outcome. The times are those of the node, but not before the
// assignment, nor after now.
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

// clampTime returns t, but not before from and not after to. A time that is not
// known becomes unknown.
func clampTime(t, from, to, unknown time.Time) time.Time {
	if t.IsZero() {
		t = unknown
	}
	if t.After(to) {
		t = to
	}
	if t.Before(from) {
		t = from
	}

	return t
}

// mergeLog returns Events and the outcomes that no Event is about, the newest
// first, at most maxLogEntries. left is the number of older entries that it
// omits.
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
