// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/promserver"
)

// gauge starts a Prometheus that scrapes a metric without a value. set changes
// the value, and waits until Prometheus has it.
func (s *scenario) gauge() (prometheus string, set func(value string)) {
	s.t.Helper()
	binary, err := promserver.Path(root, "prometheus")
	if err != nil {
		s.t.Skip(err)
	}

	var sample atomic.Value
	sample.Store("")
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if v := sample.Load().(string); v != "" {
			fmt.Fprintf(w, "gate_errors{job=\"test\"} %s\n", v)
		}
	}))
	s.t.Cleanup(exporter.Close)
	server, err := promserver.Start(binary, s.t.TempDir(), map[string]string{"prometheus.yaml": fmt.Sprintf(
		"global: {scrape_interval: 500ms}\nscrape_configs: [{job_name: test, static_configs: [{targets: [%q]}]}]\n", strings.TrimPrefix(exporter.URL, "http://"))})
	s.do(err)
	s.t.Cleanup(func() { assert.OK(s.t, server.Stop()) })

	return server.URL, func(value string) {
		s.t.Helper()
		sample.Store(value)
		s.until("Prometheus has the value", func() (string, bool) {
			r, err := http.Get(server.URL + "/api/v1/query?query=gate_errors")
			if err != nil {
				return err.Error(), false
			}

			defer r.Body.Close()
			body, err := io.ReadAll(r.Body)
			s.do(err)

			return string(body), strings.Contains(string(body), fmt.Sprintf("%q", value))
		})
	}
}

// gateIs reports whether the rollout's gate has a state.
func gateIs(state v1alpha1.GateState) check {
	return that("the gate is "+string(state), func(st *status) bool { return len(st.Gates) == 1 && st.Gates[0].State == state })
}

func TestAFailingGateRollsBackAndAGateWithoutDataWaits(t *testing.T) { // not parallel: it stops the shared controller
	s := play(t, "gates", 4)
	prometheus, set := s.gauge()
	alone(t)
	begin := func() *process {
		return s.controller("--leader-elect=false", "--prometheus-server=main="+prometheus)
	}
	controller := begin()

	r := s.roll("maxPods: 101", `
strategy:
  maxUnavailable: 1
  steps: [{nodes: 1}, {nodes: 100%}]
  gates: [{name: errors, prometheus: {server: main, query: "sum(gate_errors)", passes: "< 0.5"}, interval: 10s, failures: 2}]
failurePolicy: {action: Rollback}
`)
	st := r.await(at(1, v1alpha1.RolloutWaiting), gateIs(v1alpha1.GateEmpty), updated(1))
	assert.That(t, strings.Contains(st.Message, "gate errors has no data: the result is empty or NaN; query: sum(gate_errors); correct what"),
		"the message is %q", st.Message)
	reason, _ := degraded(st)
	assert.Equal(t, reason, "GatesNotPassing", "Degraded")
	have := s.those(gives, st.UpdateRevision.ConfigMapRef)
	s.same("have the first revision while there is no data", have, s.everGiven(st.UpdateRevision.ConfigMapRef))
	assert.Equal(t, len(have), 1, "nodes that have the revision")
	set("0.25")
	good := r.complete(1)
	s.same("run the first revision", s.those(runs, good), s.fleet.Names())

	// The canary is healthy, but the metric is not. The controller is killed
	// between the two failures.
	set("0.75")
	r.push("maxPods: 102")
	first := r.await(at(2, v1alpha1.RolloutWaiting), gateIs(v1alpha1.GateFailing))
	g := first.Gates[0]
	assert.That(t, g.Failures == 1 && g.Value == "0.75", "after the first failure: %+v", g)
	controller.Kill()
	controller = begin()
	last := r.await(at(2, v1alpha1.RolloutRolledBack))
	g = last.Gates[0]
	assert.That(t, g.Failures == 2 && g.Time.Sub(first.Gates[0].Time.Time) >= 10*time.Second, "the failures are %+v and %+v", first.Gates[0], g)
	h := last.Halt
	assert.That(t, h.Reason == v1alpha1.HaltGateFailed && h.Rollback &&
		h.Message == "gate errors failed 2 times in a row: value 0.75, must be < 0.5; query: sum(gate_errors)", "the stop is %+v", h)
	assert.That(t, last.History[0].Outcome == v1alpha1.OutcomeRolledBack && last.History[0].Reason == v1alpha1.HaltGateFailed,
		"the history says %+v", last.History[0])
	bad := last.UpdateRevision.ConfigMapRef
	assert.Equal(t, len(s.everGiven(bad)), 1, "nodes that were assigned the bad revision")
	s.until("every node runs the first revision", func() (string, bool) {
		on := s.those(runs, good)
		return strings.Join(on, " "), len(on) == 4
	})
	metrics := metricsOf(t, controller)
	for _, want := range []string{
		`evenkeel_rollout_gate{gate="errors",rollout="gates",state="Failing"} 1`, `evenkeel_controller_gate_evaluations_total{result="ok",server="main"} 1`,
		`evenkeel_controller_gate_evaluations_total{result="error",server="main"} 0`,
	} {
		assert.That(t, strings.Contains(metrics, want), "the metrics lack %s", want)
	}

	s.do(controller.stop())
}
