// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func someStatus(words string) v1alpha1.NodeConfigStatus {
	return v1alpha1.NodeConfigStatus{
		ObservedGeneration: 1, Error: words, AgentVersion: "v0",
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionConfigOK, Status: metav1.ConditionTrue, Reason: "LocalInit", Message: words, ObservedGeneration: 1}},
	}
}

// reporting starts a reporter for a node with a NodeConfig and, unless late, a
// Node.
func reporting(t *testing.T) (string, *proxy, *Reporter) {
	t.Helper()
	node := newName("node")
	setSpec(t, node, map[string]any{})
	p := newProxy(t, node)
	r := NewReporter(newClient(t, p.Kubeconfig), node, "evenkeel-agent", quiet())
	background(t, r.Run)

	return node, p, r
}

func awaitStatus(t *testing.T, node, words string) v1alpha1.NodeConfigStatus {
	t.Helper()
	return await(t, "the status "+words, func() v1alpha1.NodeConfigStatus { return getNodeConfig(t, node).Status },
		func(s v1alpha1.NodeConfigStatus) bool { return s.Error == words })
}

func conditionOf(t *testing.T, name string) nodeCondition {
	t.Helper()
	return conditionOfType(t, name, v1alpha1.ConditionConfigOK)
}

func conditionOfType(t *testing.T, name, kind string) nodeCondition {
	t.Helper()
	n := &node{}
	assert.NoError(t, assert.Err(admin.do(t.Context(), request{verb: "GET", gv: coreV1, resource: "nodes", name: name}, n)))
	i := slices.IndexFunc(n.Status.Conditions, func(c nodeCondition) bool { return c.Type == kind })
	if i < 0 {
		return nodeCondition{}
	}

	return n.Status.Conditions[i]
}

func TestReportIsWrittenToNodeConfigAndNode(t *testing.T) {
	node, p, r := reporting(t)
	createNode(t, node)
	setConditions(t, node, map[string]string{"Ready": "True"})
	start := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	report := Report{Status: someStatus("a"), Condition: metav1.Condition{Status: "True", Reason: "all checks passed", Message: "using current (UID: 1)"}, KubeletStart: start}
	r.Report(report)
	s := awaitStatus(t, node, "a")
	written := s.Conditions[0]
	assert.That(t, s.ObservedGeneration == 1 && written.Reason == "LocalInit" && written.ObservedGeneration == 1 &&
		!written.LastTransitionTime.IsZero(), "status %+v", s)
	c := await(t, "the condition", func() nodeCondition { return conditionOf(t, node) }, func(c nodeCondition) bool { return c.Type != "" })
	assert.That(t, c.Status == "True" && c.Reason == "all checks passed" && c.Message == "using current (UID: 1)" && c.LastHeartbeatTime.Time.Equal(start.Truncate(time.Second)) && !c.LastTransitionTime.IsZero(),
		"condition %+v", c)
	assert.Equal(t, p.count("PATCH"), 2, "writes")
}

func TestBothConditionsOfTheNodeAreWrittenTogether(t *testing.T) {
	node, p, r := reporting(t)
	createNode(t, node)
	report := Report{Condition: metav1.Condition{Status: "True", Reason: "r", Message: "m"}, Configured: metav1.Condition{Status: "Unknown", Reason: "NothingAssigned", Message: "a"}}
	is := func(message string) nodeCondition {
		return await(t, "the condition "+message, func() nodeCondition { return conditionOfType(t, node, v1alpha1.ConditionNodeConfigured) },
			func(c nodeCondition) bool { return c.Message == message })
	}
	r.Report(report)
	first := is("a")
	ok := conditionOf(t, node)
	assert.That(t, first.Status == "Unknown" && first.Reason == "NothingAssigned" && ok.Message == "m", "%+v, %+v", first, ok)
	report.Configured.Message = "b" // another generation
	r.Report(report)
	second := is("b")
	assert.That(t, second.LastTransitionTime.Equal(&first.LastTransitionTime), "the transition moved with a message: %+v, %+v", first, second)
	report.Configured = metav1.Condition{Status: "True", Reason: "AllChecksPassed", Message: "c"}
	r.Report(report)
	last := is("c")
	assert.That(t, last.Status == "True" && !last.LastTransitionTime.IsZero(), "%+v", last)
	assert.Equal(t, p.count("PATCH", "/nodes/"), 3, "writes")
}

func TestUnchangedReportIsNotWritten(t *testing.T) {
	node, p, r := reporting(t)
	createNode(t, node)
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	report := Report{Status: someStatus("a"), Condition: metav1.Condition{Status: "True", Reason: "r", Message: "m"}, KubeletStart: start}
	report.Status.Trial = &v1alpha1.Trial{DurationSeconds: 600, HealthySeconds: 1}
	r.Report(report)
	awaitStatus(t, node, "a")
	await(t, "the condition", func() nodeCondition { return conditionOf(t, node) }, func(c nodeCondition) bool { return c.Message == "m" })
	first := getNodeConfig(t, node).Status.Conditions[0].LastTransitionTime

	for i := range 5 {
		trial := *report.Status.Trial
		trial.HealthySeconds, trial.Restarts = int64(2+i), int64(i)
		report.Status.Trial = &trial
		r.Report(report)
	}

	report.Status.Trial, report.Status.Error = &v1alpha1.Trial{DurationSeconds: 600, HealthySeconds: 9}, "b"
	r.Report(report)
	s := awaitStatus(t, node, "b")
	assert.That(t, s.Trial.HealthySeconds == 9 && s.Conditions[0].LastTransitionTime.Equal(&first), "status %+v, want 9 healthy seconds and a condition since %v", s, first)
	assert.Equal(t, p.count("PATCH"), 3, "writes")

	// Another agent reads what the first one wrote.
	again := NewReporter(newClient(t, p.Kubeconfig), node, "evenkeel-agent", quiet())
	background(t, again.Run)
	again.Report(report)
	report.KubeletStart = start.Add(time.Minute)
	transition := conditionOf(t, node).LastTransitionTime
	again.Report(report)
	c := await(t, "the heartbeat", func() nodeCondition { return conditionOf(t, node) }, func(c nodeCondition) bool { return c.LastHeartbeatTime.Time.Equal(start.Add(time.Minute)) })
	assert.That(t, c.LastTransitionTime.Equal(&transition), "the transition moved from %v to %v with a heartbeat", transition, c.LastTransitionTime)
	assert.Equal(t, p.count("PATCH", "/nodeconfigs/"), 2, "writes of the status")
}

func TestTransitionTimesMoveWithTheirCondition(t *testing.T) {
	node, _, r := reporting(t)
	createNode(t, node)
	past := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	old := someStatus("old")
	old.Conditions[0].LastTransitionTime = past
	setStatus(t, node, old)
	setNodeConditions(t, node, []nodeCondition{
		{Type: "ConfigOK", Status: "True", Reason: "r", Message: "old", LastTransitionTime: past, LastHeartbeatTime: past},
	})
	r.Report(Report{Status: someStatus("new"), Condition: metav1.Condition{Status: "True", Reason: "r", Message: "old"}})
	assert.That(t, awaitStatus(t, node, "new").Conditions[0].LastTransitionTime.Equal(&past),
		"the status is unchanged, but the transition time moved")
	failed := someStatus("failed")
	failed.Conditions[0].Status = metav1.ConditionFalse
	r.Report(Report{Status: failed, Condition: metav1.Condition{Status: "True", Reason: "r", Message: "new"}})
	assert.That(t, awaitStatus(t, node, "failed").Conditions[0].LastTransitionTime.After(past.Time),
		"the status changed, but the transition time did not move")
	c := await(t, "the condition", func() nodeCondition { return conditionOf(t, node) }, func(c nodeCondition) bool { return c.Message == "new" })
	assert.That(t, c.LastTransitionTime.After(past.Time), "the condition of the Node changed, but the transition time did not move")
}

func TestNewestReportIsWrittenAfterAnOutage(t *testing.T) {
	node, p, r := reporting(t)
	p.fail(all(503))
	for i := range 20 {
		r.Report(Report{Status: someStatus(fmt.Sprint(i))})
	}

	await(t, "an attempt", func() int { return p.count("nodeconfigs") }, func(n int) bool { return n > 0 })
	r.Report(Report{Status: someStatus("newest")})
	p.fail(nil)
	awaitStatus(t, node, "newest")
	n := p.count("PATCH", "/nodeconfigs/") // an attempt may have begun before the newest report
	assert.That(t, n <= 2, "%d writes, want at most 2", n)
}

func TestNodeThatRegistersLaterGetsItsCondition(t *testing.T) {
	node, p, r := reporting(t)
	r.Report(Report{Status: someStatus("a"), Condition: metav1.Condition{Status: "True", Reason: "r", Message: "m"}})
	awaitStatus(t, node, "a")
	await(t, "an attempt", func() int { return p.count("/nodes/") }, func(n int) bool { return n > 0 })
	createNode(t, node)
	await(t, "the condition", func() nodeCondition { return conditionOf(t, node) }, func(c nodeCondition) bool { return c.Message == "m" })
}

func TestNewNodeConfigReceivesWholeStatus(t *testing.T) {
	node, _, r := reporting(t)
	report := Report{NodeConfigUID: getNodeConfig(t, node).UID, Status: someStatus("a")}
	r.Report(report)
	awaitStatus(t, node, "a")
	deleteNodeConfig(t, node)
	setSpec(t, node, map[string]any{})
	report.NodeConfigUID = getNodeConfig(t, node).UID
	r.Report(report)
	awaitStatus(t, node, "a")

	// A report for the old object is not written to the new one.
	deleteNodeConfig(t, node)
	setSpec(t, node, map[string]any{})
	report.Status.Error = "b"
	r.Report(report)
	await(t, "the refusal", func() bool { return getNodeConfig(t, node).Status.Error == "" }, func(empty bool) bool { return empty })
	report.NodeConfigUID = getNodeConfig(t, node).UID
	r.Report(report)
	awaitStatus(t, node, "b")
}

func awaitEvents(t *testing.T, node string, n int) []corev1.Event {
	t.Helper()
	return await(t, "events", func() []corev1.Event {
		var list corev1.EventList
		raw := asAdmin(t, request{verb: "GET", gv: coreV1, namespace: "default", resource: "events", query: map[string]string{"fieldSelector": "involvedObject.name=" + node}})
		assert.NoError(t, json.Unmarshal(raw, &list))
		return list.Items
	}, func(items []corev1.Event) bool { return len(items) >= n })
}

func TestEventsAreWrittenOnTheNode(t *testing.T) {
	node, _, r := reporting(t)
	begin := time.Now().Truncate(time.Second)
	r.Event(Normal, "ConfigChanged", "now using current (UID: 1)")
	r.Event(Warning, "ConfigRejected", strings.Repeat("x", 5000))
	for _, e := range awaitEvents(t, node, 2) {
		assert.That(t, e.InvolvedObject == (corev1.ObjectReference{Kind: "Node", Name: node, UID: types.UID(node)}) && e.Source == (corev1.EventSource{Component: "evenkeel-agent", Host: node}) && !e.FirstTimestamp.Time.Before(begin),
			"event %+v", e)
		if !(e.Type == "Normal" && e.Reason == "ConfigChanged" && e.Message == "now using current (UID: 1)") &&
			!(e.Type == "Warning" && e.Reason == "ConfigRejected" && len(e.Message) == maxEventMessage) {
			t.Errorf("event %+v", e)
		}
	}
}

func TestEventsSurviveAnOutageUpToTheirLimits(t *testing.T) {
	node, p, r := reporting(t)
	p.fail(all(503))
	for i := range maxEvents + 10 {
		r.Event(Normal, "R", fmt.Sprint(i))
	}

	await(t, "an attempt", func() int { return p.count("events") }, func(n int) bool { return n > 0 })
	p.fail(nil)
	for _, e := range awaitEvents(t, node, maxEvents) {
		assert.That(t, len(e.Message) != 1, "event %s was written, although 50 newer ones were queued", e.Message)
	}
}

func TestEventsThatAreRefusedOrTooOldAreDropped(t *testing.T) {
	node, p, r := reporting(t)
	p.fail(of("events", 422))
	r.Event(Normal, "R", "refused")
	await(t, "the attempt", func() int { return p.count("events") }, func(n int) bool { return n > 0 })
	p.fail(nil)
	r.events <- queuedEvent{at: time.Now().Add(-time.Hour), severity: Normal, reason: "R", message: "old"}
	r.Event(Normal, "R", "recent")
	got := awaitEvents(t, node, 1)
	assert.That(t, len(got) == 1 && got[0].Message == "recent", "events %+v, want the last one alone", got)
}

func TestFlushWaitsForTheWrite(t *testing.T) {
	node, p, r := reporting(t)
	createNode(t, node)
	r.Report(Report{Status: someStatus("last words"), Condition: metav1.Condition{Status: "False", Reason: "why", Message: "what"}, KubeletStart: time.Unix(1, 0)})
	r.Flush(t.Context())
	assert.Equal(t, getNodeConfig(t, node).Status.Error, "last words", "the status says")
	c := conditionOf(t, node)
	assert.That(t, c.Reason == "why", "the condition is %+v", c)
	p.fail(all(http.StatusServiceUnavailable))
	r.Report(Report{Status: someStatus("unheard"), Condition: metav1.Condition{Status: "False", Reason: "why", Message: "what"}, KubeletStart: time.Unix(2, 0)})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	r.Flush(ctx)
	assert.That(t, errors.Is(ctx.Err(), context.DeadlineExceeded), "Flush returned before its context ended, with %v", ctx.Err())
}

func TestChangedNumberOfPodsAloneIsNotWritten(t *testing.T) {
	with := func(words string, pods int64) v1alpha1.NodeConfigStatus {
		s := someStatus(words)
		s.WorkloadPods = &pods
		return s
	}
	assert.That(t, equalStatus(with("a", 0), with("a", 7)) && equalStatus(someStatus("a"), with("a", 7)), "a change of the number of workload pods alone was written")
	assert.That(t, !equalStatus(with("a", 7), with("b", 7)), "a changed status was not written")
	node, _, r := reporting(t)
	r.Report(Report{Status: with("a", 3)})
	s := awaitStatus(t, node, "a")
	assert.That(t, s.WorkloadPods != nil && *s.WorkloadPods == 3, "the status says %v workload pods, want 3", s.WorkloadPods)
}

func TestChangedNumberOfUnreadyPodsIsWrittenButNotOften(t *testing.T) {
	node := newName("node")
	setSpec(t, node, map[string]any{})
	p := newProxy(t, node)
	now := time.Now()
	w := &statusWriter{client: newClient(t, p.Kubeconfig), node: node, now: func() time.Time { return now }}
	stored := func() int64 {
		n := getNodeConfig(t, node).Status.PodsUnreadyOnRestart
		if n == nil {
			return -1
		}

		return *n
	}
	for _, tt := range []struct {
		about  string
		later  time.Duration
		pods   *int64
		stored int64
	}{
		{"the first number", 0, new(int64(3)), 3},
		{"another number soon after that", countInterval - time.Second, new(int64(4)), 3},
		{"the number after the interval", time.Second, new(int64(4)), 4},
		{"an unknown number", countInterval, nil, 4},
		{"a known number again", 0, new(int64(5)), 5},
	} {
		now = now.Add(tt.later)
		status := someStatus("a")
		status.PodsUnreadyOnRestart = tt.pods
		assert.NoError(t, w.write(t.Context(), Report{Status: status}))
		assert.Equal(t, stored(), tt.stored, tt.about, "the status says")
	}

	agent := &statusWriter{client: w.client, node: node, now: w.now} // after a restart
	status := someStatus("a")
	status.PodsUnreadyOnRestart = new(int64(6))
	assert.NoError(t, agent.write(t.Context(), Report{Status: status}))
	assert.Equal(t, stored(), 6, "after a restart of the agent the status says")
}

// A status without drift is that of an agent that has not compared its kubelet
// yet.
func TestAStartEndsReportedDriftAndWritesNothingElse(t *testing.T) {
	node, p, r := reporting(t)
	compared := func(status metav1.ConditionStatus, files ...string) v1alpha1.NodeConfigStatus {
		s := someStatus("a")
		s.Drift = &v1alpha1.Drift{NotCompared: "why", Files: files}
		s.Conditions = append(s.Conditions, metav1.Condition{Type: v1alpha1.ConditionDrifted, Status: status, Reason: "R", Message: "m", ObservedGeneration: 1})
		return s
	}
	drifted := func() *metav1.Condition {
		return meta.FindStatusCondition(getNodeConfig(t, node).Status.Conditions, v1alpha1.ConditionDrifted)
	}
	report := func(r *Reporter, s v1alpha1.NodeConfigStatus, writes int, want metav1.ConditionStatus) {
		t.Helper()
		before := p.count("PATCH")
		r.Report(Report{Status: s})
		r.Flush(t.Context())
		got := metav1.ConditionStatus("")
		if c := drifted(); c != nil {
			got = c.Status
		}

		n := p.count("PATCH") - before
		assert.That(t, n == writes && got == want, "%d writes, want %d; Drifted is %q, want %q", n, writes, got, want)
	}
	report(r, compared(metav1.ConditionFalse), 1, metav1.ConditionFalse)
	first := drifted().LastTransitionTime
	report(r, someStatus("a"), 0, metav1.ConditionFalse)
	report(r, compared(metav1.ConditionFalse), 0, metav1.ConditionFalse)

	// So it is for the next agent, whose status differs in something else.
	next := NewReporter(newClient(t, p.Kubeconfig), node, "evenkeel-agent", quiet())
	background(t, next.Run)
	newer := someStatus("a")
	newer.AgentVersion, newer.ObservedGeneration = "v1", 2
	report(next, newer, 1, metav1.ConditionFalse)
	if c := drifted(); !c.LastTransitionTime.Equal(&first) || c.ObservedGeneration != 2 || getNodeConfig(t, node).Status.Drift.NotCompared != "why" {
		t.Errorf("the condition is %+v, the drift %+v", c, getNodeConfig(t, node).Status.Drift)
	}

	report(next, compared(metav1.ConditionTrue, "/etc/a"), 1, metav1.ConditionTrue)
	report(next, someStatus("a"), 1, "")
	assert.Equal(t, getNodeConfig(t, node).Status.Drift, nil, "drift")
}

// TestOddTimesDoNotSilenceAnAgent plants a time of the year 10000 in the
// conditions of the NodeConfig and the Node, which the API server stores and
// refuses when it is written in UTC. The agent reports the same status, and an
// assignment of that time.
func TestOddTimesDoNotSilenceAnAgent(t *testing.T) {
	node, _, r := reporting(t)
	createNode(t, node)
	planted := []map[string]any{{
		"type": v1alpha1.ConditionConfigOK, "status": "True", "reason": "Planted", "message": "",
		"lastTransitionTime": "9999-12-31T23:59:59-23:59",
	}}
	setStatus(t, node, map[string]any{"conditions": planted})
	setNodeConditions(t, node, planted)
	r.Report(Report{Status: someStatus("after it"), Condition: metav1.Condition{Status: "True", Reason: "Planted", Message: ""},
		KubeletStart: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)})
	c := await(t, "the condition of the Node", func() nodeCondition { return conditionOf(t, node) },
		func(c nodeCondition) bool { return !c.LastTransitionTime.IsZero() })
	for what, at := range map[string]metav1.Time{
		"ConfigOK": awaitStatus(t, node, "after it").Conditions[0].LastTransitionTime, "ConfigOK of the Node": c.LastTransitionTime,
	} {
		year := at.UTC().Year()
		assert.That(t, year > 1970 && year < 3000, "%s changed at %s", what, at.UTC())
	}
}

func TestAnAssignmentOfAnOddTimeCanBeRecorded(t *testing.T) {
	odd := metav1.NewTime(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))
	c := configOf(&v1alpha1.NodeConfigSource{ConfigMapRef: &v1alpha1.ConfigMapReference{UID: "u"}, RolloutRef: &v1alpha1.RolloutReference{Name: "r", AssignedAt: odd}})
	assert.NoError(t, assert.Err(json.Marshal(c.Rollout.AssignedAt)))
	assert.Equal(t, c.Rollout.AssignedAt.Year(), 1970, "the year of the assignment")
}

func TestProgressOfATrialIsWrittenAtEachTenth(t *testing.T) {
	node, p, r := reporting(t)
	createNode(t, node)
	report := Report{Status: someStatus("a")}
	at := func(seconds int64) {
		report.Status.Trial = &v1alpha1.Trial{DurationSeconds: 50, HealthySeconds: seconds}
		r.Report(report)
		r.Flush(t.Context())
	}
	for second := range int64(50) {
		at(second)
	}

	assert.Equal(t, p.count("PATCH"), 1+10, "writes")
	at(20) // the agent was killed, and counts from an older record
	at(49)
	s := getNodeConfig(t, node).Status
	assert.That(t, p.count("PATCH") == 11 && s.Trial.HealthySeconds == 45, "%d writes and %d healthy seconds, want still 11 and 45", p.count("PATCH"), s.Trial.HealthySeconds)
}

func TestProgress(t *testing.T) {
	at := func(seconds, of int64) *v1alpha1.Trial {
		return &v1alpha1.Trial{HealthySeconds: seconds, DurationSeconds: of}
	}
	for name, tt := range map[string]struct {
		now, written *v1alpha1.Trial
		want         bool
	}{
		"no trial":                        {nil, nil, false},
		"a trial that began":              {at(0, 600), nil, false}, // another difference
		"several":                         {at(500, 600), at(59, 600), true},
		"no duration":                     {at(10, 0), at(0, 0), false},
		"an older one without a duration": {at(10, 20), at(0, 0), true},
	} {
		assert.Equal(t, progressed(tt.now, tt.written), tt.want, name)
	}
}

func TestProgressOfARefusedStatusIsTriedAgainAtEachTenthOnly(t *testing.T) {
	w := statusWriter{uid: "u", now: time.Now, written: someStatus("minimal")}
	refused := someStatus("full")
	w.written.Conditions[0].LastTransitionTime = metav1.Now()
	refused.Conditions[0].LastTransitionTime = w.written.Conditions[0].LastTransitionTime
	refused.Trial = &v1alpha1.Trial{HealthySeconds: 5, DurationSeconds: 100}
	w.refused = &refused
	again := *refused.DeepCopy()
	again.Trial.HealthySeconds = 9
	assert.NoError(t, w.write(t.Context(), Report{NodeConfigUID: "u", Status: again}), "it was written")
}
