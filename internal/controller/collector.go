// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
)

// collector provides the metrics that are computed from the fleet at each
// scrape. On a controller that does not lead, the fleet is empty.
type collector struct {
	fleet                    *cache
	startupDeadline          time.Duration
	watchErrors, writeErrors *problems

	startup, startupOverdue       *prometheus.Desc
	nodes, due, overdue, problems *prometheus.Desc
	attention                     *prometheus.Desc
}

func newCollector(f *cache, startupDeadline time.Duration, watchErrors, writeErrors *problems) *collector {
	return &collector{
		fleet: f, startupDeadline: startupDeadline, watchErrors: watchErrors, writeErrors: writeErrors,
		nodes: prometheus.NewDesc("evenkeel_nodes", "Nodes of the cluster, by status and reason of ConfigOK.",
			[]string{"status", "reason"}, nil),
		startup: prometheus.NewDesc("evenkeel_startup_taint_nodes", "Nodes with the startup taint.", nil, nil),
		startupOverdue: prometheus.NewDesc("evenkeel_startup_taint_overdue_nodes",
			"Nodes that have the startup taint although their deadline has passed.", nil, nil),
		due:     prometheus.NewDesc("evenkeel_controller_due_rollouts", "Rollouts that are due to be planned.", nil, nil),
		overdue: prometheus.NewDesc("evenkeel_controller_overdue_seconds", "For how long the longest overdue rollout has been due.", nil, nil),
		problems: prometheus.NewDesc("evenkeel_controller_problems",
			"Problems that keep the controller from working: kinds it cannot watch, rollouts it cannot write.", []string{"kind"}, nil),
		attention: prometheus.NewDesc("evenkeel_attention", "Rollouts or nodes that need a person, by level and reason.",
			[]string{"level", "reason", "rollout"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.nodes, c.startup, c.startupOverdue, c.due, c.overdue, c.problems, c.attention} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	counts, due, overdue := c.fleet.countNodes()
	for ok, n := range counts {
		gauge(c.nodes, float64(n), ok.status, ok.reason)
	}

	all, overdueNodes := c.fleet.countStartup(c.startupDeadline)
	gauge(c.startup, float64(all))
	gauge(c.startupOverdue, float64(overdueNodes))
	gauge(c.due, float64(due))
	gauge(c.overdue, overdue)
	type attention struct{ level, reason, rollout string }
	needed := map[attention]int{} // a rollout can be suspected of several symptoms
	for _, l := range describe.SummaryOf(c.fleet.situation()) {
		a := attention{level: string(l.Level), reason: l.Reason}
		if l.Reason == describe.ReasonSuspected {
			a.rollout = l.Object
		}
		if l.Level != describe.LevelOK {
			needed[a] += l.Count
		}
	}

	for a, n := range needed {
		gauge(c.attention, float64(n), a.level, a.reason, a.rollout)
	}

	gauge(c.problems, float64(c.watchErrors.count()), "cannot see")
	gauge(c.problems, float64(c.writeErrors.count()), "cannot write")
}

// configOK is the status and reason of a node's ConfigOK condition.
type configOK struct{ status, reason string }

// noAgent counts nodes on which no agent has reported.
var noAgent = configOK{"None", "NoAgent"}

// configOKOf returns the ConfigOK of a node. Nodes write it themselves: an
// unknown reason becomes "other", so that no node can create time series.
func configOKOf(nc *v1alpha1.NodeConfig) configOK {
	if nc == nil {
		return noAgent
	}

	c := meta.FindStatusCondition(nc.Status.Conditions, v1alpha1.ConditionConfigOK)
	switch {
	case c == nil:
		return noAgent
	case !slices.Contains(v1alpha1.ConfigOKReasons, c.Reason):
		return configOK{string(c.Status), "other"}
	}

	return configOK{string(c.Status), c.Reason}
}
