// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func answered(request *http.Request, code int, body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: request, Body: body,
		Header: http.Header{"Content-Type": []string{"application/json"}}}
}

// They were deleted while the controller could not see it.
func TestKnownObjectsThatNoLongerExistAreRemoved(t *testing.T) {
	world(t)
	addNodes(t, "pool=gone", "exists")
	c := newController(t, own())
	of := metav1.ObjectMeta{Name: "gone", Namespace: v1alpha1.SystemNamespace, UID: "gone", ResourceVersion: "1"}
	c.fleet.setNode(&corev1.Node{ObjectMeta: of})
	c.fleet.setConfig(&v1alpha1.NodeConfig{ObjectMeta: of})
	c.fleet.setRollout(&v1alpha1.NodeConfigRollout{ObjectMeta: of})
	c.fleet.setPreflight(&v1alpha1.NodeConfigPreflight{ObjectMeta: of})
	of.Labels = map[string]string{v1alpha1.LabelRollout: "gone", v1alpha1.LabelRevision: "1"}
	c.fleet.setRevision(&corev1.ConfigMap{ObjectMeta: of})
	knows := func(kind, name string) bool {
		return slices.ContainsFunc(c.fleet.known(kind), func(o client.Object) bool { return o.GetName() == name })
	}
	kinds := []string{kindNodes, kindConfigs, kindRollouts, kindRevisions, kindPreflights}
	for _, kind := range kinds {
		assert.Must(t, knows(kind, "gone"), "%s is not known", kind)
	}

	ctx, cancel := context.WithCancel(t.Context())
	var watches sync.WaitGroup
	watches.Go(func() { c.runWatches(ctx) })
	watches.Go(func() { c.watchPreflights(ctx) })
	defer watches.Wait()
	defer cancel()
	for _, kind := range kinds {
		eventually(t, func() error { return assert.Unless(!knows(kind, "gone"), "%s is still known", kind) })
	}

	eventually(t, func() error { return assert.Unless(knows(kindNodes, "exists"), "the Node that exists is not known") })
}

func TestObjectsAreListedIfTheAPIServerRefusesToStreamThem(t *testing.T) {
	world(t)
	var names []string
	for i := range fleet.PageSize + 3 {
		names = append(names, fmt.Sprintf("p%d", i))
	}

	var all sync.WaitGroup
	for part := range slices.Chunk(names, 50) {
		all.Go(func() { addNodes(t, "pool=listed", part...) })
	}

	all.Wait()
	existing := len(names)
	for name, stream := range map[string]func(next http.RoundTripper, r *http.Request) (*http.Response, error){
		"old": func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
			return answered(r, http.StatusUnprocessableEntity, io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":422,"reason":"Invalid"}`))), nil
		},
		"late": func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
			late := r.Clone(r.Context())
			values := late.URL.Query()
			values.Set("resourceVersion", "9999999999") // which its watch cache does not reach within 3 s
			late.URL.RawQuery = values.Encode()

			return next.RoundTrip(late)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var lists atomic.Int64
			config := answering(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
				if r.URL.Query().Get("sendInitialEvents") != "" {
					return stream(next, r)
				}
				if r.URL.Query().Get("limit") != "" {
					lists.Add(1)
				}

				return nil, nil
			})
			c := start(t, config)
			knows := func(want int) {
				t.Helper()
				eventually(t, func() error {
					c.fleet.mu.Lock()
					defer c.fleet.mu.Unlock()
					n := len(c.fleet.nodes)
					return assert.Unless(n == want, "%d nodes are known, want %d", n, want)
				})
			}
			knows(existing)
			eventually(t, func() error {
				n := lists.Load()
				return assert.Unless(n == 6, "%d pages were listed, want one of each kind, and two of Nodes", n)
			})
			addNodes(t, "pool=listed", name)
			existing++
			knows(existing)
		})
	}
}

func TestNothingIsPlannedWhileTheControllerDoesNotSeeEverything(t *testing.T) {
	for what, silent := range map[string]bool{"a watch is not complete": false, "the API server is silent": true} {
		synctest.Test(t, func(t *testing.T) {
			watches := newSyncState(kindNodes)
			if silent {
				watches.synced(kindNodes)
			}

			c := &Controller{fleet: newCache("", 0), watches: watches, silent: func() bool { return silent }}
			c.fleet.setRollout(&v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "r"}})
			ctx, cancel := context.WithCancel(t.Context())
			go c.loop(ctx)
			time.Sleep(10 * time.Second)
			assert.That(t, !c.fleet.rollouts["r"].dueAt.IsZero(), "%s, and a rollout was planned", what)
			cancel()
			synctest.Wait()
		})
	}
}

// An API server that hangs keeps its connections open, so no watch ends.
func TestAnAPIServerThatHangsIsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCache("", time.Second)
		f.endOutage(time.Time{}) // the first view
		e := &election{duration: 15 * time.Second, back: func(silent time.Duration) {
			f.endOutage(f.now().Add(-silent))
		}}
		assert.That(t, !e.silent(), "it is silent before the first request")
		began := time.Now()
		for range 3 {
			e.noteAnswer(nil)
			time.Sleep(2 * time.Second)
		}

		assert.That(t, !e.silent() && len(f.outages) == 1 && f.outages[0].To.Equal(began), "without a gap there are outages %v", f.outages)
		last := time.Now().Add(-2 * time.Second)
		time.Sleep(6 * time.Second)
		e.noteAnswer(errors.New("context deadline exceeded"))
		e.noteAnswer(apierrors.NewTooManyRequests("later", 1))
		assert.That(t, e.silent() && len(f.outages) == 1, "it answers")
		e.noteAnswer(apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))) // an answer
		assert.That(t, !e.silent(), "it does not answer")
		assert.That(t, len(f.outages) == 2 && f.outages[1] == (rollout.Outage{From: last, To: time.Now()}),
			"the outages are %v, want one from %s on", f.outages, last)
	})
}

func TestAnOutageBeginsWhenTheFirstWatchIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCache("", time.Second)
		f.endOutage(time.Time{})
		time.Sleep(time.Minute)
		f.setLost(f.now()) // a watch that ends and begins again at once
		f.setLost(time.Time{})
		time.Sleep(time.Minute)
		lost := f.now()
		f.setLost(lost)
		time.Sleep(time.Second)
		f.setLost(f.now())
		f.endOutage(time.Time{}) // one kind can be watched again
		time.Sleep(time.Second)
		f.endOutage(time.Time{}) // and all
		f.setLost(time.Time{})
		p := rollout.Input{}
		f.setOutages(&rolloutEntry{clockOffset: time.Hour}, &p)
		want := rollout.Outage{From: lost.Add(time.Hour), To: f.now().Add(time.Hour)}
		assert.That(t, len(p.Outages) == 2 && p.Outages[1] == want, "the outages are %v, want %v", p.Outages, want)
	})
}

func TestAWriteProblemConcernsItsRolloutOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCache("", time.Second)
		f.endOutage(time.Time{})
		time.Sleep(time.Minute)
		a, b := &rolloutEntry{failedAt: f.now()}, &rolloutEntry{}
		f.rollouts["a"], f.rollouts["b"] = a, b
		time.Sleep(time.Minute)
		f.endUnwritten("a")
		f.endUnwritten("deleted")
		time.Sleep(time.Minute)
		f.endOutage(f.now().Add(-90 * time.Second)) // a part of it
		for r, began := range map[*rolloutEntry]time.Duration{a: 2 * time.Minute, b: 90 * time.Second} {
			p := rollout.Input{}
			f.setOutages(r, &p)
			want := rollout.Outage{From: f.now().Add(-began), To: f.now()}
			assert.That(t, len(p.Outages) == 2 && p.Outages[1] == want, "the outages are %v, want %v", p.Outages, want)
		}

		for range 300 {
			time.Sleep(time.Minute)
			f.endOutage(f.now())
		}

		assert.Equal(t, len(f.outages), 100, "the outages that are remembered")
	})
}

// A standby's requests for the Lease fail and come back, too, and its clock is
// not set yet.
func TestALeaderForgetsWhatItNotedAsAStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCache("", time.Second)
		f.endOutage(f.now().Add(-time.Minute))
		time.Sleep(time.Minute)
		f.firstView(f.now().Add(-30 * time.Second))
		assert.That(t, len(f.outages) == 1 && f.outages[0].From.Equal(f.now().Add(-30*time.Second)), "the outages are %v", f.outages)
	})
}
