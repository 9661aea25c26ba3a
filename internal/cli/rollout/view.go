// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// view has what the output about one rollout needs.
type view struct {
	rollout *v1alpha1.NodeConfigRollout
	gone    map[string]bool // failed nodes that no longer exist
	now     time.Time
	style   printing.Style
	wide    bool
}

// lines returns the status of the rollout, and the failed and draining nodes
// that it names.
func (v view) lines() []string {
	st := &v.rollout.Status
	lines := []string{v.title()}
	if !query.Observed(v.rollout) {
		lines = append(lines, v.style.Yellow(query.Unobserved))
	} else if st.Message != "" {
		lines = append(lines, printable.Line(st.Message))
	}

	if st.UpdateRevision == nil {
		return lines
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

	return slices.Concat(lines, v.failed(), v.draining())
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

// draining returns the nodes that the status names as being drained, or as
// drained and not released yet.
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
