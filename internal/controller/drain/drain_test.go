// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// What a real API server answers is tested in test/api. These tests are about
// answers that it does not give on demand.

const (
	podsPath    = "GET /api/v1/pods"
	budgetsPath = "GET /apis/policy/v1/namespaces/default/poddisruptionbudgets"
	setPath     = "GET /apis/apps/v1/namespaces/default/daemonsets/logs"
)

func evictionPath(pod string) string {
	return "POST /api/v1/namespaces/default/pods/" + pod + "/eviction"
}

// fakeAPI is an API server that gives prepared answers, by method and path.
type fakeAPI struct {
	kubernetes.Interface
	answers map[string]func(http.ResponseWriter, *http.Request)

	mu     sync.Mutex
	bodies map[string][]string // of the requests
}

func newFakeAPI(t *testing.T) *fakeAPI {
	f := &fakeAPI{answers: map[string]func(http.ResponseWriter, *http.Request){}, bodies: map[string][]string{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Method + " " + r.URL.Path
		body, err := io.ReadAll(r.Body)
		assert.OK(t, err)
		f.mu.Lock()
		f.bodies[key] = append(f.bodies[key], string(body))
		answer := f.answers[key]
		f.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if answer == nil {
			t.Errorf("unexpected request %s", key)
			w.WriteHeader(http.StatusNotFound)
			return
		}

		answer(w, r)
	}))
	t.Cleanup(server.Close)
	f.Interface = kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL, QPS: -1})
	f.answers[budgetsPath] = object(&policyv1.PodDisruptionBudgetList{TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudgetList"}})

	return f
}

// object answers with an object.
func object(o runtime.Object) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(o) }
}

// failure answers with an error.
func failure(code int, message string, causes ...string) func(http.ResponseWriter, *http.Request) {
	status := metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Message: message}
	status.Reason = map[int]metav1.StatusReason{
		404: metav1.StatusReasonNotFound, 409: metav1.StatusReasonConflict, 429: metav1.StatusReasonTooManyRequests,
	}[code]
	for _, c := range causes {
		if status.Details == nil {
			status.Details = &metav1.StatusDetails{RetryAfterSeconds: 10}
		}

		status.Details.Causes = append(status.Details.Causes, metav1.StatusCause{Message: c})
	}

	return func(w http.ResponseWriter, _ *http.Request) {
		if status.Details != nil {
			w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
		}

		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(&status)
	}
}

func podOf(kind, name string) corev1.Pod {
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: kind, Name: "logs", UID: "u", Controller: new(true)}
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), OwnerReferences: []metav1.OwnerReference{owner}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func podList(next string, pods ...corev1.Pod) *corev1.PodList {
	return &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{Continue: next}, Items: pods}
}

func TestAPassReportsWhatTheAPIServerAnswers(t *testing.T) {
	type answers map[string]func(http.ResponseWriter, *http.Request)
	web, other := podOf("ReplicaSet", "web"), podOf("ReplicaSet", "zoo")
	for _, c := range []struct {
		name    string
		pods    []corev1.Pod
		answers answers
		want    rollout.DrainReport
		evicted []string // whose evictions are requested
	}{
		{name: "the pods cannot be listed", answers: answers{podsPath: failure(500, "etcd is away")},
			want: rollout.DrainReport{Waiting: "list the pods of the node: etcd is away"}},
		{name: "a DaemonSet cannot be read", pods: []corev1.Pod{podOf("DaemonSet", "logs-1"), web}, answers: answers{setPath: failure(500, "etcd is away")},
			want: rollout.DrainReport{Waiting: "read DaemonSet logs: etcd is away"}},
		{name: "a DaemonSet is gone", pods: []corev1.Pod{podOf("DaemonSet", "logs-1"), web}, answers: answers{setPath: failure(404, `daemonsets.apps "logs" not found`)},
			want: rollout.DrainReport{Refused: `daemonsets.apps "logs" not found: default/logs-1`}},
		{name: "the budgets cannot be listed", pods: []corev1.Pod{web}, answers: answers{budgetsPath: failure(500, "etcd is away")},
			want: rollout.DrainReport{Left: 1, Pods: []string{"default/web"}, Waiting: "list the PodDisruptionBudgets in default: etcd is away"}},
		{name: "a budget allows nothing now", pods: []corev1.Pod{other, web}, evicted: []string{"web", "zoo"},
			answers: answers{
				evictionPath("web"): failure(429, "Cannot evict pod.", "The disruption budget web needs 2 healthy pods and has 2 currently"),
				evictionPath("zoo"): failure(429, "Cannot evict pod.", "The disruption budget zoo is still being processed by the server."),
			},
			want: rollout.DrainReport{Left: 2, Pods: []string{"default/web", "default/zoo"}, Waiting: "default/web: Cannot evict pod. The disruption budget web needs 2 healthy pods and has 2 currently"}},
		{name: "a second budget appears meanwhile", pods: []corev1.Pod{web}, evicted: []string{"web"},
			answers: answers{evictionPath("web"): failure(500, "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")},
			want:    rollout.DrainReport{Left: 1, Pods: []string{"default/web"}, Refused: "default/web has more than one PodDisruptionBudget, with which the API server evicts no pod: keep one of them"}},
		{name: "an error that passes", pods: []corev1.Pod{web}, evicted: []string{"web"}, answers: answers{evictionPath("web"): failure(500, "etcd is away")},
			want: rollout.DrainReport{Left: 1, Pods: []string{"default/web"}, Waiting: "default/web: etcd is away"}},
		{name: "an admission webhook refuses with a long text", pods: []corev1.Pod{web}, evicted: []string{"web"},
			answers: answers{evictionPath("web"): failure(403, strings.Repeat("x", 100000))},
			want:    rollout.DrainReport{Left: 1, Pods: []string{"default/web"}, Waiting: "default/web: " + strings.Repeat("x", v1alpha1.MaxOutcomeMessage-len("default/web: "))}},
		{name: "pods that are gone, or whose names other pods have", pods: []corev1.Pod{other, web}, evicted: []string{"web", "zoo"},
			answers: answers{evictionPath("web"): failure(404, "not found"), evictionPath("zoo"): failure(409, "the UID in the precondition is another one")},
			want:    rollout.DrainReport{Left: 2, Pods: []string{"default/web", "default/zoo"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFakeAPI(t)
			f.answers[podsPath] = object(podList("", c.pods...))
			maps.Copy(f.answers, c.answers)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // shorter than Retry-After
			defer cancel()
			got := Pass(ctx, f, "n", v1alpha1.DrainOptions{})
			assert.That(t, fmt.Sprint(got) == fmt.Sprint(c.want), "the pass reports\n%+v, want\n%+v", got, c.want)
			for _, pod := range []string{"web", "zoo"} {
				want := map[bool]int{true: 1}[slices.Contains(c.evicted, pod)]
				assert.Equal(t, len(f.bodies[evictionPath(pod)]), want, "evictions of", pod)
			}
		})
	}
}

func TestAnEvictionNamesTheUIDOfThePod(t *testing.T) {
	f := newFakeAPI(t)
	f.answers[podsPath] = object(podList("", podOf("ReplicaSet", "web")))
	f.answers[evictionPath("web")] = object(&metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
	report := Pass(t.Context(), f, "n", v1alpha1.DrainOptions{})
	assert.That(t, report.Waiting == "" && report.Refused == "" && report.Left == 1, "the pass reports %+v", report)
	var sent policyv1.Eviction
	assert.NoError(t, json.Unmarshal([]byte(f.bodies[evictionPath("web")][0]), &sent))
	want := &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("uid-web")}
	assert.Equal(t, sent.APIVersion, "policy/v1")
	assert.NoDiff(t, cmp.Diff(want, sent.DeleteOptions))
}

func TestPodsAreListedInPagesUpToALimit(t *testing.T) {
	for _, c := range []struct {
		pages int
		want  string
	}{{2, ""}, {maxObjects/pageSize + 1, "the node has more than 5000 pods"}} {
		f := newFakeAPI(t)
		asked := 0
		f.answers[podsPath] = func(w http.ResponseWriter, r *http.Request) {
			asked++
			q := r.URL.Query()
			assert.That(t, q.Get("limit") == "250" && q.Get("fieldSelector") == "spec.nodeName=n", "the query is %s", r.URL.RawQuery)
			next, pods := "", make([]corev1.Pod, pageSize)
			if asked < c.pages {
				next = "more"
			}

			for i := range pods {
				pods[i] = podOf("ReplicaSet", fmt.Sprintf("web-%d-%d", asked, i))
				pods[i].DeletionTimestamp = new(metav1.Now())
			}

			object(podList(next, pods...))(w, r)
		}
		report := Pass(t.Context(), f, "n", v1alpha1.DrainOptions{})
		assert.That(t, asked == c.pages && report.Waiting == c.want && (c.want != "" || report.Left == 2*pageSize && len(report.Pods) == maxNamed),
			"after %d pages the pass reports %+v, want %q", asked, report, c.want)
	}
}

func TestATaintIsWrittenAgainIfTheNodeHasChanged(t *testing.T) {
	const get, patch = "GET /api/v1/nodes/n", "PATCH /api/v1/nodes/n"
	node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "node-uid", ResourceVersion: "7"}}
	d := rollout.Drain{Rollout: "0123456789", Revision: 1, Attempt: 1, Since: time.Unix(1_800_000_000, 0).UTC()}
	changed := failure(422, "the server rejected our request due to an error in our request: testing value /metadata/resourceVersion failed")
	for _, c := range []struct {
		name     string
		answers  []func(http.ResponseWriter, *http.Request) // to patches; the last one is repeated
		requests int
		err      string
	}{
		{"at once", []func(http.ResponseWriter, *http.Request){object(node)}, 1, ""},
		{"after two changes", []func(http.ResponseWriter, *http.Request){changed, failure(409, "conflict"), object(node)}, 3, ""},
		{"it always changes", []func(http.ResponseWriter, *http.Request){changed}, again.Steps, "write the taint evenkeel.dev/draining of Node n: the server rejected"},
		{"it is forbidden", []func(http.ResponseWriter, *http.Request){failure(403, "the policy refuses it")}, 1, "write the taint evenkeel.dev/draining of Node n: the policy refuses it"},
		{"the Node is gone", []func(http.ResponseWriter, *http.Request){failure(404, "not found")}, 1, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFakeAPI(t)
			f.answers[get] = object(node)
			n := 0
			f.answers[patch] = func(w http.ResponseWriter, r *http.Request) {
				n++
				c.answers[min(n, len(c.answers))-1](w, r)
			}
			got, err := Write(t.Context(), f, "n", d)
			assert.That(t, (got != nil) == (c.err == "" && c.name != "the Node is gone"), "the stored Node is %+v", got)
			assert.That(t, (err == nil) == (c.err == "") && (err == nil || strings.HasPrefix(err.Error(), c.err)),
				"the error is %v, want %q", err, c.err)
			assert.That(t, n == c.requests, "%d patches, want %d", n, c.requests)
			var ops []struct {
				Op, Path string
				Value    any
			}
			assert.NoError(t, json.Unmarshal([]byte(f.bodies[patch][0]), &ops))
			assert.That(t, len(ops) == 3 && ops[0].Value == "node-uid" && ops[1].Value == "7" && ops[2].Path == "/spec/taints",
				"the patch is %s", f.bodies[patch])
		})
	}
}

func TestPermissionsAreAskedForUntilOneIsMissing(t *testing.T) {
	const path = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	answer := func(missing int) (*fakeAPI, *int) {
		f, n := newFakeAPI(t), 0
		f.answers[path] = func(w http.ResponseWriter, _ *http.Request) {
			n++
			fmt.Fprintf(w, `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{},"status":{"allowed":%t}}`, n != missing)
		}

		return f, &n
	}
	for missing, want := range []int{5, 1, 2, 3, 4, 5} { // 0: none
		f, asked := answer(missing)
		assert.Returns(t, missing == 0, "without permission", missing)(MayDrain(t.Context(), f))
		assert.Equal(t, *asked, want, "questions without permission", missing)
	}

	f := newFakeAPI(t)
	f.answers[path] = failure(500, "etcd is away")
	assert.ErrorHas(t, assert.Err(MayDrain(t.Context(), f)), "ask whether this controller may list pods: etcd is away")
}
