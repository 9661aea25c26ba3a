// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// test/api compares the objects with those of a real API server. Here are the
// watches, evictions, what that comparison does not reach, and what the network
// does.

func newServer() *Server { return New(Kinds()...) }

// reach returns a client whose requests have a fate.
func reach(s *Server, fate Fate) *http.Client {
	return &http.Client{Transport: &Transport{
		Server: s, Client: "tester", Fate: func(*http.Request) Fate { return fate },
		Lag: func() time.Duration { return time.Second }, Gate: func(ctx context.Context) error { return ctx.Err() },
	}}
}

// ask makes a request, and returns the code and the decoded answer.
func ask(t *testing.T, c *http.Client, method, path, contentType, body string) (int, map[string]any) {
	t.Helper()
	r := assert.Value(http.NewRequestWithContext(t.Context(), method, "http://api"+path, strings.NewReader(body)))(t)
	r.Header.Set("Content-Type", contentType)
	answer := assert.Value(c.Do(r))(t)
	defer answer.Body.Close()
	raw := assert.Value(io.ReadAll(answer.Body))(t)
	content := assert.Value(decode(raw))(t, raw)

	return answer.StatusCode, content
}

const (
	plain     = "application/json"
	mergePath = string(types.MergePatchType)
)

// events returns the events of a watch until its end, each with the name of the
// object and its label v.
func events(answer *http.Response) string {
	defer answer.Body.Close()
	var all []string
	for d := json.NewDecoder(answer.Body); ; {
		var e struct {
			Type   string
			Object map[string]any
		}
		if err := d.Decode(&e); err != nil {
			return strings.Join(all, ", ")
		}

		meta := sub(e.Object, "metadata")
		all = append(all, e.Type+" "+text(meta, "name")+text(sub(meta, "labels"), "v"))
	}
}

// A rollout has defaults in a default.
func TestAnUpdateThatChangesNothingIsNoNewVersion(t *testing.T) {
	c := reach(New(KindsWithDefaults()...), Fate{})
	const rollouts = "/apis/evenkeel.dev/v1alpha1/nodeconfigrollouts"
	code, was := ask(t, c, "POST", rollouts, plain, `{"metadata":{"name":"a"},"spec":{}}`)
	assert.That(t, code == http.StatusCreated && sub(sub(was, "spec"), "failurePolicy")["maxFailures"] == int64(1),
		"created: %d %v", code, was)
	for _, tt := range []struct {
		path, body string
		code       int
	}{
		{rollouts + "/a", `{"spec":{"failurePolicy":{"maxFailures":1}}}`, http.StatusOK},
		{rollouts + "/a", `{"spec":{"failurePolicy":null}}`, http.StatusOK},
		{rollouts + "/a", `{"metadata":{"uid":"other"},"spec":{"paused":true}}`, http.StatusConflict},
		{"/apis/example.com/v1/gadgets/a", `{}`, http.StatusNotFound},
	} {
		code, _ := ask(t, c, "PATCH", tt.path, mergePath, tt.body)
		assert.Equal(t, code, tt.code, "PATCH", tt.path, tt.body)
	}

	_, is := ask(t, c, "GET", rollouts+"/a", plain, "")
	assert.NoDiff(t, cmp.Diff(was, is), "after that")
}

// TestAWatchBeginsWithAllObjects also tests its selectors and its end.
func TestAWatchBeginsWithAllObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		for _, name := range []string{"a", "b"} {
			assert.NoError(t,
				s.Create("nodes", "", map[string]any{"metadata": map[string]any{"name": name, "labels": map[string]any{"pool": name}}}))
		}

		url := "http://api/api/v1/nodes?watch=true&sendInitialEvents=true&labelSelector=pool%3Da&timeoutSeconds=300"
		answer := assert.Value(reach(s, Fate{Ends: time.Minute, Gone: true}).Get(url))(t)
		go func() {
			time.Sleep(10 * time.Second)
			for _, pool := range []string{"c", "a"} {
				assert.OK(t, s.Patch("nodes", "", "a", types.MergePatchType, map[string]any{"metadata": map[string]any{"labels": map[string]any{"pool": pool}}}))
			}

			s.Delete("nodes", "", "a")
		}()
		assert.Equal(t, events(answer), "ADDED a, BOOKMARK , DELETED a, ADDED a, DELETED a, ERROR ", "the events")
	})
}

func TestEachFateOfARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		post := func(name string, f Fate) (int, error) {
			r, err := http.NewRequestWithContext(t.Context(), "POST", "http://api/api/v1/nodes?timeout=5s", bytes.NewBufferString(`{"metadata":{"name":"`+name+`"}}`))
			assert.NoError(t, err)
			answer, err := reach(s, f).Do(r)
			if err != nil {
				return 0, err
			}

			return answer.StatusCode, answer.Body.Close()
		}
		for name, tt := range map[string]struct {
			fate   Fate
			code   int
			err    error
			exists bool
		}{
			"plain":       {Fate{}, http.StatusCreated, nil, true},
			"refused":     {Fate{Refused: true}, 0, syscall.ECONNREFUSED, false},
			"lost-before": {Fate{LostBefore: true}, 0, syscall.ECONNRESET, false},
			"lost-after":  {Fate{LostAfter: true, Reset: true}, 0, syscall.ECONNRESET, true},
			"busy":        {Fate{Code: http.StatusTooManyRequests, RetryAfter: time.Second}, http.StatusTooManyRequests, nil, false},
			"late":        {Fate{Before: 6 * time.Second}, http.StatusGatewayTimeout, nil, false},

			"instant":                {Fate{Instant: true, Before: time.Hour, After: time.Hour}, http.StatusCreated, nil, true},
			"an error at once":       {Fate{Instant: true, Code: http.StatusInternalServerError}, http.StatusInternalServerError, nil, false},
			"refused, but not later": {Fate{Instant: true, Refused: true, Before: time.Hour}, 0, syscall.ECONNREFUSED, false},
		} {
			began := time.Now()
			code, err := post(name, tt.fate)
			assert.That(t, code == tt.code && errors.Is(err, tt.err) && s.Get("nodes", "", name, &map[string]any{}) == tt.exists,
				"%s: %d, %v", name, code, err)
			assert.That(t, !tt.fate.Instant || time.Now().Equal(began), "%s: it took time", name)
		}

		assert.Is(t, assert.Err(post("delayed", Fate{Delayed: time.Minute, Reset: true})), syscall.ECONNRESET, "delayed")
		assert.That(t, !s.Get("nodes", "", "delayed", &map[string]any{}), "a delayed request was carried out at once")
		time.Sleep(2 * time.Minute)
		assert.That(t, s.Get("nodes", "", "delayed", &map[string]any{}), "a delayed request was not carried out")
	})
}

func TestAStaleReadSeesWhatWasThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		now, stale := reach(s, Fate{}), reach(s, Fate{Stale: 5 * time.Second})
		const nodes = "/api/v1/nodes"
		ask(t, now, "POST", nodes, plain, `{"metadata":{"name":"a","labels":{"v":"1"}}}`)
		ask(t, now, "POST", nodes, plain, `{"metadata":{"name":"b"}}`)
		time.Sleep(10 * time.Second)
		ask(t, now, "PATCH", nodes+"/a", mergePath, `{"metadata":{"labels":{"v":"2"}}}`)
		ask(t, now, "PATCH", nodes+"/b", mergePath, `{"metadata":{"labels":{"v":"2"}}}`)
		ask(t, now, "DELETE", nodes+"/b", plain, "")
		ask(t, now, "POST", nodes, plain, `{"metadata":{"name":"c"}}`)
		names := func() (out string) {
			_, list := ask(t, stale, "GET", nodes, plain, "")
			for _, item := range list["items"].([]any) {
				o := item.(map[string]any)
				out += text(sub(o, "metadata"), "name") + text(sub(sub(o, "metadata"), "labels"), "v") + " "
			}

			return out
		}
		assert.Equal(t, names(), "a1 b ", "the list")
		code, _ := ask(t, stale, "GET", nodes+"/b?resourceVersion=0", plain, "")
		assert.That(t, code == http.StatusOK, "the deleted Node: %d", code)
		code, _ = ask(t, stale, "GET", nodes+"/b", plain, "")
		assert.That(t, code == http.StatusNotFound, "the deleted Node, read from etcd: %d", code)
		code, _ = ask(t, stale, "GET", nodes+"/c?resourceVersion=0", plain, "")
		assert.That(t, code == http.StatusNotFound, "the new Node: %d", code)
		answer := assert.Value(stale.Get("http://api" + nodes + "?watch=true&sendInitialEvents=true&timeoutSeconds=30"))(t)
		ask(t, now, "DELETE", nodes+"/c", plain, "")
		assert.Equal(t, events(answer), "ADDED a1, ADDED b, BOOKMARK , MODIFIED a2, DELETED b2, ADDED c, DELETED c", "the events")
		time.Sleep(MaxStale)
		assert.Equal(t, names(), "a2 ", "later the list")
	})
}

func TestEvictionsUseUpTheDisruptionsThatABudgetAllows(t *testing.T) {
	s := newServer()
	c := reach(s, Fate{})
	create := func(resource string, o map[string]any) { assert.NoError(t, s.Create(resource, "a", o)) }
	for _, name := range []string{"p1", "p2"} {
		create("pods", map[string]any{"metadata": map[string]any{"name": name, "labels": map[string]any{"app": "web"}}, "status": map[string]any{"phase": "Running"}})
	}

	create("poddisruptionbudgets", map[string]any{
		"metadata": map[string]any{"name": "b"}, "spec": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "web"}}},
		"status": map[string]any{"disruptionsAllowed": 1},
	})
	for _, tt := range []struct {
		pod, options string
		code         int
	}{
		{"p1", `{"preconditions":{"uid":"other"}}`, http.StatusConflict},
		{"p1", `{}`, http.StatusCreated},
		{"p1", `{}`, http.StatusNotFound},
		{"p2", `{}`, http.StatusTooManyRequests},
	} {
		code, _ := ask(t, c, "POST", "/api/v1/namespaces/a/pods/"+tt.pod+"/eviction", plain, `{"deleteOptions":`+tt.options+`}`)
		assert.That(t, code == tt.code, "eviction of %s with %s: %d, want %d", tt.pod, tt.options, code, tt.code)
	}
}
