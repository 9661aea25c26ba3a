// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// assigned starts a source behind a proxy, for a node with an assignment.
func assigned(t *testing.T) (string, *corev1.ConfigMap, *proxy, *NodeConfigSource) {
	t.Helper()
	node, cm := newName("node"), newConfigMap(t)
	p := newProxy(t, node)
	assign(t, node, refTo(cm))
	s := startSource(t, newClient(t, p.Kubeconfig), node, &disk{})
	awaitAnswer(t, s, "the assignment", kind(trial.Assigned))

	return node, cm, p, s
}

// kinds collects the kinds of all answers of a source.
func kinds(t *testing.T, s interface {
	Current() Answer
	Changed() <-chan struct{}
}) func() []trial.IntentKind {
	t.Helper()
	all := make(chan trial.IntentKind, 100)
	background(t, func(ctx context.Context) {
		for {
			select {
			case <-s.Changed():
				all <- s.Current().Kind
			case <-ctx.Done():
				return
			}
		}
	})

	return func() (seen []trial.IntentKind) {
		for len(all) > 0 {
			seen = append(seen, <-all)
		}

		return seen
	}
}

func TestFailureIsUnansweredWithCauseUntilItEnds(t *testing.T) {
	for _, c := range []struct {
		status int
		words  string
	}{
		{401, "cannot be read: the API server does not accept this node's credentials (401): check whether the client certificate of its kubeconfig has expired"},
		{403, "cannot be read: forbidden to this node (403): apply evenkeel's RBAC, which grants the group system:nodes get, list, watch and create on nodeconfigs"},
		{429, "cannot be read: the API server is overloaded (429); retrying"},
		{500, "cannot be read: the API server failed (500): made up; retrying"},
		{503, "cannot be read: the API server failed (503): made up; retrying"},
	} {
		node, _, p, s := assigned(t)
		before := s.Current()
		p.fail(all(c.status))
		p.CloseConnections()
		a := awaitAnswer(t, s, c.words, kind(trial.Unanswered))
		want := "NodeConfig " + node + " " + c.words
		assert.That(t, a.Cause == want, "cause %q, want %q", a.Cause, want)
		p.fail(nil)
		assert.That(t, same(awaitAnswer(t, s, "the recovery", kind(trial.Assigned)), before), "after it %+v, before it %+v", s.Current(), before)
		assert.Equal(t, p.count("GET", "/configmaps/"), 1, "downloads")

		// The download of a ConfigMap is retried in the same way. Missing
		// rights are an answer about it.
		failed := trial.Unanswered
		if c.status == http.StatusUnauthorized || c.status == http.StatusForbidden {
			failed = trial.Invalid
		}

		cm := newConfigMap(t)
		p.fail(of("/configmaps/", c.status))
		assign(t, node, refTo(cm))
		awaitAnswer(t, s, "the failed download", cause(failed, fmt.Sprintf("ConfigMap evenkeel-system/%s cannot be read: ", cm.Name)))
		p.fail(nil)
		awaitAnswer(t, s, "the download", func(a Answer) bool { return a.Kind == trial.Assigned && string(a.Config.UID) == string(cm.UID) })
	}
}

func TestReconnectedWatchGivesNoNewAnswer(t *testing.T) {
	node, _, p, s := assigned(t)
	// The watcher opens a watch that lasted a second again without a delay.
	await(t, "the watch to have lived a while", time.Now, func() func(time.Time) bool {
		began := time.Now()
		return func(now time.Time) bool { return now.Sub(began) > 1100*time.Millisecond }
	}())
	seen := kinds(t, s)
	before := p.count("nodeconfigs", "watch")
	p.CloseConnections()
	await(t, "another watch", func() int { return p.count("nodeconfigs", "watch") }, func(n int) bool { return n > before })
	setSpec(t, node, map[string]any{})
	awaitAnswer(t, s, "what came after", kind(trial.Unassigned))
	for _, k := range seen() {
		assert.That(t, k != trial.Unanswered, "the source was Unanswered in between")
	}
}

func TestExpiredWatchIsOpenedAgain(t *testing.T) {
	for _, how := range []int{410, expire} {
		node, _, p, s := assigned(t)
		expired := false
		p.fail(func(r *http.Request) int {
			if !expired && strings.Contains(r.URL.Path, "nodeconfigs") {
				expired = true
				return how
			}

			return 0
		})
		p.CloseConnections()
		setSpec(t, node, map[string]any{})
		awaitAnswer(t, s, "what was missed", kind(trial.Unassigned))
	}
}

func TestSlowAPIServerIsUnanswered(t *testing.T) {
	node, cm := newName("node"), newConfigMap(t)
	assign(t, node, refTo(cm))
	p := newProxy(t, node)
	p.fail(all(hang))
	c := newClient(t, p.Kubeconfig)
	c.timeout = time.Second
	s := startSource(t, c, node, &disk{})
	a := awaitAnswer(t, s, "the end of patience", func(a Answer) bool { return strings.HasSuffix(a.Cause, "retrying") })
	want := "NodeConfig " + node + " cannot be read: the API server did not answer in time; retrying"
	assert.That(t, a.Kind == trial.Unanswered && a.Cause == want, "answer %+v, want %q", a, want)
	p.fail(of("/configmaps/", hang))
	awaitAnswer(t, s, "the end of patience with the download", cause(trial.Unanswered,
		"ConfigMap evenkeel-system/"+cm.Name+" cannot be read: the API server did not answer in time; retrying"))
	p.fail(nil)
	awaitAnswer(t, s, "the answer", kind(trial.Assigned))
}

func TestAnObjectIsListedIfTheAPIServerRefusesToStreamIt(t *testing.T) {
	for name, refuse := range map[string]func(*http.Request) int{
		"old": func(*http.Request) int { return 422 },
		"late": func(r *http.Request) int {
			values := r.URL.Query()
			values.Set("resourceVersion", "9999999999") // which its watch cache does not reach within 3 s
			r.URL.RawQuery = values.Encode()
			return 0
		},
	} {
		node := newName("node")
		assign(t, node, refTo(newConfigMap(t)))
		p := newProxy(t, node)
		var listed atomic.Bool
		p.fail(func(r *http.Request) int {
			switch values := r.URL.Query(); {
			case values.Has("sendInitialEvents"):
				return refuse(r)
			case strings.HasSuffix(r.URL.Path, "/nodeconfigs") && !values.Has("watch"):
				<-time.After(2 * time.Second) // a late server also needs time for the list
				if name == "old" && !listed.Swap(true) {
					return 503
				}
			}

			return 0
		})
		c := newClient(t, p.Kubeconfig)
		c.timeout = 4 * time.Second
		s := startSource(t, c, node, &disk{})
		if name == "old" {
			awaitAnswer(t, s, "a list that fails", cause(trial.Unanswered, "the API server failed (503)"))
		}

		awaitAnswer(t, s, "the object", kind(trial.Assigned))
		setSpec(t, node, map[string]any{})
		awaitAnswer(t, s, "a change after the list", kind(trial.Unassigned))
	}
}

func TestUnexpectedKindIsUnanswered(t *testing.T) {
	node, _, p, s := assigned(t)
	p.fail(func(r *http.Request) int {
		if r.URL.Query().Has("sendInitialEvents") {
			return 422
		}

		return nonsense
	})
	p.CloseConnections()
	awaitAnswer(t, s, "a list that is none", cause(trial.Unanswered, "decode the list"))
	p.fail(all(nonsense))
	awaitAnswer(t, s, "a watch that is none", func(a Answer) bool {
		return a.Kind == trial.Unanswered && !strings.Contains(a.Cause, "decode the list")
	})
	unreachable(t, newClient(t, p.Kubeconfig), node, "decode the answer")
	p.fail(of("/configmaps/", nonsense))
	awaitAnswer(t, s, "the recovery", kind(trial.Assigned))
	assign(t, node, refTo(newConfigMap(t)))
	awaitAnswer(t, s, "a ConfigMap that is none", cause(trial.Unanswered, "decode the answer: unable to decode evenkeel.dev/v1alpha1, Kind=NodeConfig into *v1.ConfigMap; retrying"))
	p.fail(nil)
	awaitAnswer(t, s, "the recovery", kind(trial.Assigned))
}

func TestRemovedCRDIsUnansweredUntilRestored(t *testing.T) {
	node, _, _, s := assigned(t)
	seen := kinds(t, s)
	asAdmin(t, request{verb: "DELETE", gv: crdV1, resource: "customresourcedefinitions", name: "nodeconfigs.evenkeel.dev"})
	a := awaitAnswer(t, s, "the removal", cause(trial.Unanswered, "does not know this kind of object"))
	want := "NodeConfig " + node + " cannot be read: the API server does not know this kind of object (404): apply evenkeel's CRDs"
	assert.That(t, a.Cause == want, "cause %q, want %q", a.Cause, want)
	assert.NoError(t, cluster.Apply(t.Context(), "../../../config/api"))
	awaitAnswer(t, s, "a new, empty object", kind(trial.Unassigned))
	for _, k := range seen() {
		assert.That(t, k != trial.Nil && k != trial.Invalid, "meanwhile the source was %v", k)
	}
}

func TestSourceWaitsForKubeconfig(t *testing.T) {
	node := newName("node")
	path := filepath.Join(t.TempDir(), "kubeconfig")
	s := startSource(t, newClient(t, path), node, &disk{})
	a := s.First(t.Context())
	want := "NodeConfig " + node + " cannot be read: kubeconfig " + path + " does not exist yet, or a file that it names (stat " + path +
		": no such file or directory); waiting for the kubelet to obtain its certificate"
	assert.That(t, a.Kind == trial.Unanswered && a.Cause == want, "answer %+v, want %q", a, want)
	unreachable(t, newClient(t, path), node, "kubeconfig "+path+" does not exist yet")
	assert.NoError(t, os.WriteFile(path, []byte("apiVersion: v1\nkind: Config\nusers: ["), 0o600))
	awaitAnswer(t, s, "half a kubeconfig", cause(trial.Unanswered, "kubeconfig "+path+" cannot be used: "))
	certificate := filepath.Join(t.TempDir(), "kubelet-client-current.pem")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: a, user: {client-certificate: " +
		certificate + ", client-key: " + certificate + "}}]\ncontexts: [{name: a, context: {cluster: a, user: a}}]\ncurrent-context: a\n"
	assert.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	awaitAnswer(t, s, "a kubeconfig without its certificate", func(a Answer) bool {
		return strings.Contains(a.Cause, certificate) && strings.HasSuffix(a.Cause, "waiting for the kubelet to obtain its certificate")
	})
	assert.NoError(t, os.WriteFile(path, assert.Value(os.ReadFile(nodeKubeconfig(t, node)))(t), 0o600))
	awaitAnswer(t, s, "the whole one", kind(trial.Unassigned))
}

func TestRetriesEndWithTheirContext(t *testing.T) {
	node, cm := newName("node"), newConfigMap(t)
	assign(t, node, refTo(cm))
	p := newProxy(t, node)
	p.fail(of("/api/v1/", 503))
	c := newClient(t, p.Kubeconfig)
	r := NewReporter(c, node, "evenkeel-agent", quiet())
	stopReporter := background(t, r.Run)
	r.Report(Report{Condition: metav1.Condition{Status: "True", Reason: "r", Message: "m"}})
	r.Event(Normal, "R", "m")
	s := NewNodeConfigSource(c, node, &disk{}, quiet())
	stopSource := background(t, s.Run)
	w := NewNodeWatch(c, node)
	w.Start(t.Context())
	await(t, "attempts", func() int {
		return min(p.count("POST", "/events"), p.count("GET", "/nodes/"+node), p.count("/configmaps/"), p.count("/pods", "watch"))
	}, func(n int) bool { return n > 0 })
	stopReporter()
	stopSource()
	w.Stop()
	assert.Equal(t, s.Current().Kind, trial.Unanswered, "in the end")
}

func TestIdleSourceSendsNoRequests(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 20 s")
	}

	node, _, p, s := assigned(t)
	nc := getNodeConfig(t, node)
	r := NewReporter(newClient(t, p.Kubeconfig), node, "evenkeel-agent", quiet())
	background(t, r.Run)
	report := Report{NodeConfigUID: nc.UID, Status: someStatus("a"), Condition: metav1.Condition{Status: "True", Reason: "r", Message: "m"}}
	r.Report(report)
	await(t, "the status", func() string { return getNodeConfig(t, node).Status.Error }, func(e string) bool { return e == "a" })
	createNode(t, node)
	await(t, "both watches and the condition", func() []int {
		return []int{p.count("nodeconfigs", "watch"), p.count("configmaps", "watch"), p.count("PATCH", "/nodes/")}
	}, func(n []int) bool { return n[0] > 0 && n[1] > 0 && n[2] > 0 })
	before := p.count()
	timer := time.NewTimer(20 * time.Second) // the test is that nothing happens
	defer timer.Stop()
	<-timer.C
	assert.That(t, p.count() == before, "requests in 20 s, want none: %v", p.requests[before:])
	a := s.Current()
	assert.That(t, a.Kind == trial.Assigned, "afterwards %+v", a)
}
