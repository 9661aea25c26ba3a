// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// gate returns a gate that is evaluated after steps, and that one failure
// stops.
func gate(name, passes string, interval time.Duration) v1alpha1.RolloutGate {
	return v1alpha1.RolloutGate{
		Name: name, Prometheus: v1alpha1.PrometheusGate{Server: "main", Query: name, Passes: passes}, Interval: &metav1.Duration{Duration: interval}, Failures: 1,
	}
}

// setGate adds or changes a gate: always, failures:N, interval:D, at-least:N,
// none.
func (w *world) setGate(name, value string) {
	p := &w.in
	p.Spec.Strategy.Gates = slices.Clone(p.Spec.Strategy.Gates)
	i := slices.IndexFunc(p.Spec.Strategy.Gates, func(g v1alpha1.RolloutGate) bool { return g.Name == name })
	if i < 0 {
		i = len(p.Spec.Strategy.Gates)
		p.Spec.Strategy.Gates = append(p.Spec.Strategy.Gates, gate(name, "< 0.01", time.Minute))
	}

	g := &p.Spec.Strategy.Gates[i]
	for setting := range strings.SplitSeq(value, ",") {
		switch verb, v, _ := strings.Cut(setting, ":"); verb {
		case "always":
			g.Every = v1alpha1.GateAlways
		case "failures":
			g.Failures = int32(must.Get(strconv.Atoi(v)))
		case "interval":
			g.Interval = &metav1.Duration{Duration: parseDuration(v)}
		case "at-least":
			g.Prometheus.Passes = ">= " + v
		case "none":
			p.Spec.Strategy.Gates = slices.Delete(p.Spec.Strategy.Gates, i, i+1)
		default:
			must.That(false, "unknown")
		}
	}
}

// randomGates draws gates, which pass unless something happens.
func (w *world) randomGates(t *rapid.T) {
	for _, name := range []string{"errors", "alerts"}[:rapid.IntRange(0, 2).Draw(t, "gates")] {
		g := gate(name, "< 1", time.Duration(rapid.IntRange(10, 120).Draw(t, "interval"))*time.Second)
		if rapid.Bool().Draw(t, "always") {
			g.Every = v1alpha1.GateAlways
		}

		g.Failures = rapid.Int32Range(1, 3).Draw(t, "failures")
		w.in.Spec.Strategy.Gates = append(w.in.Spec.Strategy.Gates, g)
		w.metrics[name] = Measurement{}
	}
}

// setMetric decides what the query of a gate returns from now on: a number,
// nothing, an error, or no answer at all.
func (w *world) setMetric(name, value string) {
	switch value {
	case "nothing":
		w.metrics[name] = Measurement{NoData: true}
	case "error":
		w.metrics[name] = Measurement{Error: "connection refused"}
	case "silence":
		delete(w.metrics, name)
	default:
		w.metrics[name] = Measurement{Value: must.Get(strconv.ParseFloat(value, 64))}
	}
}

// answer is an evaluation as the referee remembers it.
type answer struct {
	Measurement
	of       attempt
	updated  int // nodes that had proven the revision then, by the referee's count
	members  int // of the rollout then
	inFlight bool
}

func (w *world) noteAnswer(m Measurement) {
	spent := w.spent()
	of := attempt{numberOf(&w.in.Status), w.in.Status.Attempt}
	w.answered = append(w.answered, answer{m, of, w.updatedNodes(), spent.nodes, len(spent.inFlight) > 0})
}

// updatedNodes counts nodes that have proven the target, in another way than
// the planner does.
func (w *world) updatedNodes() (count int) {
	for _, n := range each(w.nodes) {
		if !foreign(n) && w.hasTarget(n) && w.provenTarget(n) && n.Ready && n.OK != "False" && w.soaked(n) {
			count++
		}
	}

	return count
}

// failed reports whether an answer is a failed evaluation of a gate, and
// whether it is neither failed nor passed.
func (a *answer) failed(g *v1alpha1.RolloutGate) (failed, none bool) {
	switch {
	case a.Error != "", a.NoData:
		return false, true
	case math.IsNaN(a.Value):
		return true, false
	}

	operator, limit, _ := strings.Cut(g.Prometheus.Passes, " ")
	number, _ := strconv.ParseFloat(limit, 64)

	return operator == "<" && a.Value >= number || operator == ">=" && a.Value < number, false
}

// ledger is what the referee knows about a gate in an attempt.
type ledger struct {
	last *answer // nil: there is none
	row  int32   // failed answers in a row
	ever bool    // the number of failures in a row that stops was reached
}

// ledgerOf reads all answers about a gate in an attempt, up to a time.
func (w *world) ledgerOf(g *v1alpha1.RolloutGate, of attempt) (l ledger) {
	for _, a := range each(w.answers) {
		if a.Gate != g.Name || a.of != of || a.Query != g.Prometheus.Query {
			continue
		}

		l.last = a
		switch failed, none := a.failed(g); {
		case failed:
			l.row++
		case !none:
			l.row = 0
		}

		l.ever = l.ever || l.row >= g.Failures
	}

	return l
}

// judgeGates holds a plan against the gates: which answers it got is in the
// referee's own book.
func (w *world) judgeGates(t *rapid.T, was v1alpha1.NodeConfigRolloutStatus, r Result) {
	p := &w.in
	of := attempt{p.Target.Number, r.Next.Attempt}
	same := numberOf(&was) == p.Target.Number && was.Attempt == r.Next.Attempt
	began := same && was.Halt == nil && !hasSucceeded(&was) && !p.Spec.Paused && !p.Spec.Frozen && p.Invalid == ""
	h := r.Next.Halt
	stopped := h != nil && was.Halt == nil && h.Reason == v1alpha1.HaltGateFailed
	could := false
	for _, g := range each(p.Spec.Strategy.Gates) {
		l := w.ledgerOf(g, of)
		could = could || l.row >= g.Failures
		assert.Must(t, !began || g.Every != v1alpha1.GateAlways || l.row < g.Failures || h != nil || r.Counts.Members <= 0,
			"gate %s failed %d times in a row, which %d stop, but nothing was stopped: %+v", g.Name, l.row, g.Failures, r.Next.Gates)
		passes := false
		if l.last != nil {
			failed, none := l.last.failed(g)
			passes = !failed && !none && w.now.Before(l.last.Time.Add(g.Interval.Duration+15*time.Second))
		}

		moved := slices.ContainsFunc(r.Moves, func(m Move) bool { // nodes that are being drained are in flight
			n := &w.nodes[m.Node]
			return m.Kind == Assign && n.Source.Content().SHA256 != p.Target.ConfigMapRef.SHA256 && n.Drain.Rollout != p.DrainID
		})
		assert.Must(t, !moved || g.Every != v1alpha1.GateAlways || passes, "nodes are assigned the revision, but gate %s does not pass: %+v", g.Name, l.last)
		if !same || r.Next.Step <= was.Step && (hasSucceeded(&was) || !r.Succeeded()) || int(was.Step) >= len(p.Spec.Strategy.Steps) && hasSucceeded(&was) {
			continue
		}

		assert.Must(t, passes, "step %d ended and gate %s does not pass: %+v", was.Step, g.Name, l.last)
		if a := p.Spec.Approval; int(was.Step) < len(p.Spec.Strategy.Steps) && (a == nil || a.Revision != of.revision || a.Step < was.Step) {
			s := &p.Spec.Strategy.Steps[was.Step]
			if s.Pause != nil && s.Pause.Duration != nil {
				end := was.StepTime.Add(s.Pause.Duration.Duration)
				assert.Must(t, !l.last.Time.Before(end.Truncate(time.Second)),
					"the pause ended at %s, and gate %s was evaluated before: %+v", end, g.Name, l.last)
			}

			need := min(int(RoundUp(s.Nodes, min(int32(l.last.members), r.Counts.Members))), w.updatedNodes())
			assert.Must(t, s.Pause != nil || l.last.updated >= need || !l.last.inFlight,
				"step %d has %d nodes; gate %s was evaluated when %d were updated, and others in flight", was.Step, need, g.Name, l.last.updated)
		}
	}

	assert.Must(t, !stopped || could, "a gate stopped the revision, but none failed often enough: %+v; %+v", h, w.answers)
}
