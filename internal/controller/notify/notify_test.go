// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// world is a Notifier in a synctest bubble, with receivers that a test answers
// for.
type world struct {
	*Notifier
	t        *testing.T
	log      bytes.Buffer
	registry *prometheus.Registry
	answer   func(receiver, id string) int // 0: the connection fails

	mu       sync.Mutex          // receivers are called at the same time
	requests map[string][]string // by receiver: when, and the ID
}

func newWorld(t *testing.T, names ...string) *world {
	w := &world{t: t, registry: prometheus.NewRegistry(), requests: map[string][]string{}, answer: func(string, string) int { return 200 }}
	var receivers []Receiver
	for _, name := range names {
		receivers = append(receivers, Receiver{Name: name, URL: "http://" + name + "/a-secret"})
	}

	n := assert.Value(New(receivers, "test", slog.New(slog.NewTextHandler(&w.log, nil)), w.registry))(t)
	w.Notifier = n
	began := time.Now()
	for _, q := range n.queues {
		q.client.transport = transport(func(r *http.Request) (*http.Response, error) {
			var e Event
			assert.OK(t, json.NewDecoder(r.Body).Decode(&e))
			name := r.URL.Host
			w.mu.Lock()
			w.requests[name] = append(w.requests[name], fmt.Sprintf("%s %s", time.Since(began).Round(time.Second), e.ID))
			w.mu.Unlock()
			if code := w.answer(name, e.ID); code != 0 {
				return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(""))}, nil
			}

			return nil, errors.New("connection refused")
		})
	}

	return w
}

// run runs the Notifier for a time.
func (w *world) run(f time.Duration) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), f)
	defer cancel()
	w.Run(ctx)
}

func (w *world) add(events ...string) {
	for _, id := range events {
		w.queues[0].add(Event{ID: id, Subject: "workers"}, time.Now())
	}
}

// shows fails the test unless a series of the metrics has this value.
func (w *world) shows(series string, value any) {
	w.t.Helper()
	var all bytes.Buffer
	for _, f := range assert.Value(w.registry.Gather())(w.t) {
		assert.NoError(w.t, assert.Err(expfmt.MetricFamilyToText(&all, f)))
	}

	want := fmt.Sprint("evenkeel_", series, " ", value, "\n")
	assert.That(w.t, strings.Contains(all.String(), want), "the metrics have no %s:\n%s", want, &all)
}

func TestAnEventIsQueuedOnceForEachReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		r := rolloutIn(v1alpha1.RolloutAwaitingApproval)
		for range 3 {
			w.Rollout(r, false, time.Now())
		}

		w.run(time.Second)
		r.Status.StepTime = new(at(50))
		w.Rollout(r, false, time.Now()) // the next pause
		w.Rollout(rolloutIn(v1alpha1.RolloutHalted, halted), false, time.Now())
		w.Forget("workers")
		w.Rollout(rolloutIn(v1alpha1.RolloutHalted, halted), false, time.Now()) // created again under the same name
		w.run(time.Second)
		want := []string{
			"0s uid.3.1.AwaitingApproval.1772600777", "1s uid.3.1.AwaitingApproval.1772600817", "1s uid.3.1.Halted.1772600797", "1s uid.3.1.Halted.1772600797",
		}
		for _, name := range []string{"a", "b"} {
			assert.That(t, slices.Equal(w.requests[name], want), "%s received %q, want %q", name, w.requests[name], want)
		}
	})
}

func TestBlockedIsSentAfterAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		blocked := rolloutIn(v1alpha1.RolloutProgressing, counts(1, 0, 0))
		began := time.Now()
		assert.Equal(t, w.Rollout(blocked, false, began), began.Add(time.Minute), "the next look is at")
		w.Rollout(rolloutIn(v1alpha1.RolloutProgressing, counts(1, 1, 0)), false, began.Add(50*time.Second)) // another node got the revision
		assert.Equal(t, w.Rollout(blocked, false, began.Add(70*time.Second)), began.Add(130*time.Second), "the next look is at")
		w.run(time.Second)
		assert.That(t, len(w.requests["a"]) == 0, "too early: %q", w.requests["a"])
		assert.Equal(t, w.Rollout(blocked, false, began.Add(130*time.Second)), time.Time{}, "the next look is at")
		w.run(time.Second)
		want := []string{"1s uid.3.1.Blocked.1772600787"}
		assert.That(t, slices.Equal(w.requests["a"], want), "got %q, want %q", w.requests["a"], want)
	})
}

func TestAFailureIsRetriedWithBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		up := time.Now().Add(time.Hour)
		w.answer = func(string, string) int {
			if time.Now().Before(up) {
				return 0
			}

			return 200
		}
		w.add("1", "2")
		w.run(2 * time.Hour)
		var times []time.Duration
		for _, r := range w.requests["a"] {
			at, _, _ := strings.Cut(r, " ")
			d := assert.Value(time.ParseDuration(at))(t)
			times = append(times, d)
		}

		pause := firstBackoff
		for i, r := range w.requests["a"][:len(times)-2] {
			got := times[i+1] - times[i]
			assert.That(t, got >= pause-time.Second && got <= pause+pause/4+time.Second,
				"%s: %s until the next attempt, want about %s", r, got, pause)
			pause = min(2*pause, mostBackoff)
		}

		n := len(times)
		assert.That(t, n >= 15 && n <= 30 && times[n-2] >= time.Hour && times[n-1] == times[n-2] && strings.HasSuffix(w.requests["a"][n-1], " 2"),
			"got %q, want the second event right after the first one", w.requests["a"])
		log := w.log.String()
		for words, want := range map[string]int{"cannot send notifications; retrying": 1, "notifications are sent again": 1, "a-secret": 0} {
			assert.Equal(t, strings.Count(log, words), want, words, "in the log", log)
		}

		w.shows(`notification_attempts_total{receiver="a",result="ok"}`, 2)
		w.shows(`notification_attempts_total{receiver="a",result="error"}`, n-2)
	})
}

func TestAReceiverThatIsDownDoesNotDelayAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "down", "up")
		w.answer = func(name, _ string) int { return map[string]int{"up": 200}[name] }
		w.Rollout(rolloutIn(v1alpha1.RolloutHalted, halted), false, time.Now())
		w.run(10 * time.Second)
		assert.That(t, len(w.requests["up"]) == 1 && len(w.requests["down"]) >= 3, "got %q", w.requests)
	})
}

func TestAFullQueueDropsItsOldestEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		for i := range mostQueued + 3 {
			w.add(fmt.Sprint(i))
		}

		w.shows(`notifications_pending{receiver="a"}`, mostQueued)
		w.run(time.Second)
		got := w.requests["a"]
		assert.That(t, len(got) == mostQueued && got[0] == "0s 3", "%d were sent, the first is %s", len(got), got[0])
		assert.Equal(t, strings.Count(w.log.String(), "notification dropped"), 3, w.log.String())
		w.shows(`notifications_dropped_total{reason="`+droppedFull+`",receiver="a"}`, 3)
		w.shows(`notifications_pending{receiver="a"}`, 0)
	})
}

func TestAnOldEventIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.add("old")
		time.Sleep(mostAge + time.Second)
		w.add("new")
		w.run(time.Second)
		got := w.requests["a"]
		assert.That(t, len(got) == 1 && strings.HasSuffix(got[0], " new"), "got %q", got)
		w.shows(`notifications_dropped_total{reason="`+droppedOld+`",receiver="a"}`, 1)
	})
}

func TestARejectedEventDoesNotHinderTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.answer = func(_, id string) int { return map[string]int{"1": 422, "2": 200}[id] }
		w.add("1", "2")
		w.run(time.Second)
		want := []string{"0s 1", "0s 2"}
		assert.That(t, slices.Equal(w.requests["a"], want), "got %q, want %q", w.requests["a"], want)
		assert.That(t, strings.Contains(w.log.String(), "notification rejected"), "the log is\n%s", &w.log)
		w.shows(`notifications_dropped_total{reason="`+droppedRejected+`",receiver="a"}`, 1)
	})
}

func TestWithoutReceiversNothingIsRemembered(t *testing.T) {
	w := newWorld(t)
	w.Rollout(rolloutIn(v1alpha1.RolloutHalted, halted), false, time.Now())
	assert.That(t, len(w.sent) == 0, "it remembers events")
	w.run(time.Millisecond)
}
