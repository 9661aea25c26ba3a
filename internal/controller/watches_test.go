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
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// restarted is an API server as one that has just started looks to who watches:
// it accepts a watch from a resource version and says nothing, it has too much
// to do to tell what there is, and in the end that resource version is too old.
// All else is answered.
type restarted struct {
	mu    sync.Mutex
	next  http.RoundTripper
	over  chan struct{} // closed when it is itself again; nil: it is
	cut   []func()      // ends the watches that are open
	asked int           // what was refused or accepted in vain
}

func (r *restarted) wrap(next http.RoundTripper) http.RoundTripper {
	r.next = next
	return r
}

func (r *restarted) RoundTrip(request *http.Request) (*http.Response, error) {
	query := request.URL.Query()
	watches := query.Get("watch") != ""
	lists := request.Method == http.MethodGet && (query.Get("limit") != "" || query.Get("sendInitialEvents") != "" || query.Has("resourceVersionMatch"))
	r.mu.Lock()
	over := r.over
	if over != nil && (watches || lists) {
		r.asked++
	}

	r.mu.Unlock()
	switch {
	case over != nil && lists:
		return answered(request, http.StatusTooManyRequests, io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":429,"reason":"TooManyRequests"}`))), nil
	case over != nil && watches:
		out, in := io.Pipe()
		go func() {
			select {
			case <-over:
			case <-request.Context().Done():
			}

			fmt.Fprintln(in, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired","message":"too old resource version"}}`)
			in.Close()
		}()

		return answered(request, http.StatusOK, out), nil
	case watches:
		ctx, cancel := context.WithCancel(request.Context())
		r.mu.Lock()
		r.cut = append(r.cut, cancel)
		r.mu.Unlock()

		return r.next.RoundTrip(request.WithContext(ctx))
	}

	return r.next.RoundTrip(request)
}

func answered(request *http.Request, code int, body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: request, Body: body,
		Header: http.Header{"Content-Type": []string{"application/json"}}}
}

// restart ends all watches. What it returns makes the API server itself again.
func (r *restarted) restart() (over func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = make(chan struct{})
	for _, cut := range r.cut {
		cut()
	}

	r.cut = nil

	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		close(r.over)
		r.over = nil
	})
}

func (r *restarted) refused() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

func TestNoPlanUsesObjectsFromBeforeAnOutage(t *testing.T) {
	world(t)
	addNodes(t, "pool=stale", "s1", "s2")
	server := &restarted{}
	config := own()
	config.WrapTransport = server.wrap
	const silent = time.Second
	start(t, config, func(o *Options) { o.AgentTimeout, o.NotReadyGrace = silent, silent })
	agents(t, nil, "s1") // s2 answers when the test says so
	roll(t, "stale", func(s *v1alpha1.NodeConfigRolloutSpec) { s.Paused = true })
	answerFor := func(name string) error { return answer(t.Context(), nodeConfig(t, name), false) }
	eventually(t, func() error {
		nc := &v1alpha1.NodeConfig{}
		if err := admin.Get(t.Context(), types.NamespacedName{Name: "s2"}, nc); err != nil {
			return err
		}

		return answer(t.Context(), nc, false)
	})
	edit(t, "stale", func(s *v1alpha1.NodeConfigRolloutSpec) { s.Paused = false })
	eventually(t, func() error {
		return assert.Unless(nodeConfig(t, "s2").Spec.ConfigSource != nil, "s2 was given nothing")
	})

	over := server.restart()
	defer over()
	assert.NoError(t, answerFor("s2"))
	ready(t, "s1", corev1.ConditionFalse)
	eventually(t, func() error { return assert.Unless(server.refused() >= 4, "the controller has not come back") })
	time.Sleep(3 * silent) // longer than the limit for silent agents: the test is that nothing happens
	ready(t, "s1", corev1.ConditionTrue)
	if nc := nodeConfig(t, "s2"); nc.Generation != 2 {
		t.Errorf("s2 was written to while it could not be seen: %+v", nc.Spec)
	}

	over()
	r := awaitRollout(t, "stale", completeAt(1))
	assert.That(t, r.Status.Halt == nil && r.Status.Nodes.Updated == 2, "the status says %+v", r.Status)
	for _, name := range []string{"s1", "s2"} {
		nc := nodeConfig(t, name)
		assert.That(t, nc.Generation == 2, "%s was written to %d times, want once", name, nc.Generation-1)
	}
}

// ready changes a Node's condition.
func ready(t *testing.T, node string, status corev1.ConditionStatus) {
	t.Helper()
	eventually(t, func() error {
		n := &corev1.Node{}
		if err := admin.Get(t.Context(), types.NamespacedName{Name: node}, n); err != nil {
			return err
		}

		n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = status, metav1.Now()

		return admin.Status().Update(t.Context(), n)
	})
}

func TestObjectsDeletedDuringAnOutageAreRemoved(t *testing.T) {
	world(t)
	addNodes(t, "pool=gone", "g1", "g2")
	server := &restarted{}
	config := own()
	config.WrapTransport = server.wrap
	c := start(t, config)
	agents(t, nil, "g1", "g2")
	roll(t, "gone")
	roll(t, "gonetoo", func(s *v1alpha1.NodeConfigRolloutSpec) { s.Paused = true })
	awaitRollout(t, "gone", completeAt(1))
	eventually(t, func() error { return assert.Unless(len(revisions(t, "gonetoo")) != 0, "there is no revision") })

	over := server.restart()
	defer over()
	ctx := t.Context()
	cm := revisions(t, "gonetoo")["1"]
	for _, o := range []client.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "g2"}}, &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "g2"}},
		&v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "gonetoo"}}, &cm,
	} {
		err := admin.Delete(ctx, o)
		assert.Must(t, err == nil || apierrors.IsNotFound(err), "%v", err)
	}

	over()
	eventually(t, func() error {
		c.fleet.mu.Lock()
		defer c.fleet.mu.Unlock()
		if c.fleet.nodes["g2"] != nil || c.fleet.rollouts["gonetoo"] != nil || len(c.fleet.revisions["gonetoo"]) != 0 || c.fleet.nodes["g1"] == nil {
			return fmt.Errorf("known are nodes: %d, rollouts: %d, revisions: %d", len(c.fleet.nodes), len(c.fleet.rollouts), len(c.fleet.revisions))
		}

		return nil
	})
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
			var lists writes
			config.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
				return tripper(func(r *http.Request) (*http.Response, error) {
					if r.URL.Query().Get("sendInitialEvents") != "" {
						return stream(next, r)
					}
					if r.URL.Query().Get("limit") != "" {
						lists.count.Add(1)
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
				n := lists.count.Load()
				return assert.Unless(n == 6, "%d pages were listed, want one of each kind, and two of Nodes", n)
			})
			addNodes(t, "pool=listed", name)
			existing++
			knows(existing)
		})
	}
}
