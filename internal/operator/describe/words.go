// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package describe describes nodes, rollouts, revisions and their differences
// to people: the sentences, rows and advice that the command line and the page
// share.
//
// It must not read from the API: internal/fleet does that.
package describe

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// JoinWords returns "REASON: WHY", or the one that is not empty.
func JoinWords(reason, why string) string {
	if reason == "" || why == "" {
		return reason + why
	}

	return reason + ": " + why
}

// Span formats a duration: to the second and without trailing zeros below ten
// hours, such as 10m and 3m12s, and as an age otherwise, such as 3d4h.
func Span(d time.Duration) string {
	if d >= 10*time.Hour {
		return duration.HumanDuration(d)
	}

	s := d.Round(time.Second).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}

	return s
}

// Printable applies printable.Line to each line.
func Printable(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = printable.Line(lines[i])
	}

	return strings.Join(lines, "\n")
}

// Age formats the time since t in a few characters.
func Age(t metav1.Time, now time.Time) string {
	if t.IsZero() {
		return ""
	}

	return duration.HumanDuration(max(now.Sub(t.Time), 0))
}

// Ago formats how long ago t was; empty if there is no t.
func Ago(t *metav1.Time, now time.Time) string {
	if t == nil {
		return ""
	}

	return Age(*t, now) + " ago"
}

// PhaseWords formats a phase for use within a sentence.
func PhaseWords(p v1alpha1.RolloutPhase) string {
	var b strings.Builder
	for i, r := range OrUnknown(p) {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteByte(' ')
		}

		b.WriteRune(unicode.ToLower(r))
	}

	return b.String()
}

// OrUnknown returns the phase, or Unknown before the controller has set one.
func OrUnknown(p v1alpha1.RolloutPhase) string {
	if p == "" {
		return "Unknown"
	}

	return string(p)
}

// SelectorWords describes the nodes that a rollout selects.
func SelectorWords(s *v1alpha1.NodeConfigRolloutSpec) string {
	if s.AllNodes {
		return "all"
	}

	return metav1.FormatLabelSelector((*metav1.LabelSelector)(&s.NodeSelector))
}

// ImageVersion returns the version in an image's tag; empty for other tags,
// such as latest, and for digests.
func ImageVersion(image string) string {
	name := image[strings.LastIndexByte(image, '/')+1:]
	name, _, _ = strings.Cut(name, "@")
	_, tag, _ := strings.Cut(name, ":")
	if len(tag) < 2 || tag[0] != 'v' || tag[1] < '0' || tag[1] > '9' {
		return ""
	}

	return tag
}

// silence is the longest time without a renewal of the controller's Lease that
// is normal; the controller renews it every few seconds.
const silence = time.Minute

// NoController says that a namespace has no Lease of evenkeel-controller, or
// that ControllerSilent; otherwise nothing.
func NoController(lease query.Renewal, namespace string, now time.Time) string {
	if lease.Missing {
		return fmt.Sprintf("no controller leads: namespace %s has no Lease %s", namespace, v1alpha1.ControllerLease)
	}

	return ControllerSilent(lease, namespace, now)
}

// ControllerSilent returns a warning if no controller holds the Lease, or if
// its holder has not renewed it for some time, and otherwise nothing. It
// returns nothing if there is no Lease: a controller can run without.
func ControllerSilent(lease query.Renewal, namespace string, now time.Time) string {
	switch {
	case lease.Released:
		return fmt.Sprintf("no controller leads: the Lease %s has no holder; kubectl -n %s get pods", v1alpha1.ControllerLease, namespace)
	case lease.Time.IsZero() || now.Sub(lease.Time) < silence:
		return ""
	}

	return fmt.Sprintf("evenkeel-controller has not renewed its lease for %s, by the clock of this machine: is it running? "+
		"kubectl -n %s get pods", Age(metav1.NewTime(lease.Time), now), namespace)
}

// uidNote matches the UID that agents add to the name of a configuration. A UID
// without such a name stays.
var uidNote = regexp.MustCompile(`\b(current|last-known-good) \(UID: [0-9a-f]{8}-[0-9a-f-]{27}(, values: [0-9a-f]+)?\)`)

// WithoutUIDs removes the UIDs from a message of an agent. People see the name
// of the configuration beside it; the API and other formats keep the message.
func WithoutUIDs(message string) string { return uidNote.ReplaceAllString(message, "$1") }

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

// UpdatedOf counts the nodes that have proven the revision and all that belong
// to the rollout, such as 812/5000.
func UpdatedOf(n *v1alpha1.RolloutCounts) string {
	return fmt.Sprintf("%d/%d", n.Updated, n.Members)
}

// NextWindow says when the next maintenance window opens; empty if the rollout
// waits for none.
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

// PauseEnds returns when a current step ends that is a pause for a time;
// otherwise zero.
func PauseEnds(s *v1alpha1.RolloutStep, st *v1alpha1.NodeConfigRolloutStatus) time.Time {
	if s.Pause == nil || s.Pause.Duration == nil || st.StepTime == nil {
		return time.Time{}
	}

	return st.StepTime.Add(s.Pause.Duration.Duration)
}

// Stopped reports whether a rollout in this phase does not continue without a
// change by a person: exit code 2.
func Stopped(p v1alpha1.RolloutPhase) bool {
	return slices.Contains([]v1alpha1.RolloutPhase{v1alpha1.RolloutInvalid, v1alpha1.RolloutRollingBack, v1alpha1.RolloutRolledBack,
		v1alpha1.RolloutHalted, v1alpha1.RolloutStuck}, p)
}

// StepsOf returns a rollout's steps, or the default steps.
func StepsOf(r *v1alpha1.NodeConfigRollout) ([]v1alpha1.RolloutStep, error) {
	s, _, err := fleet.Complete(r)
	if err != nil {
		return nil, fmt.Errorf("rollout %q: %w", r.Name, err)
	}

	return s.Strategy.Steps, nil
}

// Gate is a gate of a rollout with its last evaluation, for people. All texts
// are safe to print.
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
			words = append(words, Ago(st.Time, now))
		}

		out = append(out, Gate{
			Name: printable.Line(g.Name), State: printable.Line(string(st.State)), Words: printable.Line(strings.Join(words, "; ")),
			Query: printable.Line(g.Prometheus.Query) + " on " + printable.Line(g.Prometheus.Server),
		})
	}

	return out
}
