// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// meters are the metrics that the controller sets.
type meters struct {
	nodes, phase, halted, window *prometheus.GaugeVec
	preflight                    *prometheus.GaugeVec
	writes                       *prometheus.CounterVec
	plan, pass                   prometheus.Histogram
	gates                        *prometheus.GaugeVec
	evaluations                  *prometheus.CounterVec
	evaluation                   *prometheus.HistogramVec
	released                     *prometheus.CounterVec
}

// newMeters returns the metrics of a controller, registered with others.
func newMeters(registry prometheus.Registerer, version, commit string, others ...prometheus.Collector) (*meters, error) {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 12)})
	}
	m := &meters{
		nodes:  gauge("evenkeel_rollout_nodes", "Nodes that a rollout selects, by state.", "rollout", "state"),
		phase:  gauge("evenkeel_rollout_phase", "1 for the current phase of a rollout, 0 for the other phases.", "rollout", "phase"),
		halted: gauge("evenkeel_rollout_halted", "1 if the rollout's revision is stopped, else 0.", "rollout"),
		window: gauge("evenkeel_rollout_next_window_timestamp_seconds",
			"When the next maintenance window of a rollout opens; 0: nodes may be assigned the revision now, or no window opens.", "rollout"),
		preflight: gauge("evenkeel_rollout_preflight_nodes", "Nodes that were asked about the revision before the first restart, by answer.",
			"rollout", "answer"),
		writes: counter("evenkeel_controller_writes_total", "Writes to the API server, by object and result.", "object", "result"),
		gates: gauge("evenkeel_rollout_gate", "1 for the result of a gate's last evaluation, 0 for the other results.", "rollout", "gate",
			"state"),
		evaluations: counter("evenkeel_controller_gate_evaluations_total", "Evaluations of gates, by Prometheus server and result.",
			"server", "result"),
		evaluation: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "evenkeel_controller_gate_evaluation_duration_seconds", Help: "How long evaluating a gate took, by Prometheus server.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2.5, 9),
		}, []string{"server"}),
		released: counter("evenkeel_startup_taints_removed_total", "Startup taints that were removed from Nodes, by cause.", "cause"),
		plan:     histogram("evenkeel_controller_plan_duration_seconds", "How long planning one rollout took."),
		pass:     histogram("evenkeel_controller_pass_duration_seconds", "How long one step of a rollout took, writes included."),
	}
	for object, results := range map[string][]string{ // begin at 0, so that the first write is an increase
		"nodeconfig": {"ok", "conflict", "error", "unknown"}, "rollout": {"ok", "conflict", "error"}, "revision": {"ok", "error"}, "node": {"ok",
			"error"},
		"preflight": {"ok", "conflict", "error"},
	} {
		for _, result := range results {
			m.writes.WithLabelValues(object, result)
		}
	}

	for _, why := range rollout.StartupReleases {
		m.released.WithLabelValues(string(why))
	}

	build := gauge("evenkeel_build_info", "Name, version and commit of this program. Always 1.", "program", "version", "commit")
	build.WithLabelValues("evenkeel-controller", version, commit).Set(1)
	others = append(others, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	var errs []error
	for _, c := range append(others, m.nodes, m.phase, m.halted, m.window, m.preflight, m.writes, m.plan, m.pass, m.gates, m.released,
		m.evaluations, m.evaluation, build) {
		errs = append(errs, registry.Register(c))
	}

	return m, errors.Join(errs...)
}

func (m *meters) wrote(object, result string) { m.writes.WithLabelValues(object, result).Inc() }

// phases are all phases of a rollout.
var phases = []v1alpha1.RolloutPhase{
	v1alpha1.RolloutInvalid, v1alpha1.RolloutFrozen, v1alpha1.RolloutRollingBack, v1alpha1.RolloutRolledBack,
	v1alpha1.RolloutHalted, v1alpha1.RolloutComplete, v1alpha1.RolloutPaused, v1alpha1.RolloutAwaitingApproval,
	v1alpha1.RolloutWaiting, v1alpha1.RolloutStuck, v1alpha1.RolloutProgressing, v1alpha1.RolloutNoNodes,
}

// report sets the metrics of one rollout.
func (m *meters) report(name string, result *rollout.Result) {
	counts := map[rollout.State]int{}
	for _, s := range result.States {
		counts[s]++
	}

	for s := rollout.Pending; s <= rollout.Draining; s++ {
		m.nodes.WithLabelValues(name, s.String()).Set(float64(counts[s]))
	}

	for _, p := range phases {
		m.phase.WithLabelValues(name, string(p)).Set(boolValue(p == result.Next.Phase))
	}

	m.halted.WithLabelValues(name).Set(boolValue(result.Next.Halt != nil))
	window := 0.0
	if t := result.Next.NextWindowTime; t != nil {
		window = float64(t.Unix())
	}

	m.window.WithLabelValues(name).Set(window)
	if r := result.Next.Preflight; r != nil {
		for answer, n := range map[string]int32{
			"accepted": r.Accepted, "refused": r.Refused, "blocked": r.Blocked, "unknown": r.Unknown, "unanswered": r.Unanswered,
		} {
			m.preflight.WithLabelValues(name, answer).Set(float64(n))
		}
	} else {
		m.preflight.DeletePartialMatch(prometheus.Labels{"rollout": name})
	}

	m.gates.DeletePartialMatch(prometheus.Labels{"rollout": name})
	for _, g := range result.Next.Gates {
		for _, state := range gateStates {
			m.gates.WithLabelValues(name, g.Name, string(state)).Set(boolValue(g.State == state))
		}
	}
}

var gateStates = []v1alpha1.GateState{v1alpha1.GatePending, v1alpha1.GatePassing, v1alpha1.GateFailing, v1alpha1.GateEmpty,
	v1alpha1.GateError}

// The results of evaluations, as a label.
const (
	evaluatedOK     = "ok"
	evaluatedNoData = "no data"
	evaluatedError  = "error"
)

// expectEvaluations sets the metrics of Prometheus servers to 0, so that the
// first evaluation is an increase.
func (m *meters) expectEvaluations(servers []string) {
	for _, server := range servers {
		m.evaluation.WithLabelValues(server)
		for _, result := range []string{evaluatedOK, evaluatedNoData, evaluatedError} {
			m.evaluations.WithLabelValues(server, result)
		}
	}
}

func (m *meters) evaluated(server, result string, took time.Duration) {
	m.evaluations.WithLabelValues(server, result).Inc()
	m.evaluation.WithLabelValues(server).Observe(took.Seconds())
}

func boolValue(is bool) float64 {
	if is {
		return 1
	}

	return 0
}

// forget removes the metrics of a deleted rollout.
func (m *meters) forget(name string) {
	for _, g := range []*prometheus.GaugeVec{m.nodes, m.phase, m.halted, m.window, m.preflight, m.gates} {
		g.DeletePartialMatch(prometheus.Labels{"rollout": name})
	}
}

// problems are errors that keep the controller from working, by their subject.
type problems struct {
	mu      sync.Mutex
	errs    map[string]error
	changed func(subject string, err error) // called for each change; err is nil when a problem is solved
}

// set records the result of the last attempt; nil is success.
func (p *problems) set(subject string, err error) {
	p.mu.Lock()
	was := p.errs[subject]
	if err == nil {
		delete(p.errs, subject)
	} else {
		p.errs[subject] = err
	}

	p.mu.Unlock()
	if (was == nil) != (err == nil) || err != nil && was.Error() != err.Error() {
		p.changed(subject, err)
	}
}

// err returns all problems as one error; nil if there is none.
func (p *problems) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, subject := range slices.Sorted(maps.Keys(p.errs)) {
		errs = append(errs, p.errs[subject])
	}

	return errors.Join(errs...)
}

// count returns the number of problems.
func (p *problems) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.errs)
}

// unknownField reports whether the API server refuses a field that its CRD does
// not have. Writes use strict validation: without it, the API server would
// silently drop a part of an assignment.
func unknownField(err error) bool {
	return err != nil && strings.Contains(err.Error(), fieldUnknown)
}

const fieldUnknown = "unknown field"

// advise adds to an error of the API server what to do about it, where that is
// known. what is the resource of the request, with its version.
func advise(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return fmt.Errorf("the API server does not serve %s: kubectl apply -f install.yaml (%w)", what, err)
	case unknownField(err):
		_, which, _ := strings.Cut(err.Error(), fieldUnknown) // the rest is the whole object
		return fmt.Errorf("cannot %s: the API server's CRD is older than this controller: kubectl apply -f install.yaml (%s%s)", what,
			fieldUnknown, printable.Cut(which, 200))
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), `" cannot `): // not so an admission webhook or a quota
		return fmt.Errorf("the controller lacks permission: %s: kubectl apply -f install.yaml grants it (%w)", what, err)
	}

	return fmt.Errorf("%s: %w", what, err)
}
