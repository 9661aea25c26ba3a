// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// rolloutDetail is the open card of a rollout.
type rolloutDetail struct {
	Name    string       `json:"name"`
	Actions []actionView `json:"actions"`
	// MayNot says why the user is not allowed to change the rollout; empty if the user is.
	MayNot    string          `json:"mayNot,omitempty"`
	History   []pastView      `json:"history"`
	NoHistory string          `json:"noHistory,omitempty"` // why there is none
	Notes     []string        `json:"notes,omitempty"`
	Rules     []describe.Line `json:"rules"`
	// Revisions are what diff compares, the newest first, after 0, the local configuration.
	Revisions []revisionView `json:"revisions"`
}

// revisionView is a revision to choose for a comparison.
type revisionView struct {
	Number  int64        `json:"number"`
	Name    string       `json:"name,omitempty"` // of the ConfigMap
	Created *metav1.Time `json:"created,omitempty"`
	Note    string       `json:"note,omitempty"` // its outcome, and why it cannot be compared
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
	d := &rolloutDetail{Name: r.Name, History: []pastView{}, Rules: rulesOf(r),
		Revisions: []revisionView{{Note: "the local configuration of each node"}}}
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
	for _, p := range slices.Backward(all) {
		v := revisionView{Number: p.Revision, Name: printable.Line(p.ConfigMap), Created: p.StartTime,
			Note: printable.Line(describe.JoinWords(p.Outcome, p.Reason))}
		if p.Object != nil {
			v.Created = cmp.Or(v.Created, &p.Object.CreationTimestamp)
		}
		if p.Gone {
			v.Note = strings.TrimPrefix(v.Note+"; its ConfigMap is gone", "; ")
		}
		d.Revisions = append(d.Revisions, v)
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

// diffView compares two revisions of a rollout, field by field. 0 is the local configuration.
type diffView struct {
	From   int64                 `json:"from"`
	To     int64                 `json:"to"`
	Kinds  string                `json:"kinds,omitempty"` // that one is a drop-in, and the other is not
	Fields []describe.Difference `json:"fields"`
	Error  string                `json:"error,omitempty"` // why they cannot be compared
}

// diff answers with the differences between two revisions.
func (c *cluster) diff(ctx context.Context, r *http.Request) (any, error) {
	v := diffView{Fields: []describe.Difference{}}
	for key, number := range map[string]*int64{"from": &v.From, "to": &v.To} {
		n, err := strconv.ParseInt(r.URL.Query().Get(key), 10, 64)
		if err != nil || n < 0 {
			return nil, refusal{http.StatusBadRequest,
				fmt.Errorf("the parameter %s must be the number of a revision, or 0 for the local configuration", key)}
		}
		*number = n
	}
	stored, err := query.Rollout(ctx, c.api, r.PathValue("name"))
	if err != nil {
		return nil, err
	}
	all, _, err := query.Revisions(ctx, c.api, stored)
	if err == nil {
		err = v.compare(stored, all)
	}
	if err != nil {
		v.Error = describe.Printable(describe.WithAdvice(err, c.server.o.Version).Error())
	}
	return v, nil
}

// compare fills in the differences.
func (v *diffView) compare(r *v1alpha1.NodeConfigRollout, all []query.Revision) error {
	var sides [2]payload.Payload
	for i, number := range []int64{v.From, v.To} {
		if number == 0 {
			continue
		}
		var err error
		if sides[i], err = query.ContentAt(r, all, number); err != nil {
			return err
		}
	}
	kinds, changes := describe.ContentChanges(sides[0], sides[1], describe.LocalOfEach)
	v.Kinds = printable.Line(kinds)
	for _, c := range changes {
		c.Field, c.A, c.B = printable.Line(c.Field), printable.Line(c.A), printable.Line(c.B)
		v.Fields = append(v.Fields, c)
	}
	return nil
}

// windowWords describes a maintenance window: 0 22 * * 1-5 for 6h, Europe/Berlin.
func windowWords(w v1alpha1.MaintenanceWindow) string {
	words := fmt.Sprintf("%s for %s, %s", printable.Line(w.Schedule), describe.Span(w.Duration.Duration),
		cmp.Or(printable.Line(w.TimeZone), "UTC"))
	if w.Finish == v1alpha1.FinishWithin {
		words += ", trials end within"
	}
	return words
}
