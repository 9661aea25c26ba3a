// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/promserver"
)

const root = "../../.."

// metrics are what a cluster exposes that is well, except for one container
// that restarts and one in 25 nodes.
const metrics = `
kube_node_status_condition{condition="Ready",status="true",node="a"} 1
kube_node_status_condition{condition="Ready",status="true",node="b"} 0
kube_pod_container_status_restarts_total{pod="p"} %d
apiserver_request_total{code="200"} %d
kubelet_pod_start_duration_seconds_bucket{le="1"} %[2]d
kubelet_pod_start_duration_seconds_bucket{le="+Inf"} %[2]d
broken %[3]d
`

const alerts = `
groups:
- name: all
  rules:
  - {alert: Watchdog, expr: vector(1)}
  - {alert: Broken, expr: broken > 0, labels: {severity: critical}}
  - {alert: EvenkeelDeadEnd, expr: broken > 0, labels: {severity: critical}}
`

// prometheus starts a real one, which scrapes metrics, and returns a client,
// and a function that breaks things.
func prometheus(t *testing.T) (ask func(query string) (Result, error), breakIt func()) {
	t.Helper()
	binary, err := promserver.Path(root, "prometheus")
	if err != nil {
		t.Skip(err)
	}

	var scrapes, broken atomic.Int64
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := scrapes.Add(1)
		_, _ = fmt.Fprintf(w, metrics, n, 100*n, broken.Load())
	}))
	t.Cleanup(exporter.Close)
	config := fmt.Sprintf("global: {scrape_interval: 200ms, evaluation_interval: 200ms}\nrule_files: [rules.yaml]\nscrape_configs: [{job_name: kubelet, static_configs: [{targets: [%q]}]}]\n",
		strings.TrimPrefix(exporter.URL, "http://"))
	server, err := promserver.Start(binary, t.TempDir(), map[string]string{"prometheus.yaml": config, "rules.yaml": alerts})
	assert.NoError(t, err)
	t.Cleanup(func() { assert.OK(t, server.Stop()) })
	servers := at(t, Server{URL: server.URL}, 10*time.Second)

	return func(query string) (Result, error) { return servers.Query(t.Context(), "main", query, nil) }, func() { broken.Store(1) }
}

// until asks until the result is as wanted.
func until(t *testing.T, ask func(string) (Result, error), query string, wanted func(Result) bool) {
	t.Helper()
	assert.NoError(t, bed.Eventually(t.Context(), 30*time.Second, func(context.Context) error {
		got, err := ask(query)
		return assert.Unless(err == nil && wanted(got), "%s: got %+v, %v", query, got, err)
	}))
}

func TestARealPrometheusAnswers(t *testing.T) {
	ask, _ := prometheus(t)
	until(t, ask, `up`, func(r Result) bool { return r.Value == 1 })
	for query, want := range map[string]Result{
		"1.5": {Value: 1.5}, "vector(2)": {Value: 2}, "nothing": {NoData: true}, "vector(0) / 0": {NoData: true}, "NaN": {NoData: true}, `broken + 4`: {Value: 4},
	} {
		assert.Returns(t, want, query)(ask(query))
	}

	for query, want := range map[string]string{
		`"text"`: "string", "up[5m]": "matrix", "kube_node_status_condition": "2 elements", "sum(": "bad_data", "": "bad_data",
		strings.Repeat("(", 4000) + "1": "bad_data",
	} {
		assert.ErrorHas(t, assert.Err(ask(query)), want, query)
	}
}

// documented are the gates of docs/rollouts.md.
func documented(t *testing.T) []v1alpha1.RolloutGate {
	t.Helper()
	text := assert.Value(os.ReadFile(filepath.Join(root, "docs/rollouts.md")))(t)
	block := regexp.MustCompile("(?s)```yaml\n(gates:\n.*?)```").FindSubmatch(text)
	assert.Must(t, block != nil, "docs/rollouts.md has no gates")
	var strategy v1alpha1.RolloutStrategy
	assert.NoError(t, yaml.UnmarshalStrict(block[1], &strategy))

	return strategy.Gates
}

func TestTheDocumentedQueriesReturnANumber(t *testing.T) {
	gates := documented(t)
	ask, breakIt := prometheus(t)
	wanted := map[string]func(float64) bool{
		"firing-alerts": func(v float64) bool { return v == 0 }, "evenkeel-alerts": func(v float64) bool { return v == 0 },
		"nodes-not-ready": func(v float64) bool { return v == 0.5 }, "container-restarts": func(v float64) bool { return v > 0 },
		"apiserver-errors": func(v float64) bool { return v == 0 }, "kubelets-down": func(v float64) bool { return v == 0 },
		"pod-start-seconds": func(v float64) bool { return v > 0.9 && v <= 1 },
	}
	assert.That(t, len(gates) == len(wanted), "%d gates are documented, and %d tested", len(gates), len(wanted))
	queries := map[string]string{}
	for _, g := range gates {
		if wanted[g.Name] == nil {
			t.Errorf("gate %s is not tested", g.Name)
			continue
		}

		queries[g.Name] = g.Prometheus.Query
		until(t, ask, g.Prometheus.Query, func(r Result) bool { return !r.NoData && wanted[g.Name](r.Value) })
	}

	breakIt()
	until(t, ask, queries["firing-alerts"], func(r Result) bool { return r.Value == 2 })
	until(t, ask, queries["evenkeel-alerts"], func(r Result) bool { return r.Value == 1 })
	// Without Watchdog, which says that alerts are evaluated, there is no data.
	without := strings.NewReplacer("Watchdog", "Nobody", "critical", "none").Replace(queries["firing-alerts"])
	assert.Returns(t, Result{NoData: true}, without)(ask(without))
}
