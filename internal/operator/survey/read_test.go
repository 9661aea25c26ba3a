// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// server answers requests for the /configz of nodes.
func server(t testing.TB, answer func(node string, w http.ResponseWriter, r *http.Request)) rest.Interface {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer(strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/api/v1/nodes/"), "/proxy/configz"), w, r)
	}))
	t.Cleanup(s.Close)
	return assert.Value(query.ConfigzClient(&rest.Config{Host: s.URL, QPS: -1, BearerToken: "swordfish"}))(t)
}

// says answers every request so.
func says(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// fails answers every request with a Status of this code.
func fails(code int, reason, message string) http.HandlerFunc {
	text, _ := json.Marshal(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message})
	return says(code, string(text))
}

// ordinary answers with the configuration of an ordinary kubelet.
var ordinary = says(200, `{"kubeletconfig": {"maxPods": 110}}`)

func quiet(int) {}

func named(n int) []Node {
	nodes := make([]Node, n)
	for i := range nodes {
		nodes[i].Name = fmt.Sprint(i)
	}

	return nodes
}

func TestEachKindOfAnswerHasItsReason(t *testing.T) {
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a redirect was followed with %q", r.Header.Get("Authorization"))
	}))
	t.Cleanup(thief.Close)
	answers := map[string]struct {
		id     string
		answer http.HandlerFunc
	}{
		"good":   {"", ordinary},
		"dead":   {"unreachable", fails(503, "ServiceUnavailable", "connection refused")},
		"wordy":  {"unreachable", fails(502, "InternalError", strings.Repeat("no ", 1000))},
		"broken": {"unreachable", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		"silent": {"timeout", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		"trickles": {"timeout", func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, " ")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(time.Millisecond)
			}
		}},
		"closed": {"noConfigz", http.NotFound},
		"strict": {"refused", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "Forbidden (user=kube-apiserver, verb=get, resource=nodes, subresource(s)=[configz proxy])", 403)
		}},
		// What the API server would say about the user, from a kubelet.
		"liar":      {"forbidden", fails(403, "Forbidden", `nodes "liar" is forbidden: User "jane" cannot get resource "nodes/proxy"`)},
		"redirects": {"notAConfiguration", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, thief.URL, http.StatusFound) }},
		"unknown":   {"refused", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "Unauthorized", 401) }},
		"text":      {"notAConfiguration", says(200, "\x1b[2J<html>")},
		"empty":     {"notAConfiguration", says(200, `{}`)},
		"list":      {"notAConfiguration", says(200, `{"kubeletconfig": [1]}`)},
		"deep":      {"notAConfiguration", says(200, `{"kubeletconfig": {"x": `+strings.Repeat("[", 1000)+strings.Repeat("]", 1000)+`}}`)},
		"many":      {"notAConfiguration", says(200, `{"kubeletconfig": {"x": [`+strings.Repeat("1,", 200_000)+`1]}}`)},
		"huge":      {"notAConfiguration", says(200, `{"kubeletconfig": {"x": "`+strings.Repeat("x", 8<<20)+`"}}`)},
	}
	api := server(t, func(node string, w http.ResponseWriter, r *http.Request) { answers[node].answer(w, r) })
	var nodes []Node
	for name := range answers {
		nodes = append(nodes, node(name, "v1.37.2", "a"))
	}

	got := assert.Value(Read(t.Context(), api, nodes, 5*time.Second, quiet))(t)
	assert.Equal(t, len(got), len(answers))
	for _, a := range got {
		assert.Equal(t, a.Failed.ID, answers[a.Node.Name].id, a.Node.Name, a.Failed.Detail)
		assert.That(t, (a.Config == nil) == (a.Failed.Wrong != "") && len(a.Failed.Detail) <= 300, "%+v", a)
	}
}

func TestAMissingPermissionEndsTheSurvey(t *testing.T) {
	var asked atomic.Int32
	api := server(t, func(node string, w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		words := fmt.Sprintf(`nodes %q is forbidden: User "jane" cannot get resource "nodes/proxy" in API group "" at the cluster scope`, node)
		fails(403, "Forbidden", words)(w, r)
	})
	answers, err := Read(t.Context(), api, named(1000), Patience, quiet)
	assert.ErrorHas(t, err, `cannot get resource "nodes/proxy"`)
	assert.That(t, answers == nil && asked.Load() < 2*AtOnce, "%d were asked", asked.Load())
}

// TestALiarEndsNoSurvey lets one kubelet say what the API server would say
// about the user, before any other one answers.
func TestALiarEndsNoSurvey(t *testing.T) {
	lied := make(chan struct{})
	api := server(t, func(node string, w http.ResponseWriter, r *http.Request) {
		if node == "0" {
			fails(403, "Forbidden", `nodes "0" is forbidden: User "jane" cannot get resource "nodes/proxy"`)(w, r)
			return
		}

		<-lied
		ordinary(w, r)
	})
	answers, err := Read(t.Context(), api, named(3), Patience, func(done int) {
		if done == 1 {
			close(lied)
		}
	})
	assert.NoError(t, err)
	r := NewReport(answers, today)
	assert.That(t, r.Read == 2 && len(r.Unread) == 1 && r.Unread[0].ID == "forbidden", "%+v", r)
}

func TestAnInterruptedSurveyHasWhatIsKnown(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	api := server(t, func(node string, w http.ResponseWriter, r *http.Request) {
		if node == "1" {
			ordinary(w, r)
			return
		}

		<-r.Context().Done()
	})
	nodes := named(100)
	nodes[1].ready = true // it is asked first
	answers, err := Read(ctx, api, nodes, time.Hour, func(done int) {
		if done == 1 {
			interrupt()
		}
	})
	assert.NoError(t, err)
	r := NewReport(answers, today)
	assert.That(t, r.Read == 1 && len(r.Unread) == 1 && r.Unread[0].ID == "interrupted" && r.Unread[0].Nodes == 99, "%+v", r)
	unread := r.Sections()[3].Items
	assert.That(t, len(unread) == 1 && len(unread[0].Lines) == 0, "%+v", unread)
}

func TestTwentyNodesAreAskedAtOnce(t *testing.T) {
	var now atomic.Int32
	var first sync.WaitGroup // wait for each other
	first.Add(AtOnce)
	var asked atomic.Int32
	api := server(t, func(_ string, w http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		assert.That(t, n <= AtOnce, "%d at once", n)
		if asked.Add(1) <= AtOnce {
			first.Done()
			first.Wait()
		}

		now.Add(-1)
		ordinary(w, r)
	})
	answers, err := Read(t.Context(), api, named(10*AtOnce), time.Minute, quiet)
	assert.That(t, err == nil && answers[0].Config == answers[len(answers)-1].Config, "%v, or equal configurations are kept twice", err)
}

func TestTheMemoryForConfigurationsIsBounded(t *testing.T) {
	kept := keeper{distinct: map[string]*Config{}}
	big := func(i int) Answer { return Answer{Config: &Config{text: strings.Repeat(fmt.Sprint(i), maxKept/2)}} }
	for i, want := range []string{"", "", "noRoom"} {
		assert.Equal(t, kept.keep(big(i)).Failed.ID, want)
	}

	assert.Equal(t, kept.keep(big(1)).Failed.ID, "", "a known configuration needs no room")
}

// judging is a kubelet that judges as these functions say.
type judging struct {
	component.Component
	validate func(data string) component.Verdict
}

func (judging) Name() string { return "kubelet" }
func (j judging) Validate(_ context.Context, data []byte) component.Verdict {
	return j.validate(string(data))
}

func TestEachConfigurationIsJudgedOnce(t *testing.T) {
	var answers []Answer
	for i, over := range []string{`{}`, `{}`, `{"address": "192.0.2.2"}`, `{"featureGates": {"NodeSwap": true}, "address": "192.0.2.3"}`, `{"gone": 1}`, `{"crash": 1}`} {
		answers = append(answers, said(t, node(fmt.Sprint(i), "v1.37.2", "a"), over))
	}

	r := report(answers...)
	seen := map[string]int{}
	kubelet := judging{validate: func(data string) component.Verdict {
		seen[data]++
		assert.That(t, !strings.Contains(data, Own) && strings.Contains(data, `"apiVersion":"kubelet.config.k8s.io/v1beta1"`), "%s", data)
		switch {
		case strings.Contains(data, "NodeSwap"):
			return component.Verdict{Outcome: component.Rejected, Message: "unrecognized feature gate: NodeSwap"}
		case strings.Contains(data, "gone"):
			return component.Verdict{Outcome: component.Rejected, Message: `strict decoding error: unknown field "gone"`}
		case strings.Contains(data, "crash"):
			return component.Verdict{Message: "the dry run crashed"}
		}

		return component.Verdict{Outcome: component.Accepted}
	}}
	r.Judge(t.Context(), kubelet, "v1.38.0")
	assert.Equal(t, r.Summary[len(r.Summary)-1], "kubelet v1.38.0: 4 nodes would start; 1 would not: unrecognized feature gate: NodeSwap; 1 not judged")
	var got []string
	for _, c := range r.Configurations {
		got = append(got, fmt.Sprintf("%d %s %s", c.Nodes, c.Verdict.Outcome, c.Verdict.Message))
	}

	assert.Equal(t, strings.Join(got, " | "), `2 would start  | 1 would start  | 1 would not start unrecognized feature gate: NodeSwap | 1 would start it would ignore: unknown field "gone" | 1 not judged the dry run crashed`)

	ended, end := context.WithCancel(t.Context())
	end()
	r.Judge(ended, kubelet, "v1.38.0")
	assert.Equal(t, r.Judged.Nodes[NotJudged], 6)
}
