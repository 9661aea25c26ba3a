// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
)

const (
	unlimited = 1 << 20 // a width
	mostOpen  = 15      // nodes with a line of their own
	mostZones = 12
)

// view has what the output about one rollout needs; lines formats it.
type view struct {
	rollout *v1alpha1.NodeConfigRollout
	nodes   []liveNode      // nil: not needed, or not known yet
	gone    map[string]bool // failed nodes that no longer exist
	trouble string          // why the view may be old
	noNodes string          // why the nodes cannot be read
	now     time.Time
	style   printing.Style
	wide    bool
}

// lines returns the lines of the view, at most width wide.
func (v view) lines(width int) []string {
	st := &v.rollout.Status
	lines := []string{v.title()}
	if !query.Observed(v.rollout) {
		lines = append(lines, wrap(v.style.Yellow, query.Unobserved, width)...)
	} else if st.Message != "" {
		lines = append(lines, wrap(func(s string) string { return s }, printable.Line(st.Message), width)...)
	}
	if v.trouble != "" {
		lines = append(lines, v.style.Yellow("the API server does not answer, this view is old: "+printable.Line(v.trouble)))
	}
	if v.noNodes != "" {
		lines = append(lines, v.style.Yellow("nodes are not shown: "+printable.Line(v.noNodes)))
	}
	if st.UpdateRevision == nil {
		return clipped(lines, width)
	}
	lines = append(lines, "", "Steps  "+v.steps(), "Nodes  "+v.counts())
	if p := st.Preflight; p != nil {
		lines = append(lines, "Agents "+describe.PreflightLine(p))
		if p.Refused+p.Blocked+p.Unknown > 0 && (st.Halt != nil || v.wide) {
			for _, line := range describe.Preflight(p)[1:] {
				lines = append(lines, "       "+line)
			}
		}
	}
	lines = append(lines, v.gates()...)
	if next := describe.NextWindow(st, v.now); next != "" {
		lines = append(lines, "Window "+next)
	}
	if v.wide {
		lines = append(lines, v.conditions()...)
	}
	if v.nodes == nil {
		lines = append(lines, v.failed()...)
		lines = append(lines, v.draining()...)
	} else {
		lines = append(lines, v.zones()...)
		lines = append(lines, v.open()...)
	}
	return clipped(lines, width)
}

func (v view) title() string {
	st := &v.rollout.Status
	title := v.style.Bold(v.rollout.Name)
	if r := st.UpdateRevision; r != nil {
		title += fmt.Sprintf("  revision %d (%s)", r.Number, printable.Line(r.ConfigMapRef.Name))
		if st.Attempt > 1 {
			title += fmt.Sprintf(", attempt %d", st.Attempt)
		}
	}
	title += "  " + v.style.Phase(v1alpha1.RolloutPhase(printable.Line(describe.OrUnknown(st.Phase))))
	if st.Halt != nil {
		title += v.style.Dim("  stopped " + describe.Ago(&st.Halt.Time, v.now))
	} else if st.StartTime != nil {
		title += v.style.Dim("  started " + describe.Ago(st.StartTime, v.now))
	}
	return title
}

// steps returns the steps, with marks at the current step and those before it.
func (v view) steps() string {
	all, err := describe.StepsOf(v.rollout)
	if err != nil {
		return printable.Line(err.Error())
	}
	st := &v.rollout.Status
	words := make([]string, len(all))
	for i, s := range all {
		w := describe.StepWords(s)
		switch {
		case i < int(st.Step):
			words[i] = v.style.Green("✓ " + w)
		case i == int(st.Step):
			if until := describe.PauseEnds(&s, st); until.After(v.now) {
				w += " (" + duration.HumanDuration(until.Sub(v.now)) + " left)"
			}
			words[i] = v.style.Bold("▶ " + w)
		default:
			words[i] = v.style.Dim(w)
		}
	}
	return strings.Join(words, "  ")
}

func (v view) counts() string {
	n := &v.rollout.Status.Nodes
	parts := []string{describe.UpdatedOf(n) + " updated"}
	for _, c := range []struct {
		n     int32
		words string
		color func(string) string
	}{
		{n.Pending, "pending", nil}, {n.Draining, "draining", nil}, {n.Assigned, "assigned", nil}, {n.Trial, "in trial", nil}, {n.Soaking,
			"soaking", nil},
		{n.Failed, "failed", v.style.Red}, {n.Blocked, "blocked", v.style.Yellow}, {n.RollingBack, "rolling back", v.style.Yellow}, {n.Skipped,
			"skipped", nil},
		{n.Stale, "stale", v.style.Yellow}, {n.Conflicted, "conflicted", nil}, {n.Manual, "manual", nil},
		{n.Unavailable, "unavailable", v.style.Yellow},
	} {
		if c.n > 0 {
			words := fmt.Sprintf("%d %s", c.n, c.words)
			if c.color != nil {
				words = c.color(words)
			}
			parts = append(parts, words)
		}
	}
	return strings.Join(parts, ", ")
}

// gates returns a line for each gate, and its query in the wide view.
func (v view) gates() []string {
	var lines []string
	title := "Gates"
	for _, g := range describe.GatesOf(v.rollout, v.now) {
		state := fmt.Sprintf("%-7s", g.State)
		switch v1alpha1.GateState(g.State) {
		case v1alpha1.GatePassing:
			state = v.style.Green(state)
		case v1alpha1.GateFailing:
			state = v.style.Red(state)
		case v1alpha1.GateEmpty, v1alpha1.GateError:
			state = v.style.Yellow(state)
		}
		lines = append(lines, fmt.Sprintf("%-5s  %s  %s  %s", title, g.Name, state, g.Words))
		if v.wide {
			lines = append(lines, "       "+v.style.Dim(g.Query))
		}
		title = ""
	}
	return lines
}

func (v view) conditions() []string {
	lines := []string{""}
	for _, c := range v.rollout.Status.Conditions {
		lines = append(lines, fmt.Sprintf("%-12s %-8s %s: %s", printable.Line(c.Type), printable.Line(string(c.Status)), printable.Line(c.Reason),
			printable.Line(c.Message)))
	}
	if r := v.rollout.Status.CurrentRevision; r != nil {
		lines = append(lines, fmt.Sprintf("Last succeeded: revision %d (%s)", r.Number, printable.Line(r.ConfigMapRef.Name)))
	}
	return lines
}

// failed returns the failed nodes that the status names.
func (v view) failed() []string {
	var lines []string
	for i, n := range v.rollout.Status.FailedNodes {
		if i == 0 {
			lines = append(lines, "")
		}
		line := fmt.Sprintf("%s  %s  %s", printable.Line(n.Name), v.style.Red(printable.Line(n.Reason)),
			printable.Line(describe.WithoutUIDs(n.Message)))
		if v.gone[n.Name] {
			line += "  (the node no longer exists)"
		}
		lines = append(lines, line)
	}
	if more := int(v.rollout.Status.Nodes.Failed) - len(v.rollout.Status.FailedNodes); more > 0 && len(lines) > 0 {
		lines = append(lines, fmt.Sprintf("and %d more failed nodes: kubectl evenkeel nodes --rollout %s --failed", more, v.rollout.Name))
	}
	return lines
}

// draining returns the nodes that the status names as being drained, or as drained and not released yet.
func (v view) draining() []string {
	var lines []string
	for i, n := range v.rollout.Status.DrainingNodes {
		if i == 0 {
			lines = append(lines, "")
		}
		lines = append(lines, fmt.Sprintf("%s  draining for %s  %s", printable.Line(n.Name),
			duration.HumanDuration(max(0, v.now.Sub(n.Since.Time))), printable.Line(n.Message)))
	}
	if more := int(v.rollout.Status.Nodes.Draining) - len(v.rollout.Status.DrainingNodes); more > 0 && len(lines) > 0 {
		lines = append(lines, fmt.Sprintf("and %d more draining nodes: kubectl evenkeel nodes --rollout %s", more, v.rollout.Name))
	}
	return lines
}

// zone counts the nodes of one zone.
type zone struct {
	name                       string
	all, updated, open, failed int
}

func (z *zone) label() string { return cmp.Or(printable.Line(z.name), "no zone") }

// zones returns a bar for each zone; if there are too many, zones with nodes in flight or failed come first.
func (v view) zones() []string {
	byName := map[string]*zone{}
	for _, n := range v.nodes {
		z := byName[n.zone]
		if z == nil {
			z = &zone{name: n.zone}
			byName[n.zone] = z
		}
		z.all++
		switch {
		case n.state == nodeUpdated:
			z.updated++
		case n.state == nodeFailed:
			z.failed++
		case n.state.inFlight():
			z.open++
		}
	}
	var zones []*zone
	longest := 0
	for _, z := range byName {
		zones = append(zones, z)
	}
	slices.SortFunc(zones, func(a, b *zone) int { return printable.CompareNatural(a.name, b.name) })
	if len(zones) > mostZones {
		slices.SortStableFunc(zones, func(a, b *zone) int { return cmp.Compare(b.open+b.failed, a.open+a.failed) })
	}
	shown := zones[:min(len(zones), mostZones)]
	for _, z := range shown {
		longest = max(longest, len(z.label()))
	}
	lines := []string{""}
	for _, z := range shown {
		line := fmt.Sprintf("%-*s %s %d/%d", longest, z.label(), v.bar(z.updated, z.open, z.failed, z.all), z.updated, z.all)
		if z.open > 0 {
			line += fmt.Sprintf(", %d in flight", z.open)
		}
		if z.failed > 0 {
			line += ", " + v.style.Red(fmt.Sprintf("%d failed", z.failed))
		}
		lines = append(lines, line)
	}
	if more := len(zones) - len(shown); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more zones: kubectl evenkeel nodes --rollout %s -o wide", more, v.rollout.Name))
	}
	return lines
}

const barWidth = 30

// bar returns a bar of the shares of nodes. Each share above 0 has at least one cell.
func (v view) bar(updated, open, failed, all int) string {
	cells := func(n int) int {
		if n == 0 {
			return 0
		}
		return max(1, n*barWidth/all)
	}
	f, o := cells(failed), cells(open)
	u := min(cells(updated), barWidth-f-o)
	rest := max(0, barWidth-u-o-f)
	return v.style.Green(strings.Repeat("█", max(0, u))) + v.style.Yellow(strings.Repeat("▒", o)) +
		v.style.Red(strings.Repeat("✗", f)) + v.style.Dim(strings.Repeat("░", rest))
}

// open lists nodes that failed or are in flight, failed nodes first.
func (v view) open() []string {
	var open []liveNode
	longest := 0
	for _, n := range v.nodes {
		if n.state == nodeFailed || n.state.inFlight() {
			open = append(open, n)
		}
	}
	slices.SortFunc(open, func(a, b liveNode) int {
		return cmp.Or(cmp.Compare(b.state, a.state), printable.CompareNatural(a.name, b.name))
	})
	shown := open[:min(len(open), mostOpen)]
	if len(shown) == 0 {
		return nil
	}
	for _, n := range shown {
		longest = max(longest, len(n.name))
	}
	lines := []string{""}
	for _, n := range shown {
		words := fmt.Sprintf("%-12s", n.state)
		if n.state == nodeFailed {
			words = v.style.Red(words)
		}
		line := fmt.Sprintf("%-*s %s", longest, n.name, words)
		if !n.since.IsZero() {
			line += fmt.Sprintf(" %5s", duration.HumanDuration(max(0, v.now.Sub(n.since))))
		}
		lines = append(lines, strings.TrimRight(line+"  "+printable.Line(n.why), " "))
	}
	if more := len(open) - len(shown); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more: kubectl evenkeel nodes --rollout %s", more, v.rollout.Name))
	}
	return lines
}

// wrap breaks text into at most three lines.
func wrap(color func(string) string, words string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(words) {
		if line != "" && len(line)+1+len(word) > width && len(lines) < 2 {
			lines, line = append(lines, color(line)), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, color(line))
}

// clipped cuts each line to a width.
func clipped(lines []string, width int) []string {
	for i, line := range lines {
		lines[i] = clip(line, width)
	}
	return lines
}

// clip shortens a line to a width: it keeps the beginning and the end. Color codes have no width, and stay.
func clip(line string, width int) string {
	var visible []int // where the characters begin that have a width
	escape := false
	for at, r := range line {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r != 'm'
		default:
			visible = append(visible, at)
		}
	}
	n := len(visible)
	if n <= width {
		return line
	}
	head := width / 2
	from, to := visible[head], visible[n-(width-head-1)]
	return line[:from] + "…" + strings.Join(colorCode.FindAllString(line[from:to], -1), "") + line[to:] + "\x1b[0m"
}

var colorCode = regexp.MustCompile("\x1b\\[[0-9;]*m")

// live draws a view in place, again and again.
type live struct {
	out      io.Writer
	screen   func() (width, height int, ok bool)
	view     view
	trouble  string
	drawn    int
	found    <-chan liveResult
	requests chan *v1alpha1.NodeConfigRollout
	nodesErr string
}

// newLive starts a live view, which ends with ctx.
func newLive(ctx context.Context, c client.Client, out io.Writer, screen func() (int, int, bool), wide bool) *live {
	requests := make(chan *v1alpha1.NodeConfigRollout, 1)
	return &live{
		out: out, screen: screen, view: view{style: true, wide: wide},
		found: lookAtNodes(ctx, c, requests), requests: requests,
	}
}

func (l *live) show(r *v1alpha1.NodeConfigRollout) {
	l.view.rollout, l.trouble = r, ""
	l.redraw()
}

func (l *live) redraw() {
	if l.view.rollout == nil {
		return
	}
	select {
	case <-l.requests: // replace an older request
	default:
	}
	l.requests <- l.view.rollout
	select {
	case f := <-l.found:
		l.nodesErr, l.view.noNodes = "", ""
		switch {
		case f.err == nil:
			l.view.nodes = f.nodes
		case fleet.Passing(f.err):
			l.nodesErr = describe.Brief(f.err)
		default:
			l.view.noNodes = describe.Brief(f.err)
		}
	default:
	}
	width, height, ok := l.screen()
	if !ok || width < 20 {
		width, height = 80, 24
	}
	l.view.now, l.view.trouble = time.Now(), cmp.Or(l.trouble, l.nodesErr)
	lines := l.view.lines(width)
	lines = lines[:min(len(lines), max(1, height-1))]
	var b strings.Builder
	if l.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", l.drawn)
	}
	for _, line := range lines {
		b.WriteString("\r\x1b[2K" + line + "\n")
	}
	b.WriteString("\x1b[J")
	_, _ = io.WriteString(l.out, b.String())
	l.drawn = len(lines)
}
