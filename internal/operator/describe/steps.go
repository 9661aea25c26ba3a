// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// StepWords describes a step: 10%, 1 node, or pause 5m.
func StepWords(s v1alpha1.RolloutStep) string {
	switch {
	case s.Pause == nil && s.Nodes.Type == intstr.Int:
		return printable.Count(s.Nodes.IntVal, "node")
	case s.Pause == nil:
		return s.Nodes.StrVal
	case s.Pause.Duration == nil:
		return "pause"
	}
	return "pause " + duration.HumanDuration(s.Pause.Duration.Duration)
}

// UpdatedOf counts the nodes that have proven the revision and all that belong to the rollout, such as 812/5000.
func UpdatedOf(n *v1alpha1.RolloutCounts) string {
	return fmt.Sprintf("%d/%d", n.Updated, n.Members)
}

// NextWindow says when the next maintenance window opens; empty if the rollout waits for none.
func NextWindow(st *v1alpha1.NodeConfigRolloutStatus, now time.Time) string {
	if st.NextWindowTime == nil {
		return ""
	}
	words := st.NextWindowTime.UTC().Format(time.RFC3339)
	if left := st.NextWindowTime.Sub(now); left > 0 {
		words += ", in " + duration.HumanDuration(left)
	}
	return words
}

// PauseEnds returns when a current step ends that is a pause for a time; otherwise zero.
func PauseEnds(s *v1alpha1.RolloutStep, st *v1alpha1.NodeConfigRolloutStatus) time.Time {
	if s.Pause == nil || s.Pause.Duration == nil || st.StepTime == nil {
		return time.Time{}
	}
	return st.StepTime.Add(s.Pause.Duration.Duration)
}

// Stopped reports whether a rollout in this phase does not continue without a change by a person: exit code 2.
func Stopped(p v1alpha1.RolloutPhase) bool {
	switch p {
	case v1alpha1.RolloutInvalid, v1alpha1.RolloutRollingBack, v1alpha1.RolloutRolledBack, v1alpha1.RolloutHalted, v1alpha1.RolloutStuck:
		return true
	}
	return false
}

// StepsOf returns a rollout's steps, or the default steps.
func StepsOf(r *v1alpha1.NodeConfigRollout) ([]v1alpha1.RolloutStep, error) {
	s, _, err := fleet.Complete(r)
	if err != nil {
		return nil, fmt.Errorf("rollout %q: %w", r.Name, err)
	}
	return s.Strategy.Steps, nil
}

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
