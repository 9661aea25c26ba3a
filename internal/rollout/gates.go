// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// Comparison is a condition for a number: Operator is <, <=, >, >=, == or !=.
type Comparison struct {
	Operator string
	Number   float64
}

// comparison is the same pattern as in the CRD.
var comparison = regexp.MustCompile(`^(<|<=|>|>=|==|!=) ?(-?[0-9]+([.][0-9]+)?(e[-+]?[0-9]{1,3})?)$`)

// ComparisonOf parses a condition such as "< 0.01".
func ComparisonOf(text string) (Comparison, error) {
	parts := comparison.FindStringSubmatch(text)
	if parts == nil {
		return Comparison{}, fmt.Errorf("%q must be one of <, <=, >, >=, == and !=, and a number, such as \"< 0.01\"", text)
	}

	number, err := strconv.ParseFloat(parts[2], 64)
	if err != nil || math.IsInf(number, 0) {
		return Comparison{}, fmt.Errorf("%q has a number that is too large", text)
	}

	return Comparison{Operator: parts[1], Number: number}, nil
}

// Holds reports whether a number meets the condition.
func (c Comparison) Holds(value float64) bool {
	switch c.Operator {
	case "<":
		return value < c.Number
	case "<=":
		return value <= c.Number
	case ">":
		return value > c.Number
	case ">=":
		return value >= c.Number
	case "==":
		return value == c.Number
	}

	return value != c.Number
}

// example returns a number that meets the condition.
func (c Comparison) example() float64 {
	switch c.Operator {
	case "<":
		return math.Nextafter(c.Number, math.Inf(-1))
	case ">", "!=":
		return math.Nextafter(c.Number, math.Inf(1))
	}

	return c.Number
}

func (c Comparison) String() string { return c.Operator + " " + formatValue(c.Number) }

func formatValue(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// Measurement is the last evaluation of a gate's query by this controller.
type Measurement struct {
	Gate          string
	Server, Query string    // as evaluated: the gate may have been edited since
	Time          time.Time // when the query was sent, in whole seconds of Policy.Now's clock
	Value         float64   // if it is neither NoData nor Error
	NoData        bool      // the result is empty or NaN
	Error         string    // why there is no result; empty: there is one
}

const (
	// GateTimeout limits how long an evaluation may take.
	GateTimeout = 10 * time.Second
	// gateGrace is how long the result of an evaluation holds beyond the gate's
	// interval, so that the next evaluation can end.
	gateGrace = GateTimeout + 5*time.Second
	// gateRetry is the longest time from an evaluation without a result to the
	// next one.
	gateRetry = time.Minute
	// maxQueryShown and maxGateError limit a query and an error in messages, in
	// characters.
	maxQueryShown = 500
	maxGateError  = 300
)

// gated reports whether gates matter now. They do in a preflight too: nodes can
// be in flight if it was turned on later.
func (d *planner) gated() bool {
	return len(d.in.Spec.Strategy.Gates) > 0 && d.in.Target.Number != 0 && (d.asking || !d.stopped()) && d.Next.Halt == nil && !d.succeeded &&
		d.Counts.Members > 0
}

// stepReached reports whether gates decide now: the current step is done or
// approved; after the last step, whether all nodes are updated. An approval
// does not replace gates: it may have been given in advance.
func (d *planner) stepReached() bool {
	if s := d.step(); s != nil {
		return d.stepDone(s)
	}

	return d.allUpdated()
}

// checkGates adds new measurements to what is known about the gates, and stops
// the revision if a gate has failed often enough. A measurement is added once,
// whoever leads: a later plan knows its time from the status.
func (d *planner) checkGates() {
	d.Next.Gates = d.currentGates()
	if !d.gated() {
		return
	}
	if !d.stepReached() {
		d.GatesSince = time.Time{} // a node of the step is no longer healthy: gates are evaluated again
	}

	for i := range d.in.Spec.Strategy.Gates {
		g, is := &d.in.Spec.Strategy.Gates[i], &d.Next.Gates[i]
		for k := range d.in.Measurements {
			if m := &d.in.Measurements[k]; d.applies(g, is, m) {
				d.addMeasurement(g, is, m)
			}
		}

		if is.Failures >= g.Failures && d.Next.Halt == nil {
			times := "once"
			if is.Failures > 1 {
				times = fmt.Sprintf("%d times in a row", is.Failures)
			}

			d.halt(v1alpha1.HaltGateFailed, fmt.Sprintf("gate %s failed %s: %s", g.Name, times, is.Message), d.rollsBack())
		}
	}
}

// currentGates returns what is remembered about the gates that there are, in
// their order.
func (d *planner) currentGates() []v1alpha1.GateStatus {
	var out []v1alpha1.GateStatus
	for _, g := range d.in.Spec.Strategy.Gates {
		is := v1alpha1.GateStatus{Name: g.Name, State: v1alpha1.GatePending}
		if i := slices.IndexFunc(d.Next.Gates, func(known v1alpha1.GateStatus) bool { return known.Name == g.Name }); i >= 0 {
			is = d.Next.Gates[i]
		}

		out = append(out, is)
	}

	return out
}

// applies reports whether a measurement is new, and about this attempt. A gate
// that is evaluated after steps ignores a measurement from before the step was
// done.
func (d *planner) applies(g *v1alpha1.RolloutGate, is *v1alpha1.GateStatus, m *Measurement) bool {
	switch {
	case m.Gate != g.Name, m.Server != g.Prometheus.Server, m.Query != g.Prometheus.Query:
		return false
	case !m.Time.After(TimeOf(is.Time)), !m.Time.After(TimeOf(d.Next.AttemptTime)):
		return false
	}

	return g.Every == v1alpha1.GateAlways || !d.GatesSince.IsZero() && !m.Time.Before(d.GatesSince)
}

// addMeasurement records a measurement.
func (d *planner) addMeasurement(g *v1alpha1.RolloutGate, is *v1alpha1.GateStatus, m *Measurement) {
	was := is.State
	passes, _ := ComparisonOf(g.Prometheus.Passes) // an invalid one makes the rollout Invalid
	is.Time, is.Value = apiTime(m.Time), ""
	query := "; query: " + printable.Brief(strings.Join(strings.Fields(g.Prometheus.Query), " "), maxQueryShown)
	switch {
	case m.Error != "":
		is.State, is.Message = v1alpha1.GateError, printable.Brief(m.Error, maxGateError)+query
	case m.NoData:
		is.State, is.Message = v1alpha1.GateEmpty, "the result is empty or NaN"+query
	default:
		is.State, is.Value = v1alpha1.GateFailing, formatValue(m.Value)
		is.Message = fmt.Sprintf("value %s, must be %s%s", is.Value, passes, query)
		if passes.Holds(m.Value) {
			is.State = v1alpha1.GatePassing
		}
	}

	switch {
	case is.State == v1alpha1.GateFailing:
		is.Failures++
		d.event(true, "GateFailing", "gate %s failed (%d of %d): %s", g.Name, is.Failures, g.Failures, is.Message)
	case is.State == v1alpha1.GatePassing:
		is.Failures = 0
		if was != v1alpha1.GatePassing && was != v1alpha1.GatePending {
			d.event(false, "GatePassed", "gate %s passes again: %s", g.Name, is.Message)
		}
	case was != is.State:
		d.event(true, "GateWaiting", "gate %s %s: %s", g.Name, gateTrouble[is.State], is.Message)
	}
}

// gateTrouble says what is wrong with gates that neither pass nor fail.
var gateTrouble = map[v1alpha1.GateState]string{v1alpha1.GateEmpty: "has no data", v1alpha1.GateError: "cannot be evaluated"}

// passes reports whether the last evaluation of a gate passed and still holds.
func (d *planner) passes(g *v1alpha1.RolloutGate, is *v1alpha1.GateStatus) bool {
	return is.State == v1alpha1.GatePassing && d.in.Now.Before(TimeOf(is.Time).Add(g.Interval.Duration+gateGrace))
}

// gatesPass reports whether all gates have passed since the current step was
// done.
func (d *planner) gatesPass() bool {
	for i := range d.in.Spec.Strategy.Gates {
		is := &d.Next.Gates[i]
		if d.GatesSince.IsZero() || TimeOf(is.Time).Before(d.GatesSince) || !d.passes(&d.in.Spec.Strategy.Gates[i], is) {
			return false
		}
	}

	return true
}

// askGates finds the gates that are due, and those that the rollout waits for.
func (d *planner) askGates() {
	if !d.gated() || d.complete {
		return
	}

	reached := !d.asking && d.stepReached()
	d.gates.onlyGates = reached
	if reached && d.GatesSince.IsZero() {
		d.GatesSince = nextSecond(d.in.Now)
	}

	for i := range d.in.Spec.Strategy.Gates {
		g, is := &d.in.Spec.Strategy.Gates[i], &d.Next.Gates[i]
		if g.Every != v1alpha1.GateAlways && !reached {
			continue
		}
		if !d.before(d.nextEvaluation(g, is)) {
			d.Measure = append(d.Measure, g.Name)
		}

		if !d.passes(g, is) || reached && TimeOf(is.Time).Before(d.GatesSince) {
			d.gates.reasons = append(d.gates.reasons, d.gateMessage(g, is))
			d.gates.held = d.gates.held || g.Every == v1alpha1.GateAlways && !d.passes(g, is)
			d.gates.troubled = d.gates.troubled || is.State != v1alpha1.GatePassing && is.State != v1alpha1.GatePending
		}
	}
}

// nextEvaluation returns when a gate is due.
func (d *planner) nextEvaluation(g *v1alpha1.RolloutGate, is *v1alpha1.GateStatus) time.Time {
	switch {
	case is.Time.IsZero() && g.Every != v1alpha1.GateAlways:
		return d.GatesSince
	case is.Time.IsZero():
		return nextSecond(TimeOf(d.Next.AttemptTime))
	case is.State == v1alpha1.GatePassing && TimeOf(is.Time).Before(d.GatesSince):
		return d.GatesSince
	case is.State == v1alpha1.GateError, is.State == v1alpha1.GateEmpty:
		return TimeOf(is.Time).Add(min(g.Interval.Duration, gateRetry))
	}

	return TimeOf(is.Time).Add(g.Interval.Duration)
}

// gateMessage says why the rollout waits for a gate.
func (d *planner) gateMessage(g *v1alpha1.RolloutGate, is *v1alpha1.GateStatus) string {
	switch is.State {
	case v1alpha1.GateFailing:
		return fmt.Sprintf("gate %s failed (%d of %d): %s", g.Name, is.Failures, g.Failures, is.Message)
	case v1alpha1.GateEmpty, v1alpha1.GateError:
		return fmt.Sprintf("gate %s %s: %s", g.Name, gateTrouble[is.State], is.Message)
	}

	return fmt.Sprintf("gate %s is being evaluated", g.Name)
}

// gatesWaited describes the gates that the rollout waits for, and what a person
// can do.
func (d *planner) gatesWaited() string {
	out := strings.Join(d.gates.reasons, "; ")
	if !d.gates.troubled {
		return out
	}
	if slices.ContainsFunc(d.Next.Gates, func(g v1alpha1.GateStatus) bool { return g.State == v1alpha1.GateError }) {
		return out + "; repair the Prometheus server, or correct or remove the gate in spec.strategy.gates"
	}

	return out + "; correct what the gate measures, or correct or remove the gate in spec.strategy.gates"
}

// nextSecond returns the first whole second after a time.
func nextSecond(t time.Time) time.Time { return t.Truncate(time.Second).Add(time.Second) }
