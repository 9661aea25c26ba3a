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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// newServer returns a server with widgets besides, with a status and a default.
func newServer() *Server {
	spec := &Schema{Default: map[string]any{}, Properties: map[string]*Schema{"size": {Default: 3}}}
	return New(append(Kinds(), Kind{
		GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"},
		Kind:                 "Widget", Status: true, Generation: true, Defaults: &Schema{Properties: map[string]*Schema{"spec": spec}},
	})...)
}

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
	jsonPatch = string(types.JSONPatchType)
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

func meta(o map[string]any, name string) any { return sub(o, "metadata")[name] }

func TestGenerationCountsChangesOfTheSpecOnly(t *testing.T) {
	c := reach(newServer(), Fate{})
	const widgets = "/apis/example.com/v1/widgets"
	code, w := ask(t, c, "POST", widgets, plain, `{"metadata":{"name":"a"},"status":{"is":1}}`)
	if code != http.StatusCreated || meta(w, "generation") != int64(1) || sub(w, "spec")["size"] != int64(3) || w["status"] != nil {
		t.Fatalf("created: %d %v", code, w)
	}

	version := meta(w, "resourceVersion")
	for _, tt := range []struct {
		path, kind, body string
		code             int
		generation       any
		same             bool // as before
	}{
		{widgets + "/a", mergePath, `{"spec":{"size":3}}`, http.StatusOK, int64(1), true},
		{widgets + "/a", mergePath, `{"spec":{"size":4},"status":{"is":2}}`, http.StatusOK, int64(2), false},
		{widgets + "/a/status", mergePath, `{"spec":{"size":5},"status":{"is":2}}`, http.StatusOK, int64(2), false},
		{widgets + "/a", mergePath, `{"metadata":{"labels":{"x":"y"}}}`, http.StatusOK, int64(2), false},
		{widgets + "/a", jsonPatch, `[{"op":"test","path":"/metadata/generation","value":1},{"op":"add","path":"/spec","value":{}}]`, http.StatusUnprocessableEntity, nil, false},
		{widgets + "/a", jsonPatch, `[{"op":"test","path":"/metadata/generation","value":2},{"op":"add","path":"/spec","value":{}}]`, http.StatusOK, int64(3), false},
		{widgets + "/a", mergePath, `{"metadata":{"resourceVersion":"1"},"spec":{"size":9}}`, http.StatusConflict, nil, false},
		{widgets + "/a", mergePath, `{"metadata":{"uid":"other"},"spec":{"size":9}}`, http.StatusConflict, nil, false},
		{widgets + "/b", mergePath, `{}`, http.StatusNotFound, nil, false},
		{"/apis/example.com/v1/gadgets", mergePath, `{}`, http.StatusNotFound, nil, false},
	} {
		code, got := ask(t, c, "PATCH", tt.path, tt.kind, tt.body)
		assert.That(t, code == tt.code && (tt.generation == nil || meta(got, "generation") == tt.generation),
			"%s: %d %v", tt.body, code, got)
		if now := meta(got, "resourceVersion"); code == http.StatusOK {
			assert.That(t, (now == version) == tt.same, "%s: the version was %v and is %v", tt.body, version, now)
			version = now
		}
	}

	if _, w := ask(t, c, "GET", widgets+"/a", plain, ""); sub(w, "spec")["size"] != int64(3) || sub(w, "status")["is"] != int64(2) {
		t.Errorf("at last: %v", w)
	}
	for _, dry := range []string{"", "?dryRun=All"} {
		code, _ = ask(t, c, "POST", widgets+dry, plain, `{"metadata":{"name":"a"}}`)
		assert.Equal(t, code, http.StatusConflict, "created twice", dry)
	}

	ask(t, c, "POST", widgets+"?dryRun=All", plain, `{"metadata":{"name":"b"}}`)
	ask(t, c, "PATCH", widgets+"/a?dryRun=All", mergePath, `{"spec":{"size":8}}`)
	_, list := ask(t, c, "GET", widgets, plain, "")
	items := list["items"].([]any)
	assert.That(t, len(items) == 1 && meta(items[0].(map[string]any), "resourceVersion") == version, "dry runs changed %v", list)
}

func TestAnImmutableConfigMapKeepsItsData(t *testing.T) {
	c := reach(newServer(), Fate{})
	const path = "/api/v1/namespaces/x/configmaps"
	ask(t, c, "POST", path, plain, `{"metadata":{"generateName":"a-"},"immutable":true,"data":{"k":"v"}}`)
	_, list := ask(t, c, "GET", path, plain, "")
	name := text(sub(list["items"].([]any)[0].(map[string]any), "metadata"), "name")
	code, _ := ask(t, c, "PATCH", path+"/"+name, mergePath, `{"data":{"k":"w"}}`)
	assert.That(t, code == http.StatusUnprocessableEntity, "the data was changed: %d", code)
	code, got := ask(t, c, "PATCH", path+"/"+name, mergePath, `{"metadata":{"annotations":{"a":"b"}}}`)
	assert.That(t, code == http.StatusOK, "the metadata was not changed: %d %v", code, got)
	code, _ = ask(t, c, "DELETE", path+"/"+name, plain, `{"preconditions":{"uid":"other"}}`)
	assert.That(t, code == http.StatusConflict, "deleted another object: %d", code)
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
		} {
			code, err := post(name, tt.fate)
			assert.That(t, code == tt.code && errors.Is(err, tt.err) && s.Get("nodes", "", name, &map[string]any{}) == tt.exists,
				"%s: %d, %v", name, code, err)
		}

		if _, err := post("delayed", Fate{Delayed: time.Minute, Reset: true}); !errors.Is(err, syscall.ECONNRESET) || s.Get("nodes", "", "delayed", &map[string]any{}) {
			t.Errorf("delayed: %v", err)
		}

		time.Sleep(2 * time.Minute)
		assert.That(t, s.Get("nodes", "", "delayed", &map[string]any{}), "a delayed request was not carried out")
	})
}

func TestAnInstantRequestTakesNoVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, path := newServer(), "/api/v1/namespaces/x/events"
		c := reach(s, Fate{Instant: true, Before: time.Hour, After: time.Hour})
		c.Timeout = time.Second
		code, e := ask(t, c, "POST", path, plain, `{"reason":"Why"}`)
		assert.That(t, code == http.StatusCreated && e["reason"] == "Why", "%d %v", code, e)
		code, _ = ask(t, reach(s, Fate{Instant: true, Code: http.StatusInternalServerError}), "POST", path, plain, `{}`)
		assert.That(t, code == http.StatusInternalServerError, "%d instead of the error", code)
		_, err := reach(s, Fate{Instant: true, Refused: true}).Post("http://api"+path, plain, strings.NewReader(`{}`))
		assert.Is(t, err, syscall.ECONNREFUSED)
	})
}

func TestAStrategicPatchMergesConditions(t *testing.T) {
	s := newServer()
	c := reach(s, Fate{})
	ask(t, c, "POST", "/api/v1/nodes", plain, `{"metadata":{"name":"a"}}`)
	for _, kind := range []string{"Ready", "ConfigOK", "Ready"} {
		code, got := ask(t, c, "PATCH", "/api/v1/nodes/a/status", string(types.StrategicMergePatchType), `{"status":{"conditions":[{"type":"`+kind+`","status":"True"}]}}`)
		assert.Must(t, code == http.StatusOK, "%d %v", code, got)
	}

	var n corev1.Node
	s.Get("nodes", "", "a", &n)
	assert.That(t, len(n.Status.Conditions) == 2, "the conditions are %v", n.Status.Conditions)
}

func TestASinkAnswers(t *testing.T) {
	const reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	code, got := ask(t, reach(newServer(), Fate{}), "POST", reviews, plain, `{"spec":{"verb":"get"}}`)
	if code != http.StatusCreated || sub(got, "status")["allowed"] != true || sub(got, "spec")["verb"] != "get" {
		t.Errorf("%d %v", code, got)
	}
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
		assert.Equal(t, events(answer), "ADDED a1, ADDED b, BOOKMARK , MODIFIED a2, DELETED b, ADDED c, DELETED c", "the events")
		time.Sleep(MaxStale)
		assert.Equal(t, names(), "a2 ", "later the list")
	})
}

func TestEvictionsUseUpTheDisruptionsThatABudgetAllows(t *testing.T) {
	s := newServer()
	c := reach(s, Fate{})
	create := func(resource string, o map[string]any) { assert.NoError(t, s.Create(resource, "a", o)) }
	for _, name := range []string{"p1", "p2", "p3"} {
		create("pods", map[string]any{"metadata": map[string]any{"name": name, "labels": map[string]any{"app": "web"}}, "status": map[string]any{"phase": "Running"}})
	}

	budget := func(name string) map[string]any {
		return map[string]any{
			"metadata": map[string]any{"name": name}, "spec": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "web"}}},
			"status": map[string]any{"disruptionsAllowed": 1},
		}
	}
	create("poddisruptionbudgets", budget("b1"))
	evict := func(pod, options string) int {
		code, _ := ask(t, c, "POST", "/api/v1/namespaces/a/pods/"+pod+"/eviction", plain, `{"deleteOptions":`+options+`}`)
		return code
	}
	for _, tt := range []struct {
		pod, options string
		code         int
	}{
		{"p1", `{"preconditions":{"uid":"other"}}`, http.StatusConflict},
		{"p1", `{}`, http.StatusCreated},
		{"p1", `{}`, http.StatusNotFound},
		{"p2", `{}`, http.StatusTooManyRequests},
	} {
		code := evict(tt.pod, tt.options)
		assert.That(t, code == tt.code, "eviction of %s with %s: %d, want %d", tt.pod, tt.options, code, tt.code)
	}

	create("poddisruptionbudgets", budget("b2"))
	assert.Equal(t, evict("p2", `{}`), http.StatusInternalServerError, "eviction of a pod with two budgets")
}
