// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package describe describes nodes, rollouts, revisions and their differences to people: the sentences, rows and advice that
// the command line and the page share.
//
// It must not read from the API: internal/fleet does that.
package describe

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// JoinWords returns "REASON: WHY", or the one that is not empty.
func JoinWords(reason, why string) string {
	if reason == "" || why == "" {
		return reason + why
	}
	return reason + ": " + why
}

// Span formats a duration: to the second and without trailing zeros below ten hours, such as 10m and 3m12s, and as an age otherwise,
// such as 3d4h.
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

// ImageVersion returns the version in an image's tag; empty for other tags, such as latest, and for digests.
func ImageVersion(image string) string {
	name := image[strings.LastIndexByte(image, '/')+1:]
	name, _, _ = strings.Cut(name, "@")
	_, tag, _ := strings.Cut(name, ":")
	if len(tag) < 2 || tag[0] != 'v' || tag[1] < '0' || tag[1] > '9' {
		return ""
	}
	return tag
}

// silence is the longest time without a renewal of the controller's Lease that is normal; the controller renews it every few
// seconds.
const silence = time.Minute

// NoController says that a namespace has no Lease of evenkeel-controller, or that ControllerSilent; otherwise nothing.
func NoController(lease query.Renewal, namespace string, now time.Time) string {
	if lease.Missing {
		return fmt.Sprintf("no controller leads: namespace %s has no Lease %s", namespace, v1alpha1.ControllerLease)
	}
	return ControllerSilent(lease, namespace, now)
}

// ControllerSilent returns a warning if no controller holds the Lease, or if its holder has not renewed it for some time, and otherwise
// nothing. It returns nothing if there is no Lease: a controller can run without.
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

// uidNote matches the UID that agents add to the name of a configuration. A UID without such a name stays.
var uidNote = regexp.MustCompile(`\b(current|last-known-good) \(UID: [0-9a-f]{8}-[0-9a-f-]{27}(, values: [0-9a-f]+)?\)`)

// WithoutUIDs removes the UIDs from a message of an agent. People see the name of the configuration beside it; the API and other
// formats keep the message.
func WithoutUIDs(message string) string { return uidNote.ReplaceAllString(message, "$1") }
