// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"fmt"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// Gate is a gate of a rollout with its last evaluation, for people. All texts are safe to print.
type Gate struct {
	Name  string `json:"name"`
	State string `json:"state"` // Passing, Failing, NoData, Error or Pending
	Words string `json:"words"` // the value, the condition, and what the rollout waits for
	Query string `json:"query"`
}

// GatesOf returns the gates of a rollout. It returns none for an invalid spec.
func GatesOf(r *v1alpha1.NodeConfigRollout, now time.Time) []Gate {
	s, _, err := fleet.Complete(r)
	if err != nil {
		return nil
	}
	known := map[string]v1alpha1.GateStatus{}
	for _, g := range r.Status.Gates {
		known[g.Name] = g
	}
	var out []Gate
	for _, g := range s.Strategy.Gates {
		st, evaluated := known[g.Name]
		if !evaluated || st.State == "" {
			st.State = v1alpha1.GatePending
		}
		condition, _ := rollout.ComparisonOf(g.Prometheus.Passes)
		words := []string{"must be " + condition.String()}
		switch {
		case st.State == v1alpha1.GatePending && g.Every == v1alpha1.GateAlways:
			words = append(words, "evaluated every "+Span(g.Interval.Duration))
		case st.State == v1alpha1.GatePending:
			words = append(words, "evaluated after each step")
		case st.Value != "":
			words[0] = st.Value + ", " + words[0]
		case st.State == v1alpha1.GateEmpty || st.State == v1alpha1.GateError:
			why, _, _ := strings.Cut(st.Message, "; query: ")
			words[0] = why
		}
		if st.Failures > 0 {
			words = append(words, fmt.Sprintf("failed %d of %s", st.Failures, printable.Count(g.Failures, "time")))
		}
		if st.Time != nil {
			words = append(words, Age(*st.Time, now)+" ago")
		}
		out = append(out, Gate{
			Name: printable.Line(g.Name), State: printable.Line(string(st.State)), Words: printable.Line(strings.Join(words, "; ")),
			Query: printable.Line(g.Prometheus.Query) + " on " + printable.Line(g.Prometheus.Server),
		})
	}
	return out
}
