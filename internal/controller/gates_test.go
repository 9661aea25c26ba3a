// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/controller/gate"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// measuring returns measurements at a server with the name main.
func measuring(t *testing.T, url string) *measurements {
	t.Helper()
	metrics := assert.Value(newMeters(prometheus.NewRegistry(), "v", "c"))(t)
	servers := assert.Value(gate.New([]gate.Server{{Name: "main", URL: url}}, 5*time.Second))(t)
	return &measurements{servers: servers, metrics: metrics}
}

func TestAGateIsEvaluatedOnceAtATime(t *testing.T) {
	asked, goOn := make(chan struct{}, 9), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		<-goOn
		_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"scalar","result":[1,"0.5"]}}`)
	}))
	defer server.Close()
	m := measuring(t, server.URL)
	g := gateAt("main")
	at := time.Date(2030, 1, 1, 0, 0, 0, 7e8, time.UTC)
	done := make(chan struct{}, 9)
	begin := func() { m.start(t.Context(), "u", &g, func() time.Time { return at }, func() { done <- struct{}{} }) }
	begin()
	<-asked
	begin() // no second request
	assert.Equal(t, len(m.results("u", []v1alpha1.RolloutGate{g})), 0, "results before the answer")
	goOn <- struct{}{}
	<-done
	want := rollout.Measurement{Gate: "errors", Server: "main", Query: "up", Time: at.Truncate(time.Second), Value: 0.5}
	got := m.results("u", []v1alpha1.RolloutGate{g})
	assert.That(t, len(got) == 1 && got[0] == want && len(asked) == 0, "got %+v, want %+v; %d more requests", got, want, len(asked))
	assert.Equal(t, len(m.results("other", []v1alpha1.RolloutGate{g})), 0, "results of another rollout")
	m.results("u", nil)
	assert.That(t, len(m.of["u"]) == 0, "a gate that was removed keeps %+v", m.of)
	begin()
	goOn <- struct{}{}
	<-done
	m.forget("u")
	assert.That(t, len(m.of) == 0, "a deleted rollout keeps %+v", m.of)
	m.running.Wait()
}

func TestAnEvaluationThatFailsHasATimeAndAnError(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	m := measuring(t, server.URL)
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, server := range []string{"main", "gone"} {
		g := gateAt(server)
		got := m.evaluate(t.Context(), &g, func() time.Time { return at })
		assert.That(t, got.Error != "" && got.Time.Equal(at) && !got.NoData && got.Value == 0, "%s: got %+v", server, got)
	}
}

func TestEvaluationsEndWithTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := measuring(t, "http://192.0.2.1")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		g := gateAt("main")
		m.start(ctx, "u", &g, time.Now, func() { t.Error("the rollout is planned again") })
		m.running.Wait()
	})
}

func TestOnlyDecisionsAboutGatesAreWrittenAtOnce(t *testing.T) {
	is := func(change func(*v1alpha1.GateStatus)) *v1alpha1.NodeConfigRolloutStatus {
		g := v1alpha1.GateStatus{Name: "errors", State: v1alpha1.GateFailing, Value: "1", Time: new(metav1.NewTime(time.Unix(1, 0))), Failures: 1, Message: "m"}
		change(&g)
		return &v1alpha1.NodeConfigRolloutStatus{Gates: []v1alpha1.GateStatus{g}}
	}
	was := is(func(*v1alpha1.GateStatus) {})
	for name, test := range map[string]struct {
		change           func(*v1alpha1.GateStatus)
		changed, decided bool
	}{
		"nothing": {func(*v1alpha1.GateStatus) {}, false, false},
		"value": {func(g *v1alpha1.GateStatus) {
			g.Value, g.Time, g.Message = "2", new(metav1.NewTime(time.Unix(9, 0))), "n"
		}, true, false},
		"failures": {func(g *v1alpha1.GateStatus) { g.Failures = 2 }, true, true},
		"state":    {func(g *v1alpha1.GateStatus) { g.State = v1alpha1.GatePassing }, true, true},
		"step":     {func(g *v1alpha1.GateStatus) { g.Step = 2 }, true, true},
	} {
		changed, decided := changesOf(was, is(test.change))
		assert.That(t, changed == test.changed && decided == test.decided, "%s: changed %t, decided %t", name, changed, decided)
	}
}

func gateAt(server string) v1alpha1.RolloutGate {
	return v1alpha1.RolloutGate{Name: "errors", Prometheus: v1alpha1.PrometheusGate{Server: server, Query: "up"}}
}
