// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// rolloutDetail is the open card of a rollout.
type rolloutDetail struct {
	Name    string       `json:"name"`
	Actions []actionView `json:"actions"`
	// MayNot says why the user is not allowed to change the rollout; empty if
	// the user is.
	MayNot    string          `json:"mayNot,omitempty"`
	History   []pastView      `json:"history"`
	NoHistory string          `json:"noHistory,omitempty"` // why there is none
	Notes     []string        `json:"notes,omitempty"`
	Rules     []describe.Line `json:"rules"`
	// Diff is the command that compares the last succeeded revision with the
	// target; empty: there is none.
	Diff string `json:"diff,omitempty"`
}

type pastView struct {
	query.Revision
	Ago   string `json:"ago,omitempty"`
	Ended string `json:"ended,omitempty"`
}

// detail reads the details of a rollout.
func (c *cluster) detail(ctx context.Context, name string, now time.Time) (*rolloutDetail, error) {
	r, err := query.Rollout(ctx, c.api, name)
	if err != nil {
		return nil, err
	}

	d := &rolloutDetail{Name: r.Name, History: []pastView{}, Rules: rulesOf(r)}
	if d.MayNot, err = mayNot(ctx, c.api, name); err != nil {
		return nil, err
	}

	d.Actions = c.offered(r, d.MayNot)
	settings, err := query.Settings(ctx, c.api, r)
	if err != nil {
		return nil, err
	}
	if words := describe.ControllerSilent(query.ControllerRenewal(ctx, c.api, settings.Namespace), settings.Namespace, now); words != "" {
		d.Notes = append(d.Notes, words)
	}

	all, _, err := query.Revisions(ctx, c.api, r)
	if err != nil {
		d.NoHistory = printable.Line(err.Error())
		return d, nil
	}

	for _, p := range all {
		d.History = append(d.History, pastView{Revision: p, Ago: describe.Ago(p.StartTime, now), Ended: describe.Ago(p.EndTime, now)})
	}

	if before := fleet.PreviousRevision(&r.Status); before != 0 {
		d.Diff = c.command("config", "diff", fmt.Sprintf("rollout/%s@%d", r.Name, before),
			fmt.Sprintf("rollout/%s@%d", r.Name, r.Status.Target()))
	}

	return d, nil
}

// rulesOf describes the settings of a rollout.
func rulesOf(r *v1alpha1.NodeConfigRollout) []describe.Line {
	s, _, err := fleet.Complete(r)
	if err != nil {
		return []describe.Line{{Key: "Invalid", Text: printable.Line(err.Error())}}
	}

	out := []describe.Line{
		{Key: "Nodes", Text: describe.SelectorWords(&r.Spec)},
		{Key: "Unavailable at most", Text: s.Strategy.MaxUnavailable.String()},
	}
	if v := r.Spec.Strategy.MaxUnavailablePerDomain; v != nil {
		out = append(out, describe.Line{Key: "of one " + r.Spec.Strategy.TopologyKey, Text: v.String()})
	}

	then := "the rollout halts"
	if s.FailurePolicy.Action == v1alpha1.FailureActionRollback {
		then = "the rollout halts, and its nodes roll back"
	}

	out = append(out, describe.Line{Key: "Failures", Text: "at " + maxFailures(r) + " " + then})
	switch s.Strategy.Preflight {
	case v1alpha1.PreflightReport:
		out = append(out, describe.Line{Key: "Preflight", Text: "all agents are asked before the first restart"})
	case v1alpha1.PreflightRequire:
		out = append(out, describe.Line{Key: "Preflight",
			Text: "all agents are asked before the first restart; at " + maxFailures(r) + " refusals the rollout halts"})
	}

	for _, g := range s.Strategy.Gates {
		p, when := &g.Prometheus, "after each step"
		if g.Every == v1alpha1.GateAlways {
			when = "always"
		}

		out = append(out, describe.Line{Key: "Gate " + printable.Line(g.Name),
			Text: printable.Line(fmt.Sprintf("%s %s on %s, %s, stops at %d", p.Query, p.Passes, p.Server, when, g.Failures))})
	}

	if s.SoakSeconds > 0 {
		out = append(out, describe.Line{Key: "Soaking", Text: duration.HumanDuration(time.Duration(s.SoakSeconds) * time.Second)})
	}

	for _, w := range r.Spec.Strategy.Windows {
		out = append(out, describe.Line{Key: "Window", Text: windowWords(w)})
	}

	if t := r.Spec.Trial; t != nil {
		var asked []string
		if t.ConfigTrialDuration != nil {
			asked = append(asked, duration.HumanDuration(t.ConfigTrialDuration.Duration))
		}
		if t.CrashLoopThreshold != nil {
			asked = append(asked, printable.Count(int(*t.CrashLoopThreshold), "restart"))
		}
		if t.AllowPodLoss {
			asked = append(asked, "pods may be lost")
		}

		out = append(out, describe.Line{Key: "Trial", Text: strings.Join(asked, ", ")})
	}

	return out
}

// windowWords describes a maintenance window: 0 22 * * 1-5 for 6h,
// Europe/Berlin.
func windowWords(w v1alpha1.MaintenanceWindow) string {
	words := fmt.Sprintf("%s for %s, %s", printable.Line(w.Schedule), describe.Span(w.Duration.Duration),
		cmp.Or(printable.Line(w.TimeZone), "UTC"))
	if w.Finish == v1alpha1.FinishWithin {
		words += ", trials end within"
	}

	return words
}
