package rollout

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// setGate adds or changes a gate: always, failures=N, interval=D, no-data-fails, passes=COMPARISON, query=Q, none.
func (w *world) setGate(name, value string) error {
	p := &w.policy
	p.Gates = slices.Clone(p.Gates)
	i := slices.IndexFunc(p.Gates, func(g Gate) bool { return g.Name == name })
	if i < 0 {
		i = len(p.Gates)
		p.Gates = append(p.Gates, Gate{Name: name, Server: "main", Query: name, Passes: Comparison{"<", 0.01}, Interval: time.Minute, Failures: 1})
	}
	g := &p.Gates[i]
	for _, setting := range strings.Split(value, ",") {
		var err error
		switch verb, v, _ := strings.Cut(setting, ":"); verb {
		case "always", "step":
			g.Always = verb == "always"
		case "no-data-fails":
			g.NoDataFails = true
		case "failures":
			g.Failures, err = strconv.Atoi(v)
		case "interval":
			g.Interval, err = time.ParseDuration(v)
		case "at-least":
			g.Passes.Operator = ">="
			g.Passes.Number, err = strconv.ParseFloat(v, 64)
		case "query":
			g.Query = v
		case "none":
			p.Gates = slices.Delete(p.Gates, i, i+1)
			return nil
		default:
			err = errors.New("unknown")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// randomGates draws gates, which pass unless something happens.
func (w *world) randomGates(t *rapid.T) {
	for _, name := range []string{"errors", "alerts"}[:rapid.IntRange(0, 2).Draw(t, "gates")] {
		w.policy.Gates = append(w.policy.Gates, Gate{
			Name: name, Server: "main", Query: name, Passes: Comparison{"<", 1},
			Interval: time.Duration(rapid.IntRange(10, 120).Draw(t, "interval")) * time.Second,
			Always:   rapid.Bool().Draw(t, "always"), Failures: rapid.IntRange(1, 3).Draw(t, "failures"), NoDataFails: rapid.Bool().Draw(t, "no data fails"),
		})
		w.metrics[name] = Measurement{}
	}
}

// setMetric decides what the query of a gate returns from now on: a number, nothing, an error, or no answer at all.
func (w *world) setMetric(name, value string) error {
	switch value {
	case "nothing":
		w.metrics[name] = Measurement{NoData: true}
	case "error":
		w.metrics[name] = Measurement{Error: "connection refused"}
	case "silence":
		delete(w.metrics, name)
	default:
		v, err := strconv.ParseFloat(value, 64)
		w.metrics[name] = Measurement{Value: v}
		return err
	}
	return nil
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
	spent, members := w.spent(), 0
	for _, n := range spent.members {
		members += n
	}
	w.answered = append(w.answered, answer{m, attempt{w.progress.Revision, w.progress.Attempt}, w.updatedNodes(), members, len(spent.inFlight) > 0})
}

// updatedNodes counts nodes that have proven the target, in another way than the planner does.
func (w *world) updatedNodes() (n int) {
	p := &w.policy
	for i := range w.nodes {
		node := &w.nodes[i]
		mine := node.Owner == "" && node.OtherSource == "" && node.Source.Kind == SourceConfigMap && node.Source.Rollout == p.Name && node.Source.SHA256 == p.Target.SHA256
		if mine && node.Active.SHA256 == p.Target.SHA256 && node.LastKnownGood.SHA256 == p.Target.SHA256 && !node.InTrial && node.Ready && node.OK != "False" && w.soaked(node) {
			n++
		}
	}
	return n
}

// failed reports whether an answer is a failed evaluation of a gate, and whether it is neither failed nor passed.
func (a *answer) failed(g *Gate) (failed, none bool) {
	switch {
	case a.Error != "", a.NoData && !g.NoDataFails:
		return false, true
	case a.NoData, math.IsNaN(a.Value):
		return true, false
	}
	return g.Passes.Operator == "<" && a.Value >= g.Passes.Number || g.Passes.Operator == ">=" && a.Value < g.Passes.Number, false
}

// ledger is what the referee knows about a gate in an attempt.
type ledger struct {
	last *answer // nil: there is none
	row  int     // failed answers in a row
	ever bool    // the number of failures in a row that stops was reached
}

// ledgerOf reads all answers about a gate in an attempt, up to a time.
func (w *world) ledgerOf(g *Gate, of attempt) (l ledger) {
	for i := range w.answers {
		a := &w.answers[i]
		if a.Gate != g.Name || a.of != of || a.Query != g.Query {
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

// judgeGates holds a plan against the gates: which answers it got is in the referee's own book.
func (w *world) judgeGates(t *rapid.T, was Progress, r Result) {
	p := &w.policy
	of := attempt{r.Next.Revision, r.Next.Attempt}
	same := was.Revision == r.Next.Revision && was.Attempt == r.Next.Attempt
	began := same && was.Halt == nil && !was.Succeeded && !p.Paused && !p.Frozen && p.Invalid == ""
	h := r.Next.Halt
	stopped := h != nil && was.Halt == nil && h.Reason == HaltGateFailed
	could := false
	for i := range p.Gates {
		g := &p.Gates[i]
		l := w.ledgerOf(g, of)
		could = could || l.row >= g.Failures
		assert.Must(t, !began || !g.Always || l.row < g.Failures || h != nil || r.Counts.Members <= 0,
			"gate %s failed %d times in a row, which %d stop, but nothing was stopped: %+v", g.Name, l.row, g.Failures, r.Next.Gates)
		passes := false
		if l.last != nil {
			failed, none := l.last.failed(g)
			passes = !failed && !none && w.now.Before(l.last.Time.Add(g.Interval+15*time.Second))
		}
		moved := slices.ContainsFunc(r.Moves, func(m Move) bool { // nodes that are being drained are in flight
			n := &w.nodes[m.Node]
			return m.Kind == Assign && n.Source.SHA256 != p.Target.SHA256 && n.Drain.Rollout != p.DrainID
		})
		assert.Must(t, !moved || !g.Always || passes, "nodes are assigned the revision, but gate %s does not pass: %+v", g.Name, l.last)
		if !same || r.Next.Step <= was.Step && (was.Succeeded || !r.Next.Succeeded) || was.Step >= len(p.Steps) && was.Succeeded {
			continue
		}
		assert.Must(t, passes, "step %d ended and gate %s does not pass: %+v", was.Step, g.Name, l.last)
		if was.Step < len(p.Steps) && (p.Approval.Revision != of.revision || p.Approval.Step < was.Step) {
			s := p.Steps[was.Step]
			if s.IsPause() && l.last.Time.Before(was.StepTime.Add(s.Pause).Truncate(time.Second)) {
				t.Fatalf("the pause ended at %s, and gate %s was evaluated before: %+v", was.StepTime.Add(s.Pause), g.Name, l.last)
			}
			if need := min(s.Nodes.RoundUp(min(l.last.members, r.Counts.Members)), w.updatedNodes()); !s.IsPause() && l.last.updated < need && l.last.inFlight {
				t.Fatalf("step %d has %d nodes; gate %s was evaluated when %d were updated, and others in flight", was.Step, need, g.Name, l.last.updated)
			}
		}
	}
	if stopped && !could {
		t.Fatalf("a gate stopped the revision, but none failed often enough: %s; %+v", h.Message, w.answers)
	}
}
