// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/trial"
)

// Metrics are the agent's metrics; docs/metrics.md lists them.
type Metrics struct {
	registry *prometheus.Registry

	assigned, active, lastKnownGood *prometheus.GaugeVec
	failing                         prometheus.Gauge
	restarts, rollbacks             *prometheus.CounterVec
	validations                     *prometheus.CounterVec
	validation, change              prometheus.Histogram
	trialHealthy, trialDuration     prometheus.Gauge
	trialStart, restartsInTrial     prometheus.Gauge
	kubeletHealthy                  prometheus.Gauge
	podStarts                       *prometheus.GaugeVec
	node                            string
	info, condition                 *prometheus.GaugeVec
}

// sourceLabels are the labels of the kubelet's former metrics with the same
// meaning.
var sourceLabels = []string{"node_config_source", "node_config_uid", "node_config_resource_version", "node_config_kubelet_key"}

// NewMetrics returns the metrics of a node's agent, in their own registry.
func NewMetrics(node, version, commit string) *Metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "evenkeel_" + name, Help: help})
	}
	source := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "evenkeel_node_config_" + name, Help: help + " Always 1."}, sourceLabels)
	}
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "evenkeel_" + name, Help: help}, []string{label})
	}
	labeled := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "evenkeel_" + name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "evenkeel_" + name, Help: help, Buckets: buckets})
	}
	m := &Metrics{
		registry:      prometheus.NewRegistry(),
		assigned:      source("assigned", "The assigned configuration."),
		active:        source("active", "The running configuration."),
		lastKnownGood: source("last_known_good", "The configuration that a failed trial falls back to."),
		failing:       gauge("node_config_error", "1 if ConfigOK is not True, else 0."),
		restarts:      counter("kubelet_starts_total", "Starts of the kubelet, by cause.", "cause"),
		rollbacks:     counter("rollbacks_total", "Failed trials, by reason.", "reason"),
		validations:   counter("validations_total", "Dry runs of the kubelet, by verdict.", "verdict"),
		validation:    histogram("validation_duration_seconds", "Duration of dry runs.", []float64{.05, .1, .2, .4, .8, 1.6, 3.2, 15}),
		change: histogram("change_duration_seconds", "Time from receiving an assignment until the kubelet is healthy with it.",
			[]float64{.5, 1, 1.5, 2, 3, 5, 10, 30, 120}),
		trialHealthy:    gauge("trial_healthy_seconds", "Observed health in the current trial; 0 without a trial."),
		trialDuration:   gauge("trial_duration_seconds", "Required health in the current trial; 0 without a trial."),
		trialStart:      gauge("trial_start_time_seconds", "Start of the current trial, in Unix time; 0 without a trial."),
		restartsInTrial: gauge("trial_restarts", "Unexpected restarts in the current trial."),
		podStarts:       labeled("trial_pods_started", "What the last trial showed about starting pods. Always 1.", "reason"),
		kubeletHealthy:  gauge("kubelet_healthy", "1 if a kubelet runs and is healthy, else 0."),
		node:            node,
		info: labeled("node_info", "The node, and how its agent works. Always 1.", "node", "run_mode", "remote_config",
			"kubelet_version"),
		condition: labeled("node_config_condition", "The condition ConfigOK, and the rollout of the assigned configuration. Always 1.", "node",
			"status", "reason", "rollout"),
	}
	build := labeled("build_info", "The program and its version. Always 1.", "program", "version", "commit")
	build.WithLabelValues("evenkeel-agent", version, commit).Set(1)
	m.registry.MustRegister(m.assigned, m.active, m.lastKnownGood, m.failing, m.restarts, m.rollbacks, m.validations,
		m.validation, m.change, m.trialHealthy, m.trialDuration, m.trialStart, m.restartsInTrial, m.kubeletHealthy, m.podStarts, m.info,
		m.condition, build)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for vec, labels := range map[*prometheus.CounterVec][]string{ // from 0, so that the first one counts as an increase
		m.restarts: {string(trial.CauseBoot), string(trial.CauseChange), string(trial.CauseCrash), string(trial.CauseRollback),
			string(trial.CauseResume)},
		m.rollbacks: {string(v1alpha1.ReasonCrashLooped), string(v1alpha1.ReasonNotHealthy), string(v1alpha1.ReasonNotReady),
			v1alpha1.ReasonWorkloadHarmed, v1alpha1.ReasonPodsCannotStart, v1alpha1.ReasonLostAPI},
		m.validations: {component.Accepted.String(), component.Rejected.String(), component.CouldNotTell.String()},
	} {
		for _, label := range labels {
			vec.WithLabelValues(label)
		}
	}

	return m
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

func (m *Metrics) started(c trial.Cause) { m.restarts.WithLabelValues(string(c)).Inc() }

func (m *Metrics) changed(took time.Duration) { m.change.Observe(took.Seconds()) }

func (m *Metrics) validated(v component.Verdict, took time.Duration) {
	m.validations.WithLabelValues(v.Outcome.String()).Inc()
	m.validation.Observe(took.Seconds())
}

func (m *Metrics) rolledBack(f string) { m.rollbacks.WithLabelValues(f).Inc() }

// health sets whether the kubelet is healthy.
func (m *Metrics) health(healthy bool) {
	m.kubeletHealthy.Set(0)
	if healthy {
		m.kubeletHealthy.Set(1)
	}
}

// status sets the gauges. object returns the resource version and key of a
// configuration.
func (m *Metrics) status(st trial.Status, reported v1alpha1.NodeConfigStatus, object func(trial.Config) (resourceVersion, key string)) {
	set := func(g *prometheus.GaugeVec, c *trial.Config) {
		g.Reset()
		switch {
		case c == nil:
		case c.IsLocal():
			g.WithLabelValues("local", "", "", "").Set(1)
		default:
			path := fmt.Sprintf("/api/v1/namespaces/%s/configmaps/%s", c.Namespace, c.Name)
			version, key := object(*c)
			g.WithLabelValues(path, string(c.UID), version, key).Set(1)
		}
	}
	assigned := st.Assigned
	if assigned == nil && st.Condition.Status == metav1.ConditionTrue {
		assigned = &trial.Config{}
	}

	set(m.assigned, assigned)
	set(m.active, &st.Active)
	set(m.lastKnownGood, &st.LastKnownGood.Config)
	m.failing.Set(0)
	if st.Condition.Status != metav1.ConditionTrue {
		m.failing.Set(1)
	}

	rollout := ""
	if st.Assigned != nil {
		rollout = st.Assigned.Rollout.Name
	}

	m.condition.Reset()
	m.condition.WithLabelValues(m.node, string(st.Condition.Status), st.Condition.Reason, rollout).Set(1)
	m.info.Reset()
	m.info.WithLabelValues(m.node, string(reported.RunMode), string(reported.RemoteConfig), reported.ComponentVersion).Set(1)
	m.podStarts.Reset()
	m.podStarts.WithLabelValues(cmp.Or(st.PodStarts.Starts, "Unknown")).Set(1)
	m.trialStart.Set(0)
	var t v1alpha1.Trial
	if st.Trial != nil {
		t = *st.Trial
		m.trialStart.Set(float64(t.StartTime.Unix()))
	}

	m.trialHealthy.Set(float64(t.HealthySeconds))
	m.trialDuration.Set(float64(t.DurationSeconds))
	m.restartsInTrial.Set(float64(t.Restarts))
}
