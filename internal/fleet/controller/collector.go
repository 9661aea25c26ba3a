package controller

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// census counts, each time that it is asked, what the fleet is like. Who does not lead sees no fleet, and counts nothing.
type census struct {
	fleet          *fleet
	blind, failing *problems

	nodes, due, overdue, trouble *prometheus.Desc
}

func newCensus(f *fleet, blind, failing *problems) *census {
	return &census{
		fleet: f, blind: blind, failing: failing,
		nodes:   prometheus.NewDesc("evenkeel_nodes", "Nodes of the cluster, by how their ConfigOK is.", []string{"status", "reason"}, nil),
		due:     prometheus.NewDesc("evenkeel_controller_due_rollouts", "Rollouts that wait to be looked at.", nil, nil),
		overdue: prometheus.NewDesc("evenkeel_controller_overdue_seconds", "How long the rollout that has waited longest has been waiting to be looked at.", nil, nil),
		trouble: prometheus.NewDesc("evenkeel_controller_problems", "What keeps the controller from its work: what it cannot see or write.", []string{"kind"}, nil),
	}
}

func (c *census) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.nodes, c.due, c.overdue, c.trouble} {
		out <- d
	}
}

func (c *census) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	counts, due, overdue := c.fleet.census()
	for ok, n := range counts {
		gauge(c.nodes, float64(n), ok.status, ok.reason)
	}
	gauge(c.due, float64(due))
	gauge(c.overdue, overdue)
	gauge(c.trouble, float64(c.blind.count()), "cannot see")
	gauge(c.trouble, float64(c.failing.count()), "cannot write")
}

// configOK is the condition of a node, as far as it is counted.
type configOK struct{ status, reason string }

// nobody is the condition of a node on which no agent has reported.
var nobody = configOK{"None", "NoAgent"}

// census counts nodes by their ConfigOK, and rollouts that wait: how many, and how many seconds the first of them has.
func (f *fleet) census() (counts map[configOK]int, due int, overdue float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts = map[configOK]int{}
	for _, m := range f.nodes {
		if m.node != nil {
			counts[conditionOf(m.config)]++
		}
	}
	now := f.now()
	for _, r := range f.rollouts {
		if !r.due.IsZero() && !now.Before(r.due) {
			due++
			overdue = max(overdue, now.Sub(r.due).Seconds())
		}
	}
	return counts, due, overdue
}

// conditionOf returns how a node's ConfigOK is. Nodes write it themselves: what is not known is not repeated, so that no
// node can make up series.
func conditionOf(nc *v1alpha1.NodeConfig) configOK {
	if nc == nil {
		return nobody
	}
	c := meta.FindStatusCondition(nc.Status.Conditions, v1alpha1.ConditionConfigOK)
	switch {
	case c == nil:
		return nobody
	case !slices.Contains(v1alpha1.ConfigOKReasons, c.Reason):
		return configOK{string(c.Status), "other"}
	}
	return configOK{string(c.Status), c.Reason}
}
