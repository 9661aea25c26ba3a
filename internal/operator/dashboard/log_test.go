// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

// underWay returns the objects of a rollout that waits at its pause after its
// first node, whose revision exists.
func underWay(t *testing.T) (*v1alpha1.NodeConfigRollout, []client.Object) {
	t.Helper()
	r := waiting()
	begun := time.Now().Add(-time.Hour).Truncate(time.Second)
	cm := fakeapi.Revision(t, r.Name, 3, r.Spec.Template)
	ref, is := fakeapi.RefTo(cm), *fakeapi.Runs(cm)
	r.Status.UpdateRevision.ConfigMapRef, r.Status.Attempt, r.Status.Nodes.Selected, r.Status.Nodes.Members, r.Status.Nodes.Updated = ref, 1, 3, 3, 1
	r.Status.StartTime, r.Status.AttemptTime, r.Status.StepTime = new(metav1.NewTime(begun)), new(metav1.NewTime(begun)), new(metav1.NewTime(begun.Add(20*time.Minute)))
	done := configOf("a", metav1.ConditionTrue, "AllChecksPassed")
	done.Spec.ConfigSource = &v1alpha1.NodeConfigSource{
		ConfigMapRef: &ref, RolloutRef: &v1alpha1.RolloutReference{Name: r.Name, Revision: 3, Attempt: 1, AssignedAt: metav1.NewTime(begun.Add(time.Minute))},
	}
	done.Status.Assigned, done.Status.Active = &is, &is
	done.Status.LastKnownGood = &v1alpha1.LastKnownGoodConfig{ConfigRevision: is, Since: new(metav1.NewTime(begun.Add(11 * time.Minute)))}
	observed := assert.Value(fleet.ObservationText(rollout.Observation{Rollout: r.Name, Revision: 3, Attempt: 1, HealthySince: begun.Add(11 * time.Minute)}))(t)
	done.Annotations = map[string]string{v1alpha1.AnnotationObserved: observed}

	return r, []client.Object{
		cm, nodeOf("a", "", true), done, nodeOf("b", "", true), configOf("b", metav1.ConditionTrue, "AllChecksPassed"), nodeOf("c", "", true), configOf("c", metav1.ConditionTrue, "AllChecksPassed"),
	}
}

// eventOn is an Event in the namespace default.
func eventOn(kind, name, component, reason string, at time.Time) *corev1.Event {
	e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name + reason, CreationTimestamp: metav1.NewTime(at)}, Reason: reason, Message: "words of " + reason}
	e.InvolvedObject, e.Source.Component, e.LastTimestamp = corev1.ObjectReference{Kind: kind, Name: name}, component, metav1.NewTime(at)
	return e
}

func TestALogHasTheEventsOfARolloutAndOfItsNodes(t *testing.T) {
	r, objects := underWay(t)
	begun := r.Status.StartTime.Time
	events := []client.Object{
		eventOn("NodeConfigRollout", "workers", "evenkeel-controller", "RolloutStarted", begun), eventOn("NodeConfigRollout", "others", "evenkeel-controller", "OfOthers", begun),
		eventOn("Node", "a", "evenkeel-agent", "ConfigChanged", begun.Add(time.Minute)), eventOn("Node", "a", "kubelet", "OfTheKubelet", begun),
		eventOn("Node", "elsewhere", "evenkeel-agent", "OfAnotherNode", begun),
	}
	s, _ := served(t, true, append(append(objects, r), events...)...)
	c := s.clusters[0]
	known(c.cache, append(objects, r)...)
	c.feed.update(c.cache.snapshot(t.Context(), time.Now()))
	log := func(path string) (string, string) {
		t.Helper()
		code, body := answer(s, asked(http.MethodGet, "/api/clusters/0/"+path, ""))
		var v struct {
			logView
			Log *logView
		}
		err := json.Unmarshal([]byte(body), &v)
		assert.Must(t, code == 200 && err == nil, "%s answers %d %s (%v)", path, code, body, err)
		if v.Log != nil {
			v.logView = *v.Log
		}

		var out []string
		for _, e := range v.Entries {
			out = append(out, fmt.Sprintf("%s %s %s", e.Source, e.Node, e.Reason))
		}

		return strings.Join(out, ", "), v.Note
	}
	for path, want := range map[string]string{
		"rollouts/workers/log":        "Outcome a TrialPassed, Event a ConfigChanged, Event  RolloutStarted",
		"rollouts/workers/log?node=a": "Outcome a TrialPassed, Event a ConfigChanged, Outcome a Assigned",
		"rollouts/workers/log?node=b": "",
		"nodes/a":                     "Outcome a TrialPassed, Event a ConfigChanged, Outcome a Assigned",
	} {
		got, note := log(path)
		assert.That(t, got == want && note == "", "%s: %q (%s), want %q", path, got, note, want)
	}

	// Without the right to read Events, or without an answer, outcomes are
	// left.
	for want, err := range map[string]error{
		"Events are not shown: you are not allowed to list them in the namespace default. The Role evenkeel-view there allows it.": apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("no")),
		"Events are not shown: list Events: context deadline exceeded":                                                             context.DeadlineExceeded,
	} {
		c.api = interceptor.NewClient(c.cache.api, interceptor.Funcs{List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			if _, is := list.(*corev1.EventList); is {
				return err
			}

			return api.List(ctx, list, o...)
		}})
		got, note := log("rollouts/workers/log")
		assert.That(t, got == "Outcome a TrialPassed" && note == want, "it has %q, and the note is %q, want %q", got, note, want)
	}

	answers(t, s, asked(http.MethodGet, "/api/clusters/0/rollouts/nothing/log", ""), 404, "")
}

func TestANodeIsDescribedWithItsStanding(t *testing.T) {
	r, objects := underWay(t)
	s, _ := served(t, true, append(objects, r)...)
	known(s.clusters[0].cache, append(objects, r)...)
	for _, words := range []string{`"health":"Healthy","position":"Updated","state":"Updated"`, `"diff":"kubectl evenkeel config diff node/a rollout/workers"`} {
		answers(t, s, asked(http.MethodGet, "/api/clusters/0/nodes/a", ""), 200, words)
	}
}

var begin = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// minute returns a time so many minutes after begin.
func minute(n int) time.Time { return begin.Add(time.Duration(n) * time.Minute) }

// at formats a time as minutes after begin.
func at(t time.Time) string { return strings.TrimSuffix(t.Sub(begin).String(), "m0s") }

func TestAnEventHasTheTimeOfItsWriterUnlessThatCannotBeRight(t *testing.T) {
	stored, now := metav1.NewTime(minute(30)), minute(60)
	event := func(edit func(*corev1.Event)) *corev1.Event {
		e := &corev1.Event{Reason: "ConfigRolledBack", Message: "a\nb", Type: corev1.EventTypeWarning, InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
		e.CreationTimestamp = stored
		edit(e)
		return e
	}
	for name, tt := range map[string]struct {
		event *corev1.Event
		want  string
	}{
		"of an agent":     {event(func(e *corev1.Event) { e.LastTimestamp = metav1.NewTime(minute(20)) }), "20 n1 Warning ConfigRolledBack: a b"},
		"from the future": {event(func(e *corev1.Event) { e.LastTimestamp = metav1.NewTime(minute(1000)) }), "30 n1 Warning ConfigRolledBack: a b"},
		"from the past":   {event(func(e *corev1.Event) { e.LastTimestamp = metav1.NewTime(minute(-100)) }), "30 n1 Warning ConfigRolledBack: a b"},
		"without a time":  {event(func(*corev1.Event) {}), "30 n1 Warning ConfigRolledBack: a b"},
		"several times":   {event(func(e *corev1.Event) { e.Count = 3 }), "30 n1 Warning ConfigRolledBack: a b (3 times)"},
		"with escapes":    {event(func(e *corev1.Event) { e.Message = "\x1b[2J"; e.Type = "Evil" }), `30 n1 Normal ConfigRolledBack: \x1b[2J`},
		"of the controller": {event(func(e *corev1.Event) {
			e.InvolvedObject, e.Type, e.EventTime = corev1.ObjectReference{Kind: "NodeConfigRollout", Name: "workers"}, corev1.EventTypeNormal, metav1.NewMicroTime(minute(25))
			e.Series = &corev1.EventSeries{Count: 2, LastObservedTime: metav1.NewMicroTime(minute(28))}
		}), "28  Normal ConfigRolledBack: a b (2 times)"},
	} {
		e := eventEntry(tt.event, now)
		got := fmt.Sprintf("%s %s %s %s: %s", at(e.Time), e.Node, e.Kind, e.Reason, e.Message)
		assert.That(t, got == tt.want && e.Source == sourceEvent, "%s: %q, want %q", name, got, tt.want)
	}
}

// passed returns a NodeConfig whose node was assigned revision 2 of workers at
// minute 1.
func passed(edit func(*v1alpha1.NodeConfig)) *v1alpha1.NodeConfig {
	nc := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	nc.Spec.ConfigSource = &v1alpha1.NodeConfigSource{
		ConfigMapRef: &v1alpha1.ConfigMapReference{UID: "u2"}, RolloutRef: &v1alpha1.RolloutReference{Name: "workers", Revision: 2, Attempt: 1, AssignedAt: metav1.NewTime(minute(1))},
	}
	nc.Status.Active = &v1alpha1.ConfigRevision{UID: "u2"}
	nc.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionConfigOK, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(minute(2))}}
	edit(nc)

	return nc
}

func TestOutcomesAreWhatANodeConfigStillShows(t *testing.T) {
	refuse := func(nc *v1alpha1.NodeConfig, reason string) {
		nc.Status.Conditions[0].Status, nc.Status.Conditions[0].Reason, nc.Status.Error = metav1.ConditionFalse, reason, "no\x1b"
	}
	for _, tt := range []struct {
		name    string
		nc      *v1alpha1.NodeConfig
		rollout string
		all     bool
		want    []string
	}{
		{"passed", passed(func(nc *v1alpha1.NodeConfig) {
			nc.Status.LastKnownGood = &v1alpha1.LastKnownGoodConfig{ConfigRevision: v1alpha1.ConfigRevision{UID: "u2"}, Since: new(metav1.NewTime(minute(12)))}
		}), "workers", true, []string{"1 Normal Assigned: revision 2 of rollout workers was assigned (attempt 1)", "12 Normal TrialPassed: revision 2 of rollout workers passed its trial"}},
		{"on trial", passed(func(nc *v1alpha1.NodeConfig) {
			nc.Status.Trial = &v1alpha1.Trial{StartTime: new(metav1.NewTime(minute(3)))}
		}), "workers", true,
			[]string{"1 Normal Assigned: revision 2 of rollout workers was assigned (attempt 1)", "3 Normal OnTrial: revision 2 of rollout workers runs on trial"}},
		{"on trial, in the log of all nodes", passed(func(nc *v1alpha1.NodeConfig) {
			nc.Status.Trial = &v1alpha1.Trial{StartTime: new(metav1.NewTime(minute(3)))}
		}), "workers", false, nil},
		{"failed", passed(func(nc *v1alpha1.NodeConfig) {
			nc.Status.BadConfigs = []v1alpha1.BadConfig{{UID: "u2", Time: new(metav1.NewTime(minute(9))), Reason: "it crashed"}}
		}), "", false, []string{"9 Warning Failed: revision 2 of rollout workers failed: it crashed"}},
		{"failed, with a condition", passed(func(nc *v1alpha1.NodeConfig) {
			refuse(nc, v1alpha1.ReasonCrashLooped)
			nc.Status.BadConfigs = []v1alpha1.BadConfig{{UID: "u2", Time: new(metav1.NewTime(minute(-9)))}}
		}), "workers", false, []string{`1 Warning Failed: revision 2 of rollout workers failed: CrashLooped: no\x1b`}},
		{"refused", passed(func(nc *v1alpha1.NodeConfig) { refuse(nc, v1alpha1.ReasonNeedsDrain) }), "workers", false,
			[]string{`2 Warning Failed: revision 2 of rollout workers was refused: NeedsDrain: no\x1b`}},
		{"with a clock in the future", passed(func(nc *v1alpha1.NodeConfig) {
			nc.Status.LastKnownGood = &v1alpha1.LastKnownGoodConfig{ConfigRevision: v1alpha1.ConfigRevision{UID: "u2"}, Since: new(metav1.NewTime(minute(9999)))}
		}), "workers", false, []string{"1h0 Normal TrialPassed: revision 2 of rollout workers passed its trial"}},
		{"of another rollout", passed(func(*v1alpha1.NodeConfig) {}), "others", true, nil},
		{"by a person", passed(func(nc *v1alpha1.NodeConfig) {
			nc.Spec.ConfigSource.RolloutRef = nil
			refuse(nc, v1alpha1.ReasonNeedsDrain)
		}), "", true, []string{`2 Warning Failed: the assigned configuration was refused: NeedsDrain: no\x1b`}},
		{"by a person, in the log of a rollout", passed(func(nc *v1alpha1.NodeConfig) { nc.Spec.ConfigSource.RolloutRef = nil }), "workers", true, nil},
		{"without a source", passed(func(nc *v1alpha1.NodeConfig) { nc.Spec.ConfigSource = nil }), "", true, nil},
	} {
		var got []string
		for _, e := range outcomesOf(tt.nc, tt.rollout, tt.all, minute(60)) {
			got = append(got, fmt.Sprintf("%s %s %s: %s", at(e.Time), e.Kind, e.Reason, e.Message))
			assert.That(t, e.Node == "n1" && e.Source == sourceOutcome, "%s: %+v", tt.name, e)
		}

		assert.That(t, slices.Equal(got, tt.want), "%s:\n%q, want\n%q", tt.name, got, tt.want)
	}
}

func TestALogTellsEachThingOnceAndIsBounded(t *testing.T) {
	event := func(n int, node, reason string) logEntry {
		return logEntry{Time: minute(n), Node: node, Reason: reason, Source: sourceEvent}
	}
	outcome := func(n int, node, reason string) logEntry {
		return logEntry{Time: minute(n).Add(20 * time.Second), Node: node, Reason: reason, Source: sourceOutcome}
	}
	log, left := mergeLog(
		[]logEntry{event(1, "", "RolloutStarted"), event(5, "n1", "ConfigRolledBack"), event(9, "n2", "ConfigLastKnownGood")},
		[]logEntry{outcome(5, "n1", "Failed"), outcome(5, "n2", "Failed"), outcome(20, "n2", "TrialPassed"), outcome(9, "n1", "TrialPassed")})
	var got []string
	for _, e := range log {
		got = append(got, strings.TrimSpace(e.Node+" "+e.Reason))
	}

	want := []string{"n2 TrialPassed", "n1 TrialPassed", "n2 ConfigLastKnownGood", "n2 Failed", "n1 ConfigRolledBack", "RolloutStarted"}
	assert.That(t, slices.Equal(got, want) && left == 0, "it is %q, and %d are left; want %q", got, left, want)
	var many []logEntry
	for i := range maxLogEntries + 7 {
		many = append(many, event(i, "", fmt.Sprint(i)))
	}

	log, left = mergeLog(many, nil)
	assert.That(t, len(log) == maxLogEntries && left == 7 && log[0].Reason == fmt.Sprint(maxLogEntries+6),
		"%d entries, and %d are left; the first is %+v", len(log), left, log[0])
}
