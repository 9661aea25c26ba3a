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
