package rollout

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Gate is a metric that must pass for the rollout to continue. It is evaluated after each step, before the next one begins
// and before the rollout completes.
type Gate struct {
	Name          string
	Server, Query string
	Passes        Comparison
	Interval      time.Duration // between two evaluations
	Always        bool          // evaluated at any time; while it does not pass, no node is assigned the target or drained, except nodes whose drain has begun
	Failures      int           // failed evaluations in a row that stop the revision
	NoDataFails   bool          // an evaluation without a number has failed
}

// Comparison is a condition for a number: Operator is <, <=, >, >=, == or !=.
type Comparison struct {
	Operator string
	Number   float64
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

// GateState is the result of a gate's last evaluation. The values are those of the API.
type GateState string

// The results of evaluations.
const (
	GatePending GateState = "Pending"
	GatePassing GateState = "Passing"
	GateFailing GateState = "Failing"
	GateNoData  GateState = "NoData"
	GateError   GateState = "Error"
)

// GateProgress is what a rollout remembers about a gate in this attempt.
type GateProgress struct {
	Name     string
	State    GateState
	Value    string    // empty: none
	Time     time.Time // of the last evaluation, in whole seconds: an evaluation counts only if it is later
	Failures int       // failed evaluations in a row; NoData and Error neither count nor reset it, unless the gate says so
	Step     int       // the number of steps that were done when the gate last let the rollout continue
	Message  string
}

const (
	// GateTimeout limits how long an evaluation may take.
	GateTimeout = 10 * time.Second
	// gateGrace is how long the result of an evaluation holds beyond the gate's interval, so that the next evaluation can end.
	gateGrace = GateTimeout + 5*time.Second
	// gateRetry is the longest time from an evaluation without a result to the next one.
	gateRetry = time.Minute
	// maxQueryShown and maxGateError limit a query and an error in messages, in characters.
	maxQueryShown = 500
	maxGateError  = 300
)

// gated reports whether gates matter now. They do in a preflight too: nodes can be in flight if it was turned on later.
func (d *planner) gated() bool {
	return len(d.p.Gates) > 0 && d.next.Revision != 0 && (d.asking || !d.stopped()) && d.next.Halt == nil && !d.next.Succeeded && d.counts.Members > 0
}

// stepReached reports whether gates decide now: the current step is done or approved; after the last step, whether all nodes
// are updated. An approval does not replace gates: it may have been given in advance.
func (d *planner) stepReached() bool {
	if d.next.Step < len(d.p.Steps) {
		return d.stepDone(d.p.Steps[d.next.Step])
	}
	return d.allUpdated()
}

// checkGates adds new measurements to what is known about the gates, and stops the revision if a gate has failed often
// enough. A measurement is added once, whoever leads: a later plan knows its time from the status.
func (d *planner) checkGates() {
	d.next.Gates = d.currentGates()
	if !d.gated() {
		return
	}
	if !d.stepReached() {
		d.next.GatesSince = time.Time{} // a node of the step is no longer healthy: gates are evaluated again
	}
	for i := range d.p.Gates {
		g, is := &d.p.Gates[i], &d.next.Gates[i]
		for k := range d.p.Measurements {
			if m := &d.p.Measurements[k]; d.applies(g, is, m) {
				d.addMeasurement(g, is, m)
			}
		}
		if is.Failures >= g.Failures && d.next.Halt == nil {
			times := "once"
			if is.Failures > 1 {
				times = fmt.Sprintf("%d times in a row", is.Failures)
			}
			d.halt(HaltGateFailed, fmt.Sprintf("gate %s failed %s: %s", g.Name, times, is.Message), d.p.RollbackOnFailure)
		}
	}
}

// currentGates returns what is remembered about the gates that there are, in their order.
func (d *planner) currentGates() []GateProgress {
	var out []GateProgress
	for _, g := range d.p.Gates {
		is := GateProgress{Name: g.Name, State: GatePending}
		for _, known := range d.next.Gates {
			if known.Name == g.Name {
				is = known
			}
		}
		out = append(out, is)
	}
	return out
}

// applies reports whether a measurement is new, and about this attempt. A gate that is evaluated after steps ignores a
// measurement from before the step was done.
func (d *planner) applies(g *Gate, is *GateProgress, m *Measurement) bool {
	switch {
	case m.Gate != g.Name, m.Server != g.Server, m.Query != g.Query:
		return false
	case !m.Time.After(is.Time), !m.Time.After(d.next.AttemptTime):
		return false
	}
	return g.Always || !d.next.GatesSince.IsZero() && !m.Time.Before(d.next.GatesSince)
}

// addMeasurement records a measurement.
func (d *planner) addMeasurement(g *Gate, is *GateProgress, m *Measurement) {
	was := is.State
	is.Time, is.Value = m.Time, ""
	query := "; query: " + shortened(strings.Join(strings.Fields(g.Query), " "), maxQueryShown)
	switch {
	case m.Error != "":
		is.State, is.Message = GateError, shortened(m.Error, maxGateError)+query
	case m.NoData:
		is.State, is.Message = GateNoData, "the result is empty or NaN"+query
	default:
		is.State, is.Value = GateFailing, formatValue(m.Value)
		is.Message = fmt.Sprintf("value %s, must be %s%s", is.Value, g.Passes, query)
		if g.Passes.Holds(m.Value) {
			is.State = GatePassing
		}
	}
	failed := is.State == GateFailing || is.State == GateNoData && g.NoDataFails
	switch {
	case failed:
		is.Failures++
		d.event(true, "GateFailing", "gate %s failed (%d of %d): %s", g.Name, is.Failures, g.Failures, is.Message)
	case is.State == GatePassing:
		is.Failures = 0
		if was != GatePassing && was != GatePending {
			d.event(false, "GatePassed", "gate %s passes again: %s", g.Name, is.Message)
		}
	case was != is.State:
		d.event(true, "GateWaiting", "gate %s %s: %s", g.Name, gateTrouble[is.State], is.Message)
	}
}

// gateTrouble says what is wrong with gates that neither pass nor fail.
var gateTrouble = map[GateState]string{GateNoData: "has no data", GateError: "cannot be evaluated"}

// passes reports whether the last evaluation of a gate passed and still holds.
func (d *planner) passes(g *Gate, is *GateProgress) bool {
	return is.State == GatePassing && d.p.Now.Before(is.Time.Add(g.Interval+gateGrace))
}

// gatesPass reports whether all gates have passed since the current step was done.
func (d *planner) gatesPass() bool {
	for i := range d.p.Gates {
		is := &d.next.Gates[i]
		if d.next.GatesSince.IsZero() || is.Time.Before(d.next.GatesSince) || !d.passes(&d.p.Gates[i], is) {
			return false
		}
	}
	return true
}

// passStep records that gates let the rollout continue with the next step.
func (d *planner) passStep() {
	d.next.GatesSince = time.Time{}
	for i := range d.next.Gates {
		d.next.Gates[i].Step = d.next.Step
	}
}

// askGates finds the gates that are due, and those that the rollout waits for.
func (d *planner) askGates() {
	if !d.gated() || d.complete {
		return
	}
	reached := !d.asking && d.stepReached()
	d.waitsForGate = reached
	if reached && d.next.GatesSince.IsZero() {
		d.next.GatesSince = nextSecond(d.p.Now)
	}
	for i := range d.p.Gates {
		g, is := &d.p.Gates[i], &d.next.Gates[i]
		if !g.Always && !reached {
			continue
		}
		switch due := d.nextEvaluation(g, is); {
		case d.p.Now.Before(due):
			d.requeueAt(due)
		default:
			d.measure = append(d.measure, g.Name)
		}
		if !d.passes(g, is) || reached && is.Time.Before(d.next.GatesSince) {
			d.waiting = append(d.waiting, d.gateMessage(g, is))
			d.held = d.held || g.Always && !d.passes(g, is)
			d.troubled = d.troubled || is.State != GatePassing && is.State != GatePending
		}
	}
}

// nextEvaluation returns when a gate is due.
func (d *planner) nextEvaluation(g *Gate, is *GateProgress) time.Time {
	switch {
	case is.Time.IsZero() && !g.Always:
		return d.next.GatesSince
	case is.Time.IsZero():
		return nextSecond(d.next.AttemptTime)
	case is.State == GatePassing && is.Time.Before(d.next.GatesSince):
		return d.next.GatesSince
	case is.State == GateError, is.State == GateNoData && !g.NoDataFails:
		return is.Time.Add(min(g.Interval, gateRetry))
	}
	return is.Time.Add(g.Interval)
}

// gateMessage says why the rollout waits for a gate.
func (d *planner) gateMessage(g *Gate, is *GateProgress) string {
	switch is.State {
	case GateFailing:
		return fmt.Sprintf("gate %s failed (%d of %d): %s", g.Name, is.Failures, g.Failures, is.Message)
	case GateNoData, GateError:
		return fmt.Sprintf("gate %s %s: %s", g.Name, gateTrouble[is.State], is.Message)
	}
	return fmt.Sprintf("gate %s is being evaluated", g.Name)
}

// gatesWaited describes the gates that the rollout waits for, and what a person can do.
func (d *planner) gatesWaited() string {
	out := strings.Join(d.waiting, "; ")
	if !d.troubled {
		return out
	}
	if slices.ContainsFunc(d.next.Gates, func(g GateProgress) bool { return g.State == GateError }) {
		return out + "; repair the Prometheus server, or correct or remove the gate in spec.strategy.gates"
	}
	return out + "; correct what the gate measures, or correct or remove the gate in spec.strategy.gates"
}

// nextSecond returns the first whole second after a time.
func nextSecond(t time.Time) time.Time { return t.Truncate(time.Second).Add(time.Second) }

// shortened returns at most so many characters of a text.
func shortened(text string, most int) string {
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}
