// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func answered(request *http.Request, code int, body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: request, Body: body,
		Header: http.Header{"Content-Type": []string{"application/json"}}}
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
			config := own()
			var lists atomic.Int64
			config.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
				return tripper(func(r *http.Request) (*http.Response, error) {
					if r.URL.Query().Get("sendInitialEvents") != "" {
						return stream(next, r)
					}
					if r.URL.Query().Get("limit") != "" {
						lists.Add(1)
					}

					return next.RoundTrip(r)
				})
			}
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
