// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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
)

// underWay returns the objects of a rollout that waits at its pause after its first node, whose revision exists.
func underWay(t *testing.T) (*v1alpha1.NodeConfigRollout, []client.Object) {
	t.Helper()
	r := waiting()
	begun := time.Now().Add(-time.Hour).Truncate(time.Second)
	content := assert.Value(fleet.ContentOf(r.Spec.Template, nil))(t)
	cm := &corev1.ConfigMap{Immutable: new(true), Data: map[string]string{content.Key: string(content.Data)}}
	cm.Namespace, cm.Name, cm.UID = v1alpha1.SystemNamespace, fleet.RevisionName(r.Name, content.SHA256), "u3"
	cm.Labels = map[string]string{v1alpha1.LabelRollout: r.Name, v1alpha1.LabelRevision: "3"}
	ref := v1alpha1.ConfigMapReference{Namespace: cm.Namespace, Name: cm.Name, UID: cm.UID, SHA256: content.SHA256}
	r.Status.UpdateRevision.ConfigMapRef, r.Status.Attempt, r.Status.Nodes.Selected, r.Status.Nodes.Members, r.Status.Nodes.Updated = ref, 1, 3, 3, 1
	r.Status.StartTime, r.Status.AttemptTime, r.Status.StepTime = new(metav1.NewTime(begun)), new(metav1.NewTime(begun)), new(metav1.NewTime(begun.Add(20*time.Minute)))
	done := configOf("a", metav1.ConditionTrue, "AllChecksPassed")
	done.Spec.ConfigSource = &v1alpha1.NodeConfigSource{
		ConfigMapRef: &ref, RolloutRef: &v1alpha1.RolloutReference{Name: r.Name, Revision: 3, Attempt: 1, AssignedAt: metav1.NewTime(begun.Add(time.Minute))},
	}
	is := v1alpha1.ConfigRevision{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID, SHA256: ref.SHA256}
	done.Status.Assigned, done.Status.Active = &is, &is
	done.Status.LastKnownGood = &v1alpha1.LastKnownGoodConfig{ConfigRevision: is, Since: new(metav1.NewTime(begun.Add(11 * time.Minute)))}
	observed := assert.Value(fleet.ObservationText(rollout.Observation{Rollout: r.Name, Revision: 3, Attempt: 1, HealthySince: begun.Add(11 * time.Minute)}))(t)
	done.Annotations = map[string]string{v1alpha1.AnnotationObserved: observed}
	return r, []client.Object{
		cm, nodeOf("a", "", true), done, nodeOf("b", "", true), configOf("b", metav1.ConditionTrue, "AllChecksPassed"), nodeOf("c", "", true), configOf("c", metav1.ConditionTrue, "AllChecksPassed"),
	}
}

func TestATimelineEndsWithTheNumbersOfTheMapAndLooksAhead(t *testing.T) {
	r, objects := underWay(t)
	s, _ := served(t, true, append(objects, r)...)
	w := s.clusters[0].cache
	known(w, append(objects, r)...)
	var v timelineView
	get := func() {
		t.Helper()
		v = timelineView{}
		code, body := answer(s, asked(http.MethodGet, "/api/clusters/0/rollouts/workers/timeline", ""))
		err := json.Unmarshal([]byte(body), &v)
		assert.Must(t, code == 200 && err == nil, "it answers %d %s (%v)", code, body, err)
	}
	get()
	if n := len(v.Points); n != 3 || v.Points[1].Updated != 1 || v.Points[2].Updated != 1 || v.Points[1].T.Sub(v.Start) != 11*time.Minute || v.Total != 3 {
		t.Errorf("the points are %+v, of %d", v.Points, v.Total)
	}
	assert.That(t, len(v.Bands) == 2 && v.Bands[1].Kind == "pause" && v.Bands[1].To == nil && v.Bands[1].From.Sub(v.Start) == 20*time.Minute,
		"the bands are %+v", v.Bands)
	e := v.Estimate
	if e == nil || e.Points[0].Updated != 1 || e.Points[len(e.Points)-1].Updated != 3 || !e.End.After(v.Now) || e.Note != "if every node is healthy, 1 approval without delay" {
		t.Errorf("the estimate is %+v, the note %q", e, v.Note)
	}
	// A user who may not list Nodes sees the same past, and no estimate.
	forbidNodes(w)
	get()
	if n := len(v.Points); n != 3 || v.Points[2].Updated != 1 || v.Total != 3 || v.Estimate != nil || v.Note != "an estimate needs the right to list Nodes" {
		t.Errorf("without Nodes: %+v of %d, %+v, %q", v.Points, v.Total, v.Estimate, v.Note)
	}
	if code, body := answer(s, asked(http.MethodGet, "/api/clusters/0/rollouts/others/timeline", "")); code != 404 || !strings.Contains(body, "existing rollouts: workers") {
		t.Errorf("of another rollout: %d %s", code, body)
	}
}

func TestThereIsNoEstimateWhereNothingMoves(t *testing.T) {
	for phase, want := range map[v1alpha1.RolloutPhase]string{
		v1alpha1.RolloutHalted: "no estimate while the rollout is halted", v1alpha1.RolloutPaused: "no estimate while the rollout is paused",
		v1alpha1.RolloutFrozen: "no estimate while the rollout is frozen", v1alpha1.RolloutComplete: "",
	} {
		r := waiting()
		r.Status.Phase = phase
		e, note := new(estimates).of(t.Context(), r, nil)
		assert.That(t, e == nil && note == want, "%s: %+v, %q, want %q", phase, e, note, want)
	}
	r := waiting()
	r.Generation++
	if e, note := new(estimates).of(t.Context(), r, nil); e != nil || !strings.Contains(note, "has not observed this change yet") {
		t.Errorf("with an old status: %+v, %q", e, note)
	}
}

func TestAnEstimateSaysWhatItAssumesAndIsBounded(t *testing.T) {
	begin := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	run := rollout.Run{Start: begin, End: begin.Add(5000 * time.Second), Limited: true}
	for i := range 5000 {
		run.Samples = append(run.Samples, rollout.Sample{At: begin.Add(time.Duration(i) * time.Second), Counts: rollout.Counts{RolloutCounts: v1alpha1.RolloutCounts{Updated: int32(i)}}})
	}
	e, _ := estimateOf(&run, true)
	if n := len(e.Points); n > 210 || n < 100 || e.Points[n-1].Updated != 4999 || e.Note != "if every node is healthy, not computed to the end" {
		t.Errorf("%d points, the last %+v, %q", n, e.Points[n-1], e.Note)
	}
	run.Limited, run.Final.Next.Phase = false, v1alpha1.RolloutStuck
	e, _ = estimateOf(&run, false)
	assert.That(t, e.Note == "if every node is healthy, it ends as Stuck", "the note is %q", e.Note)
	if e, note := estimateOf(&rollout.Run{}, false); e != nil || note != "no estimate: the rollout makes no progress by itself" {
		t.Errorf("without samples: %+v, %q", e, note)
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
	// Without the right to read Events, or without an answer, outcomes are left.
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
	if code, body := answer(s, asked(http.MethodGet, "/api/clusters/0/rollouts/nothing/log", "")); code != 404 {
		t.Errorf("of a rollout that does not exist: %d %s", code, body)
	}
}

func TestANodeIsDescribedWithItsStanding(t *testing.T) {
	r, objects := underWay(t)
	s, _ := served(t, true, append(objects, r)...)
	known(s.clusters[0].cache, append(objects, r)...)
	code, body := answer(s, asked(http.MethodGet, "/api/clusters/0/nodes/a", ""))
	assert.That(t, code == 200 && strings.Contains(body, `"health":"Healthy","position":"Updated","state":"Updated"`), "it answers %d %s", code, body)
}
