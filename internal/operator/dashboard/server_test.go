// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// served is a dashboard over the fake API of controller-runtime, and what it
// logs. Rights are as may says.
func served(t *testing.T, may bool, objects ...client.Object) (*Server, *strings.Builder) {
	t.Helper()
	scheme := runtime.NewScheme()
	assert.NoError(t,
		errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme), authorizationv1.AddToScheme(scheme)))
	indexed := func(of func(*corev1.Event) string) client.IndexerFunc {
		return func(o client.Object) []string { return []string{of(o.(*corev1.Event))} }
	}
	api := fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&corev1.Event{}, "involvedObject.kind", indexed(func(e *corev1.Event) string { return e.InvolvedObject.Kind })).
		WithIndex(&corev1.Event{}, "involvedObject.name", indexed(func(e *corev1.Event) string { return e.InvolvedObject.Name })).
		WithIndex(&corev1.Event{}, "source", indexed(func(e *corev1.Event) string { return e.Source.Component })).
		WithObjects(objects...).WithStatusSubresource(&v1alpha1.NodeConfigRollout{}).
		WithInterceptorFuncs(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if review, ok := o.(*authorizationv1.SelfSubjectAccessReview); ok {
				review.Status.Allowed = may
				return nil
			}

			return c.Create(ctx, o, options...)
		}}).Build()
	var log strings.Builder
	s := &Server{o: Options{Version: "v1", Log: &log}, token: "SECRET"}
	s.clusters = []*cluster{s.clusterOf(Cluster{Config: &rest.Config{Host: "https://api"}, Context: "here"}, api)}

	return s, &log
}

// asked is a request of the page itself.
func asked(method, path, body string) *http.Request {
	r := httptest.NewRequest(method, "http://127.0.0.1:8085"+path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer SECRET")
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Origin", "http://127.0.0.1:8085")
	}

	return r
}

func answer(s *Server, r *http.Request) (int, string) {
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// answers fails the test unless a request is answered with this code and these
// words.
func answers(t *testing.T, s *Server, r *http.Request, code int, words string) {
	t.Helper()
	got, body := answer(s, r)
	assert.That(t, got == code && strings.Contains(body, words),
		"%s %s answers %d %s, want %d and %q", r.Method, r.URL, got, body, code, words)
}

// posted is a request of the page to act on the rollout workers.
func posted(verb, body string) *http.Request {
	return asked(http.MethodPost, "/api/clusters/0/rollouts/workers/"+verb, body)
}

func TestOnlyThePageItselfIsAnswered(t *testing.T) {
	s, log := served(t, true, waiting())
	for _, tt := range []struct {
		name   string
		change func(*http.Request)
		code   int
		says   string
	}{
		{"the page", func(*http.Request) {}, 200, "paused"},
		{"without the token", func(r *http.Request) { r.Header.Del("Authorization") }, 401, "the token is missing or wrong"},
		{"with another one", func(r *http.Request) { r.Header.Set("Authorization", "Bearer SECREU") }, 401, "the token is missing or wrong"},
		{"with the token in the address alone", func(r *http.Request) { r.Header.Del("Authorization"); r.URL.RawQuery = "token=SECRET" }, 401, "missing"},
		{"by a name that DNS leads here", func(r *http.Request) { r.Host = "evil.example:8085" }, 403, `not at \"evil.example\"`},
		{"by a name that begins alike", func(r *http.Request) { r.Host = "127.0.0.1.evil.example" }, 403, "by DNS is refused"},
		{"through a tunnel with another port", func(r *http.Request) { r.Host = "localhost:9999"; r.Header.Set("Origin", "http://localhost:9999") }, 200, "already"},
		{"from a page elsewhere", func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, 403, "may not ask here"},
		{"from a page of another port", func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:3000") }, 403, "may not ask here"},
		{"from a file", func(r *http.Request) { r.Header.Set("Origin", "null") }, 403, "may not ask here"},
		{"from elsewhere, as the browser says", func(r *http.Request) { r.Header.Del("Origin"); r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403, "cross-site"},
		{"as a form", func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 415, "is JSON"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := posted("pause", "{}")
			tt.change(r)
			answers(t, s, r, tt.code, tt.says)
		})
	}

	assert.That(t, strings.Count(log.String(), "rollout workers") == 2, "it logs %q, want the two that it did", log)
}

func TestReadingNeedsTheTokenTooAndThePageDoesNot(t *testing.T) {
	s, _ := served(t, true, waiting())
	for _, path := range []string{"/api/about", "/api/summaries", "/api/clusters/0/rollouts/workers/log", "/api/clusters/0/feed", "/api/clusters/0/nodes/a", "/api/clusters/0/rollouts/workers"} {
		r := asked(http.MethodGet, path, "")
		r.Header.Del("Authorization")
		answers(t, s, r, 401, "")
	}

	for path, kind := range map[string]string{"/": "text/html; charset=utf-8", "/main.js": "text/javascript; charset=utf-8", "/style.css": "text/css; charset=utf-8"} {
		r := asked(http.MethodGet, path, "")
		r.Header.Del("Authorization")
		w := httptest.NewRecorder()
		s.handler().ServeHTTP(w, r)
		assert.That(t, w.Code == 200 && w.Header().Get("Content-Type") == kind,
			"%s answers %d, %s", path, w.Code, w.Header().Get("Content-Type"))
	}
}

func TestEveryAnswerSaysWhatABrowserMayDoWithIt(t *testing.T) {
	s, _ := served(t, true)
	for _, r := range []*http.Request{asked("GET", "/", ""), asked("GET", "/api/about", ""), httptest.NewRequest("GET", "http://evil.example/", nil)} {
		w := httptest.NewRecorder()
		s.handler().ServeHTTP(w, r)
		for key, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"Cross-Origin-Resource-Policy": "same-origin", "Access-Control-Allow-Origin": "",
		} {
			assert.Equal(t, w.Header().Get(key), want, r.URL, key)
		}

		policy := w.Header().Get("Content-Security-Policy")
		assert.That(t, strings.Contains(policy, "default-src 'none'; script-src 'self' 'sha256-") && !strings.Contains(policy, "unsafe") &&
			strings.HasSuffix(policy, "; require-trusted-types-for 'script'; trusted-types 'none'"), "%s: the policy is %q", r.URL, policy)
	}
}

func TestALinkFromElsewhereOpensThePageAndNothingElse(t *testing.T) {
	s, _ := served(t, true)
	for path, want := range map[string]int{"/": 200, "/api/about": 403} {
		r := asked(http.MethodGet, path, "")
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		r.Header.Set("Sec-Fetch-Mode", "navigate")
		answers(t, s, r, want, "")
	}
}

func TestWhatIsNotAllowedIsRefusedAndChangesNothing(t *testing.T) {
	r, revision := after(t)
	s, _ := served(t, true, r, revision, nodeOf("fine", "", true), configOf("fine", metav1.ConditionTrue, "AllChecksPassed"))
	var many []string
	for i := range v1alpha1.MaxRetryNodes + 1 {
		many = append(many, fmt.Sprint("node-", i))
	}

	for _, tt := range []struct {
		verb, body string
		code       int
		says       string
	}{
		{"delete", "{}", 404, `there is no action \"delete\"`},
		{"pause", "paused", 400, "cannot parse the request"},
		{"pause", `{"paused":true}`, 400, "unknown field"},
		{"pause", `{"revision":` + strings.Repeat("1", 5000) + `}`, 400, "cannot parse the request"},
		{"approve", `{"revision":7,"step":1}`, 409, "is at revision 3, not 7"},
		{"approve", `{"revision":3,"step":0}`, 409, "has changed since the page was updated"},
		{"approve", `{"step":1}`, 409, "has changed since the page was updated"},
		{"abort", `{"revision":2,"step":1}`, 409, "is at revision 3, not 2"},
		{"resume", `{"revision":2}`, 409, "has changed since the page was updated"},
		{"resume", `{"revision":3}`, 409, "but waits for approval: kubectl evenkeel rollout approve workers"},
		{"undo", "{}", 409, "has changed since the page was updated"},
		{"undo", `{"revision":2}`, 409, `rollout \"workers\" is at revision 3, not 2: kubectl evenkeel rollout status workers; nothing was changed`},
		{"pause", `{"nodes":["fine"]}`, 400, "pause is about a whole rollout: it takes no nodes"},
		{"retry", "{}", 409, "has changed since the page was updated"},
		{"retry", `{"revision":2}`, 409, "is at revision 3, not 2"},
		{"retry", `{"revision":3,"nodes":["fine","other"]}`, 409,
			"cannot retry revision 3 on nodes on which it did not fail: fine (it is Pending), other (not selected by the rollout)"},
		{"retry", `{"revision":3,"nodes":["` + strings.Join(many, `","`) + `"]}`, 409,
			"cannot retry 1001 nodes, more than the limit of 1000"},
	} {
		answers(t, s, posted(tt.verb, tt.body), tt.code, tt.says)
	}

	answers(t, s, asked(http.MethodPost, "/api/clusters/0/rollouts/others/pause", "{}"),
		409, `rollout \"others\" does not exist; existing rollouts: workers`)

	assert.NoDiff(t, cmp.Diff(v1alpha1.NodeConfigRolloutSpec{}, written(t, s)))
	answers(t, s, asked(http.MethodGet, "/api/clusters/0/feed?seen=-1", ""), 400, "seen is not a number")
}

func TestErrorsOfTheAPIKeepTheirKind(t *testing.T) {
	nodes := schema.GroupResource{Resource: "nodes"}
	for _, tt := range []struct {
		err  error
		code int
	}{
		{apierrors.NewForbidden(nodes, "a", errors.New("no")), 403},
		{apierrors.NewNotFound(nodes, "a"), 404},
		{&url.Error{Op: "Get", URL: "https://api", Err: syscall.ECONNREFUSED}, 502},
		{apierrors.NewInternalError(errors.New("etcd")), 502},
		{context.DeadlineExceeded, 502},
		{errors.New("something else"), 409},
	} {
		w := httptest.NewRecorder()
		fail(w, 409, tt.err)
		assert.That(t, w.Code == tt.code, "%v becomes %d, want %d", tt.err, w.Code, tt.code)
	}
}

func TestTheStreamBeginsWithEverythingAndGoesOnWithWhatIsNew(t *testing.T) {
	s, _ := served(t, true)
	s.clusters[0].feed.update(snapshot{Cells: map[string]cell{"a": {Name: "a", Zone: "z"}, "b": {Name: "b", Zone: "z"}}, messageRest: messageRest{Ready: true}})
	server := httptest.NewServer(s.handler())
	defer server.Close()
	r := assert.Value(http.NewRequestWithContext(t.Context(), "GET", server.URL+"/api/clusters/0/feed?seen=0", nil))(t)
	r.Header.Set("Authorization", "Bearer SECRET")
	response := assert.Value(http.DefaultClient.Do(r))(t)
	defer response.Body.Close()
	assert.Equal(t, response.Header.Get("Content-Type"), "text/event-stream", "it is a")
	lines := bufio.NewReader(response.Body)
	next := func() (sent struct {
		All   bool
		Nodes [][]any
		Gone  []string
		Rest  *messageRest
	}) {
		t.Helper()
		data := assert.Value(lines.ReadString('\n'))(t)
		assert.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(data, "data: ")), &sent))
		assert.Returns(t, "\n", "the end of a message")(lines.ReadString('\n'))

		return sent
	}
	m := next()
	assert.That(t, m.All && len(m.Nodes) == 2 && m.Rest != nil && m.Rest.Ready, "it begins with %+v", m)
	s.clusters[0].feed.update(snapshot{Cells: map[string]cell{"b": {Name: "b", Zone: "z", Standing: describe.Standing{Health: describe.HealthFailed, Cause: "no"}}}, messageRest: messageRest{Ready: true}})
	m = next()
	assert.That(t, !m.All && len(m.Nodes) == 1 && len(m.Gone) == 1 && m.Gone[0] == "a" && m.Rest == nil, "it goes on with %+v", m)
}
