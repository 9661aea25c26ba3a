package controller

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/rollout"
)

// meters are what the controller counts and measures.
type meters struct {
	nodes, phase, halted *prometheus.GaugeVec
	writes               *prometheus.CounterVec
	plan, pass           prometheus.Histogram
}

// newMeters makes the metrics of a controller of a version and registers them.
func newMeters(registry prometheus.Registerer, version, commit string, others ...prometheus.Collector) (*meters, error) {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 12)})
	}
	m := &meters{
		nodes:  gauge("evenkeel_rollout_nodes", "Nodes that a rollout selects, by their state.", "rollout", "state"),
		phase:  gauge("evenkeel_rollout_phase", "1 for the phase that a rollout is in, else 0.", "rollout", "phase"),
		halted: gauge("evenkeel_rollout_halted", "1 if the rollout's revision was stopped, else 0.", "rollout"),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "evenkeel_controller_writes_total", Help: "Writes to the API server, by what was written and how it went.",
		}, []string{"object", "result"}),
		plan: histogram("evenkeel_controller_plan_duration_seconds", "How long it took to decide what one rollout does next."),
		pass: histogram("evenkeel_controller_pass_duration_seconds", "How long it took to look at one rollout, writes included."),
	}
	for object, results := range map[string][]string{ // from 0, so that the first one counts as an increase
		"nodeconfig": {"ok", "conflict", "error", "unknown"}, "rollout": {"ok", "conflict", "error"}, "revision": {"ok", "error"},
	} {
		for _, result := range results {
			m.writes.WithLabelValues(object, result)
		}
	}
	build := gauge("evenkeel_build_info", "Which program of evenkeel this is. Always 1.", "program", "version", "commit")
	build.WithLabelValues("evenkeel-controller", version, commit).Set(1)
	var errs []error
	for _, c := range append(others, m.nodes, m.phase, m.halted, m.writes, m.plan, m.pass, build) {
		errs = append(errs, registry.Register(c))
	}
	return m, errors.Join(errs...)
}

func (m *meters) wrote(object, result string) { m.writes.WithLabelValues(object, result).Inc() }

// phases are all that a rollout can be in.
var phases = []v1alpha1.RolloutPhase{
	v1alpha1.RolloutInvalid, v1alpha1.RolloutFrozen, v1alpha1.RolloutRollingBack, v1alpha1.RolloutRolledBack,
	v1alpha1.RolloutHalted, v1alpha1.RolloutComplete, v1alpha1.RolloutPaused, v1alpha1.RolloutAwaitingApproval,
	v1alpha1.RolloutWaiting, v1alpha1.RolloutStuck, v1alpha1.RolloutProgressing, v1alpha1.RolloutNoNodes,
}

// report sets what is said of one rollout.
func (m *meters) report(name string, result *rollout.Result) {
	counts := map[rollout.State]int{}
	for _, s := range result.States {
		counts[s]++
	}
	for s := rollout.Pending; s <= rollout.Blocked; s++ {
		m.nodes.WithLabelValues(name, s.String()).Set(float64(counts[s]))
	}
	for _, p := range phases {
		m.phase.WithLabelValues(name, string(p)).Set(truth(string(p) == result.Phase))
	}
	m.halted.WithLabelValues(name).Set(truth(result.Next.Halt != nil))
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// forget removes what is said of a rollout that is gone.
func (m *meters) forget(name string) {
	label := prometheus.Labels{"rollout": name}
	m.nodes.DeletePartialMatch(label)
	m.phase.DeletePartialMatch(label)
	m.halted.DeletePartialMatch(label)
}
